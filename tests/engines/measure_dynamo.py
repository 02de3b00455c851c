#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A cache read by a decode worker of Dynamo's runtime from a prefill worker, over NIXL on the loopback interface, raw
and coded in turns, as JSON. tools/test_engine.sh dynamo runs it after the tests."""

import argparse
import asyncio
import json
import statistics
import tempfile
from pathlib import Path

from dynamo_cases import CODEBOOKS, Decode, prefill_worker
from engine_cases import where
from splitzip_kv import CodebookSet

REQUESTS = 20


async def measured() -> dict:
    decode = Decode(CodebookSet.load(CODEBOOKS))
    await decode.connect()
    ways = {"raw": False, "coded": True}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    wire_bytes = {}
    for number in range(REQUESTS + 1):
        for name, coded in ways.items():
            await decode.fetch(coded)
            if number:  # the first one connects
                seconds[name].append(decode.seconds)
            wire_bytes[name] = decode.wire_bytes
            if decode.pool.different_values():
                raise SystemExit("what arrived is not what was sent")
    raw_bytes = sum(tensor.values.nbytes for tensor in decode.pool.cache)
    return {
        "requests": REQUESTS,
        "raw_bytes": raw_bytes,
        "ratio": round(raw_bytes / wire_bytes["coded"], 3),
        **{
            name: {
                "wire_bytes": wire_bytes[name],
                "median_milliseconds_a_request": round(1000 * statistics.median(taken), 1),
                "requests_a_second": round(len(taken) / sum(taken), 1),
            }
            for name, taken in seconds.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder, prefill_worker(Path(folder)):
        results = asyncio.run(asyncio.wait_for(measured(), 300))
    versions = {"ai-dynamo-runtime": "1.6.1", "nixl": "1.3.2"}
    out.write_text(json.dumps(where("tools/test_engine.sh dynamo") | versions | results, indent=2) + "\n")


if __name__ == "__main__":
    main()
