# SPDX-License-Identifier: Apache-2.0
"""What the connector for vLLM is told, and what its scheduler side tells its worker side."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from .. import ElementType
from ..store import CacheStore, StoreOptions, open_values
from ..transfer import Engine, Options

# vLLM keeps FP8 in arrays of plain bytes, and says in its configuration what they are.
FP8_TYPES = {"fp8": ElementType.FP8_E4M3, "fp8_e4m3": ElementType.FP8_E4M3, "fp8_e5m2": ElementType.FP8_E5M2}
LEARN_TOKENS = 2048
HOLD_SECONDS = 120.0


@dataclasses.dataclass
class Load:
    """Blocks of one request that come from elsewhere: by key from the store, or from a prefill server."""

    request: str
    blocks: list[int]
    keys: list[str] = dataclasses.field(default_factory=list)
    address: str = ""
    remote_request: str = ""
    tokens: int = 0
    skip: int = 0


@dataclasses.dataclass
class Step:
    """One step of the engine."""

    loads: list[Load] = dataclasses.field(default_factory=list)
    saves: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    """Key and block."""
    held: list[tuple[str, list[int], int]] = dataclasses.field(default_factory=list)
    """Request, blocks and tokens that a decode server may ask for."""


class Settings:
    """kv_connector_extra_config."""

    def __init__(self, vllm_config: Any) -> None:
        transfer = vllm_config.kv_transfer_config
        extra = dict(transfer.kv_connector_extra_config or {})
        parallel = vllm_config.parallel_config
        self.rank = getattr(parallel, "rank", 0)
        self.store: str | None = extra.pop("store", None)
        self.codebooks: str | None = extra.pop("codebooks", None)
        self.learn_tokens = int(extra.pop("learn_tokens", LEARN_TOKENS))
        namespace: str | None = extra.pop("namespace", None)
        self.host: str = extra.pop("host", "127.0.0.1")
        self.port = int(extra.pop("port", 0))  # rank 0's; each rank has the next one
        self.protocol: str = extra.pop("protocol", "tcp")
        self.hold_seconds = float(extra.pop("hold_seconds", HOLD_SECONDS))
        self.sends = transfer.kv_role in ("kv_producer", "kv_both")
        self.receives = transfer.kv_role in ("kv_consumer", "kv_both")
        self.transfers = self.store is None
        known = {field.name for field in dataclasses.fields(Options if self.transfers else StoreOptions)}
        if wrong := set(extra) - known:
            raise ValueError(f"kv_connector_extra_config: no such setting: {', '.join(sorted(wrong))}")
        if self.transfers and self.sends and not self.port:
            raise ValueError('kv_connector_extra_config: give "store", or the "port" at which decode servers ask')
        self.options = extra
        model, cache = vllm_config.model_config, vllm_config.cache_config
        self.block_tokens = cache.block_size
        self.bytes_are = FP8_TYPES.get(cache.cache_dtype, ElementType.BYTES)
        # All that makes two caches of the same tokens different.
        self.prefix = "/".join(
            [
                re.sub(r"[^\w.-]", "_", namespace or f"{model.model}@{getattr(model, 'revision', None) or ''}"),
                str(model.dtype).removeprefix("torch."),
                f"{cache.cache_dtype}-{cache.block_size}-{self.rank}of{parallel.world_size}",
                "",
            ]
        )

    @property
    def between_gpus(self) -> bool:
        """Whether frames of a cache on a GPU do not come to the host."""
        return self.protocol in ("cuda_peer", "nixl")

    def make_engine(self, device: int | None) -> Engine:
        """For a cache in host memory, or that of a GPU."""
        if self.protocol == "nixl":
            from ..transfer.nixl import NixlEngine

            return NixlEngine(self.host, device=device)
        if self.protocol == "cuda_peer":
            from ..transfer.cuda_peer import CudaPeerEngine

            if device is None:
                raise ValueError('"protocol": "cuda_peer" is for caches in the memory of GPUs')
            return CudaPeerEngine(device, self.host)
        from ..transfer.mooncake import MooncakeEngine

        return MooncakeEngine(self.host, protocol=self.protocol)

    def make_store(self) -> CacheStore:
        options = StoreOptions(**self.options)
        return CacheStore(open_values(self.store or ""), None, options, prefix=self.prefix)
