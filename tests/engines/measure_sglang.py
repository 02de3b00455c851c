#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A prefill and two decode servers of SGLang on the loopback interface, one decode server without our plugin and one
with it, as JSON.

tools/test_engine.sh sglang runs it after the tests. A request is a prompt that the prefill server prefills and a decode
server answers with one token; requests follow each other, to the two decode servers in turns.
"""

import argparse
import json
from pathlib import Path

from engine_cases import measured, where
from sglang_cases import CODEBOOKS, Server, disaggregated, prompts, servers

REQUESTS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    settings = {"codebooks": str(CODEBOOKS)}
    with servers(Server("prefill", settings), Server("decode"), Server("decode", settings)) as (prefill, plain, ours):
        ways = {
            "raw": lambda prompt: disaggregated(prefill, plain, prompt, 1),
            "coded": lambda prompt: disaggregated(prefill, ours, prompt, 1),
        }
        for ask in ways.values():
            ask(prompts(REQUESTS + 1)[-1])  # connections, memory
        before = prefill.metrics()
        times = measured(ways, REQUESTS)
        new = {name: value - before.get(name, 0) for name, value in prefill.metrics().items()}
    if new["splitzip_failed_pieces"] or new["splitzip_untaken_pieces"]:
        raise SystemExit("a cache did not go coded")
    results = where("tools/test_engine.sh sglang") | {
        "sglang": "0.5.23",
        "requests": REQUESTS,
        "raw_bytes": int(new["splitzip_sent_raw_bytes"]),
        "wire_bytes": int(new["splitzip_sent_bytes"]),
        "ratio": round(new["splitzip_sent_raw_bytes"] / new["splitzip_sent_bytes"], 3),
        "send_milliseconds_a_chunk": round(new["splitzip_send_microseconds"] / 1000 / new["splitzip_sent_pieces"], 1),
        **times,
    }
    out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
