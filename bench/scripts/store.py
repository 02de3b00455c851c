#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Put and get the sample cache, as it is and coded, with a Mooncake Store on the loopback interface.

    python bench/scripts/store.py [--repeat N] > bench/results/store.json

Needs splitzip-kv, safetensors and the Mooncake wheel; starts a mooncake_master of its own.
"""

import argparse
import json
import os
import pathlib
import platform
import socket
import statistics
import subprocess
import sys
import time

from splitzip_kv import CodebookSet
from splitzip_kv.store import CacheStore, StoreOptions
from splitzip_kv.store.mooncake import MooncakeValues
from splitzip_kv.transfer.demo.cache import Pool, load_cache

DATA = pathlib.Path(__file__).parents[2] / "data" / "smollm2-135m"


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.partition(':')[2].strip()}, {os.cpu_count()} processors"
    return platform.processor()


def measured(values, source: Pool, target: Pool, codebooks: CodebookSet, raw: bool, repeat: int) -> dict:
    name = "raw" if raw else "coded"
    store = CacheStore(values, codebooks, StoreOptions(raw=raw), prefix=f"{name}/")
    parts = [source.part(n, codebooks.find(tensor.name)) for n, tensor in enumerate(source.cache)]
    wanted = [target.part(n) for n in range(len(target.cache))]
    put, get = [], []
    for number in range(repeat):
        begin = time.perf_counter()
        stored = store.put(f"value {number}", parts)
        put.append(time.perf_counter() - begin)
        target.clear()
        begin = time.perf_counter()
        found = store.get(f"value {number}", wanted)
        get.append(time.perf_counter() - begin)
        if not found or target.different_values() or target.touched_bytes():
            raise SystemExit("what came back is not what was put")
        store.remove(f"value {number}")
    return {
        "stored_bytes": stored,
        "put_milliseconds": round(1000 * statistics.median(put), 2),
        "get_milliseconds": round(1000 * statistics.median(get), 2),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repeat", type=int, default=30)
    repeat = arguments.parse_args().repeat
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        port, metrics = one.getsockname()[1], two.getsockname()[1]
    command = [pathlib.Path(sys.executable).with_name("mooncake_master"), "--rpc_address=127.0.0.1"]
    command += [f"--rpc_port={port}", f"--metrics_port={metrics}", "--enable_http_metadata_server=false"]
    master = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1.0)
        values = MooncakeValues(f"127.0.0.1:{port}")
        cache, codebooks = load_cache(DATA / "gsm8k.safetensors"), CodebookSet.load(DATA / "wikitext2.szcb")
        source, target = Pool(cache, 16, seed=1), Pool(cache, 16, seed=2)
        source.fill()
        result = {
            "command": "python bench/scripts/store.py",
            "processor": processor(),
            "date": time.strftime("%Y-%m-%d"),
            "cache": "data/smollm2-135m/gsm8k.safetensors, pages of 16 tokens, one value",
            "raw_bytes": sum(source.part(n).raw_bytes for n in range(len(cache))),
            "repetitions": repeat,
            "raw": measured(values, source, target, codebooks, True, repeat),
            "coded": measured(values, source, target, codebooks, False, repeat),
        }
        values.close()
    finally:
        master.terminate()
        master.wait()
    result["ratio"] = round(result["raw_bytes"] / result["coded"]["stored_bytes"], 3)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
