#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LMCache's own adapters against SplitZipL2Adapter on the same files and the same Redis server, as JSON.

tools/test_engine.sh lmcache runs it after the tests. A request stores the chunks of a prompt and loads them again.
"""

import argparse
import importlib.metadata
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from lmcache_cases import chunks, forget, key, load, manager, plugin, redis_server, same, store
from splitzip_kv.store.redis import RedisValues

CHUNKS = chunks()
RAW = sum(tensor.numel() * 2 for tensor in CHUNKS)
REQUESTS = 20


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "." and "codebooks" not in path.name]


def request(made, first: int, count) -> tuple[float, float]:
    keys = [key(first + number) for number in range(len(CHUNKS))]
    begin = time.perf_counter()
    store(made, keys, CHUNKS)
    while count() < first + len(CHUNKS):
        time.sleep(0.001)
    stored = time.perf_counter()
    forget(made, lambda: True)
    again = time.perf_counter()
    got = load(made, keys, CHUNKS[0])
    loaded = time.perf_counter()
    if not all(one is not None and same(one, wanted) for one, wanted in zip(got, CHUNKS, strict=True)):
        raise SystemExit("what was loaded is not what was stored")
    return stored - begin, loaded - again


def measured(adapter: dict, count, stored_bytes) -> dict:
    with manager(adapter) as made:
        request(made, 0, count)  # codebooks, connections, memory
        times = [request(made, number * len(CHUNKS), count) for number in range(1, REQUESTS + 1)]
    put, get = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        "bytes_a_request": round(stored_bytes() / (REQUESTS + 1)),
        "store_milliseconds": round(1000 * put, 1),
        "load_milliseconds": round(1000 * get, 1),
        "requests_a_second": round(1 / (put + get), 1),
    }


def on_files(adapter: dict, folder: str) -> dict:
    place = Path(folder)
    return measured(adapter, lambda: len(files_of(place)), lambda: sum(path.stat().st_size for path in files_of(place)))


def on_redis(make_adapter) -> dict:
    with redis_server() as (port, _):
        client = RedisValues(f"redis://127.0.0.1:{port}/0")._client

        def names() -> list[bytes]:
            return [name for name in client.scan_iter() if b"codebooks" not in name]

        return measured(make_adapter(port), lambda: len(names()), lambda: sum(client.strlen(name) for name in names()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    processor = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    with tempfile.TemporaryDirectory() as raw, tempfile.TemporaryDirectory() as coded:
        results = {
            "files": {
                "lmcache": on_files({"type": "fs", "base_path": raw}, raw),
                "splitzip": on_files(plugin(f"file://{coded}"), coded),
            },
            "redis": {
                "lmcache": on_redis(lambda port: {"type": "resp", "host": "127.0.0.1", "port": port, "num_workers": 2}),
                "splitzip": on_redis(lambda port: plugin(f"redis://127.0.0.1:{port}/0")),
            },
        }
    for pair in results.values():
        pair["ratio"] = round(RAW / pair["splitzip"]["bytes_a_request"], 3)
        pair["added_milliseconds"] = round(
            sum(pair["splitzip"][f"{way}_milliseconds"] - pair["lmcache"][f"{way}_milliseconds"] for way in ("store", "load")),
            1,
        )
    about = {
        "command": "tools/test_engine.sh lmcache",
        "date": time.strftime("%Y-%m-%d"),
        "processor": f"{processor.partition(':')[2].strip()}, {os.cpu_count()} processors",
        "lmcache": importlib.metadata.version("lmcache"),
        "request": f"data/smollm2-135m/gsm8k.safetensors in {len(CHUNKS)} chunks, {RAW} bytes; median of {REQUESTS}",
    }
    # Not standard output: LMCache writes its log there.
    arguments.out.write_text(json.dumps({**about, **results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
