# SPDX-License-Identifier: Apache-2.0
"""A KV connector for vLLM: caches go compressed into a store that servers share, or from a prefill to a decode server.
docs/vllm.md says how to use it.

    --kv-transfer-config '{"kv_connector": "SplitZipConnector", "kv_role": "kv_both",
                           "kv_connector_module_path": "splitzip_kv.integrations.vllm",
                           "kv_connector_extra_config": {"store": "file:///var/lib/splitzip/store"}}'
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import logging
import re
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats
from vllm.platforms import current_platform

from .blocks import Blocks, Geometry, LayerMemory, layer_memory
from .vllm_scheduler import SchedulerSide
from .vllm_settings import Settings, Step
from .vllm_worker import WorkerSide, launched_on, on_host

log = logging.getLogger("vllm.splitzip")


@dataclasses.dataclass
class Metadata(KVConnectorMetadata):
    step: Step


def cpu_memory(cache: Any, geometry: Geometry) -> LayerMemory:
    """What vLLM's processor backend makes of a block [heads, tokens, K and V] depends on the processor's instructions,
    so it is asked: where does it put values that are all different?"""
    from vllm import _custom_ops as ops
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    heads, tokens, dim = geometry.heads, geometry.block_tokens, geometry.dim
    if cache.shape[1:] != (heads, tokens, 2 * dim) or not cache[0].is_contiguous():
        raise ValueError(f"the cache has shape {tuple(cache.shape)}, strides {cache.stride()}")
    count = tokens * dim
    if 2 * count > 1 << 15 or cache.element_size() != 2:
        raise ValueError(f"blocks of {tokens} tokens with {dim} values of {cache.dtype} are not known here")
    probe = torch.zeros((1, heads, 2 * tokens, dim), dtype=cache.dtype)
    numbers = torch.arange(2 * count, dtype=torch.int16).view(cache.dtype).view(2, tokens, 1, dim)
    key, value = numbers.expand(-1, -1, heads, -1).contiguous()
    isa = _get_attn_isa(cache.dtype, tokens, dim)
    ops.cpu_attn_reshape_and_cache(key, value, *probe.chunk(2, dim=2), torch.arange(tokens), isa)
    places = torch.full((2 * count,), -1)
    places[probe[0, 0].flatten().view(torch.int16).long()] = torch.arange(2 * count)
    tensors = []
    for kind, place in zip("kv", places.view(2, tokens, dim), strict=True):
        start, by_token, by_value = int(place[0, 0]), int(place[1, 0] - place[0, 0]), int(place[0, 1] - place[0, 0])
        steps = torch.arange(tokens)[:, None] * by_token + torch.arange(dim) * by_value
        if not torch.equal(place, start + steps):
            raise ValueError(f"this version cannot read the blocks of vLLM's attention for {isa}")
        strides = (cache.stride(0), cache.stride(1), by_token, by_value)
        view = cache.as_strided((len(cache), heads, tokens, dim), strides, cache.storage_offset() + start)
        tensors.append((kind, view, "page,head,token,dim"))
    return LayerMemory(tensors)


class SplitZipConnector(KVConnectorBase_V1):
    """With "store", every full block of a prompt is looked up there and stored there. Without it, a server with the
    role kv_producer keeps what it has prefilled until a server with the role kv_consumer has fetched it."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        if kv_cache_config is not None and len(kv_cache_config.kv_cache_groups) > 1:
            raise ValueError("SplitZipConnector is for models with one kind of attention cache")
        settings = Settings(vllm_config)
        self._config, self._settings = vllm_config, settings
        # One of the two, by the role.
        self._scheduler: Any = SchedulerSide(settings) if role == KVConnectorRole.SCHEDULER else None
        self._worker: Any = WorkerSide(settings) if role == KVConnectorRole.WORKER else None

    # Scheduler.

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        matched: tuple[int | None, bool] = self._scheduler.matched(request, num_computed_tokens)
        return matched

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._scheduler.allocated(request, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Metadata:
        return Metadata(self._scheduler.step(scheduler_output))

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        held: tuple[bool, dict[str, Any] | None] = self._scheduler.finished(request, block_ids)
        return held

    def update_connector_output(self, connector_output: Any) -> None:
        self._scheduler.held -= set(connector_output.finished_sending or ())

    def has_pending_push_work(self) -> bool:
        # Blocks that are held can only be given back by a step of the engine.
        return self._scheduler is not None and bool(self._scheduler.held)

    # Worker.

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        model = self._config.model_config
        size = model.get_head_size()
        heads = model.get_num_kv_heads(self._config.parallel_config)
        geometry = Geometry(self._config.cache_config.block_size, heads, size, size)
        names = sorted(kv_caches, key=lambda name: [int(piece) for piece in re.findall(r"\d+", name)])
        device = kv_caches[names[0]].device
        memory = cpu_memory if current_platform.is_cpu() and not model.use_mla else layer_memory
        layers = [memory(kv_caches[name], geometry) for name in names]
        blocks = Blocks(layers, geometry.block_tokens, self._settings.bytes_are)
        self._worker.register(blocks, functools.partial(launched_on, device) if device.type == "cuda" else on_host)
        log.info("splitzip: %d tensors on %s, blocks of %d tokens", len(blocks), device, blocks.block_tokens)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._worker.start(self._step())

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Requests run when they are loaded."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Blocks are saved with all their layers."""

    def wait_for_save(self) -> None:
        self._worker.save(self._step())

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        finished: tuple[set[str] | None, set[str] | None] = self._worker.finished()
        return finished

    def get_block_ids_with_load_errors(self) -> set[int]:
        failed: set[int] = self._worker.failed_blocks()
        return failed

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        counts = {} if self._worker is None else self._worker.counts()
        return Stats(data=counts) if counts else None

    def _step(self) -> Step:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, Metadata)
        return metadata.step

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats | None:
        return Stats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine_labelvalues: Any
    ) -> Any:
        return PromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


COUNTERS = [
    *("loads", "load_microseconds", "loaded_blocks", "failed_blocks", "damaged_blocks", "shadow_mismatches"),
    *("stored_blocks", "stored_bytes", "stored_raw_bytes", "skipped_blocks", "save_microseconds"),
    *("sends", "failed_sends", "sent_bytes", "sent_raw_bytes", "received_bytes", "received_raw_bytes"),
]


class Stats(KVConnectorStats):
    """Counts since the last report."""

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def is_empty(self) -> bool:
        return not self.data

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        self.data = dict(collections.Counter(self.data) + collections.Counter(other.data))
        return self

    def reduce(self) -> dict[str, int | float]:
        return dict(self.data)


class PromMetrics(KVConnectorPromMetrics):
    """vllm:splitzip_NAME_total for each counter."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine_labelvalues: Any) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {}
        for name in COUNTERS:
            counter = self._counter_cls(
                name=f"vllm:splitzip_{name}", documentation=f"SplitZipConnector: {name}", labelnames=labelnames
            )
            self._counters[name] = {
                engine: counter.labels(*values) for engine, values in per_engine_labelvalues.items()
            }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, count in transfer_stats_data.items():
            self._counters[name][engine_idx].inc(count)
