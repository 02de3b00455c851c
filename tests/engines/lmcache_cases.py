# SPDX-License-Identifier: Apache-2.0
"""LMCache's StorageManager with chunks of a real cache: store, forget in memory, load, compare every bit."""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from lmcache.v1.distributed.api import (
    GroupedObjectKeys,
    MemoryLayoutDesc,
    ObjectKey,
    PrefetchTaskSpec,
)
from lmcache.v1.distributed.config import (
    EvictionConfig,
    L1ManagerConfig,
    L1MemoryManagerConfig,
    StorageManagerConfig,
)
from lmcache.v1.distributed.l2_adapters.config import add_l2_adapters_args, parse_args_to_l2_adapters_config
from lmcache.v1.distributed.storage_manager import StorageManager

from splitzip_kv.transfer.demo.cache import load_cache

DATA = Path(__file__).parents[2] / "data" / "smollm2-135m"
CHUNK_TOKENS = 32


def chunks() -> list[torch.Tensor]:
    """The sample cache as LMCache has it: [K and V, layer, token, heads and dim] for each chunk of tokens."""
    cache = load_cache(DATA / "gsm8k.safetensors")
    rows = [torch.from_numpy(tensor.values.astype("<i2", copy=False)).flatten(1) for tensor in cache]
    whole = torch.stack([torch.stack(rows[kind::2]) for kind in (0, 1)]).view(torch.bfloat16)
    return list(whole.split(CHUNK_TOKENS, dim=2))


def key(number: int, name: str = "smollm2") -> ObjectKey:
    return ObjectKey(chunk_hash=number.to_bytes(16, "big"), model_name=name, kv_rank=0)


@contextlib.contextmanager
def manager(*adapters: dict):
    arguments = [word for adapter in adapters for word in ("--l2-adapter", json.dumps(adapter))]
    parser = add_l2_adapters_args(argparse.ArgumentParser())
    l2 = parse_args_to_l2_adapters_config(parser.parse_args(arguments))
    memory = L1MemoryManagerConfig(size_in_bytes=256 << 20, use_lazy=False, shm_name="")
    config = StorageManagerConfig(L1ManagerConfig(memory), EvictionConfig("LRU"), l2)
    made = StorageManager(config)
    try:
        yield made
    finally:
        made.close()


def layout(values: torch.Tensor) -> MemoryLayoutDesc:
    return MemoryLayoutDesc([values.shape], [values.dtype])


def store(made: StorageManager, keys: list[ObjectKey], values: list[torch.Tensor]) -> None:
    reserved = made.reserve_write(keys, layout(values[0]))
    assert len(reserved) == len(keys)
    for one, tensor in zip(keys, values, strict=True):
        reserved[one].tensor.copy_(tensor)
    made.finish_write(keys)


def load(made: StorageManager, keys: list[ObjectKey], like: torch.Tensor) -> list[torch.Tensor | None]:
    """What L2 gives; memory has been cleared. None where it is a miss."""
    spec = PrefetchTaskSpec([GroupedObjectKeys(keys, 0, layout(like))], fetching_policy="prefix")
    handle = made.submit_prefetch_task(spec)
    assert made.wait_prefetch_status(handle, 30.0)
    result = made.query_prefetch_status(handle)
    found = [one for number, one in enumerate(keys) if result.l2_hit_cells[0].test(number)]
    values: dict = dict.fromkeys(keys)
    if found:
        with made.read_prefetched_results(found) as objects:
            assert objects is not None
            values.update({one: object.tensor.clone() for one, object in zip(found, objects, strict=True)})
        made.finish_read_prefetched(found)
    return [values[one] for one in keys]


def forget(made: StorageManager, ready) -> None:
    """Clear the memory tier as soon as `ready()` says that L2 has what it should have."""
    deadline = time.monotonic() + 30
    while not ready():
        assert time.monotonic() < deadline, "L2 did not get everything"
        time.sleep(0.002)
    time.sleep(0.05)  # the controller lets go of what was stored
    made.clear()


def same(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    return torch.equal(got.view(torch.int16), wanted.view(torch.int16))


@contextlib.contextmanager
def redis_server(program: str = "redis-server"):
    """Port and process of a server of its own."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.02)
            yield port, server
        finally:
            server.kill()
            server.wait()


def plugin(store_address: str, **params) -> dict:
    return {
        "type": "plugin",
        "module_path": "splitzip_kv.integrations.lmcache",
        "class_name": "SplitZipL2Adapter",
        "adapter_params": {"store": store_address, "learn_tokens": CHUNK_TOKENS, **params},
    }
