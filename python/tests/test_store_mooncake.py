# SPDX-License-Identifier: Apache-2.0
"""A real Mooncake Store: several processes, its eviction, and the end of its master. test_store.py uses it, too."""

import subprocess
import sys
import time

import pytest

from conftest import free_port, start_mooncake_master
from splitzip_kv import CodebookSet
from splitzip_kv.store import CacheStore, StoreError
from splitzip_kv.transfer.demo.cache import Pool, load_cache
from test_store import DATA, fetch, parts

pytest.importorskip("safetensors")

READER = """
import sys
from splitzip_kv.store import CacheStore
from splitzip_kv.store.mooncake import MooncakeValues
from splitzip_kv.transfer.demo.cache import Pool, load_cache
from pathlib import Path
pool = Pool(load_cache(Path(sys.argv[2]))[:8], 32, seed=5)
values = MooncakeValues(sys.argv[1], segment_bytes=0, buffer_bytes=32 << 20)
found = CacheStore(values).get("a", [pool.part(number) for number in range(8)])
print(found, pool.different_values(), pool.touched_bytes(), flush=True)
values.close()
"""


def test_another_process_reads_it(mooncake_values, mooncake_master):
    cache, codebooks = load_cache(DATA / "gsm8k.safetensors")[:8], CodebookSet.load(DATA / "wikitext2.szcb")
    source = Pool(cache, 16, seed=3)
    source.fill()
    CacheStore(mooncake_values(), codebooks).put("a", parts(source, codebooks))
    command = [sys.executable, "-c", READER, mooncake_master, str(DATA / "gsm8k.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.split()[-3:] == ["True", "0", "0"], done.stderr


def test_a_full_store_evicts_values_and_keeps_codebooks(mooncake_values):
    cache, codebooks = load_cache(DATA / "gsm8k.safetensors")[:8], CodebookSet.load(DATA / "wikitext2.szcb")
    source = Pool(cache, 16, seed=3)
    source.fill()
    values = mooncake_values(segment_bytes=16 << 20, patience=20.0)
    store = CacheStore(values, codebooks)
    names = [f"value {number}" for number in range(80)]  # four times what fits
    for name in names:
        store.put(name, parts(source, codebooks))
    kept = [name for name in names if values.size(name) is not None]
    assert 0 < len(kept) < len(names)
    reader = CacheStore(values)
    assert fetch(reader, kept[-1], cache) and reader.counters["missing_codebooks"] == 0


def test_errors(mooncake_values):
    values = mooncake_values()
    with pytest.raises(StoreError, match="does not take"):
        values.put("too large", memoryview(bytes(64 << 20)))
    assert values.get("nothing") is None and values.size("nothing") is None
    values.remove("nothing")


def test_the_master_dies_and_comes_back(mooncake_master):
    from splitzip_kv.store.mooncake import MooncakeValues

    cache, codebooks = load_cache(DATA / "gsm8k.safetensors")[:8], CodebookSet.load(DATA / "wikitext2.szcb")
    source = Pool(cache, 16, seed=3)
    source.fill()
    port = free_port()
    master = start_mooncake_master(port)
    try:
        values = MooncakeValues(f"127.0.0.1:{port}", segment_bytes=16 << 20, buffer_bytes=16 << 20)
        store = CacheStore(values, codebooks)
        store.put("a", parts(source, codebooks))
        master.kill()
        master.wait()
        with pytest.raises(StoreError):
            store.put("b", parts(source, codebooks))
        master = start_mooncake_master(port)
        deadline = time.monotonic() + 20
        while True:
            try:
                store.put("b", parts(source, codebooks))
                break
            except StoreError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        # The new master knew no codebooks.
        assert fetch(CacheStore(values), "b", cache)
        values.close()
    finally:
        master.kill()
        master.wait()


def test_the_example(mooncake_master):
    example = DATA.parents[1] / "examples" / "cache_store.py"
    done = subprocess.run([sys.executable, "-B", example, mooncake_master], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "ratio" in done.stdout


def test_no_master():
    from splitzip_kv.store.mooncake import MooncakeValues

    with pytest.raises(StoreError, match=r"no Mooncake Store|not usable"):
        MooncakeValues("127.0.0.1:9", segment_bytes=16 << 20, buffer_bytes=16 << 20)
