# SPDX-License-Identifier: Apache-2.0
"""What the live tests of engines ask, and how long the answers take."""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODEBOOKS = ROOT / "data" / "smollm2-135m" / "wikitext2.szcb"

TEXTS = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE",
    "docs/format.md",
    "docs/python.md",
    "docs/transfer.md",
    "docs/command.md",
    "docs/ratio.md",
    "docs/store.md",
    "tools/test.sh",
    "tools/dump_kv.py",
    "src/cpu/encode.cpp",
]


def prompts(count: int = 20) -> list[str]:
    """Prose, tables, shell, Python and C++ of this repository, each from another place and of another length: most
    have some 200 tokens."""
    made = []
    for number in range(count):
        text = (ROOT / TEXTS[number % len(TEXTS)]).read_text(encoding="utf-8")
        begin = (number * 997) % max(len(text) - 2400, 1)
        # A block and something more; of every fifth, several blocks.
        made.append(text[begin : begin + (1000 if number % 10 == 9 else 700 + 3 * number)])
    return made


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def measured(ways: dict[str, Callable[[str], object]], count: int) -> dict:
    """Ask `count` prompts each way, in turns and in another order each time, so that other work on the machine strikes
    all ways alike; the way "coded" is compared with "raw"."""
    asked = prompts(count)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number, prompt in enumerate(asked):
        for name in sorted(ways, reverse=bool(number % 2)):
            begin = time.perf_counter()
            ways[name](prompt)
            seconds[name].append(time.perf_counter() - begin)
    added = [coded - raw for raw, coded in zip(seconds["raw"], seconds["coded"], strict=True)]
    return {
        **{
            name: {
                "median_milliseconds_a_request": round(1000 * statistics.median(taken), 1),
                "requests_a_second": round(count / sum(taken), 3),
                "seconds": [round(one, 3) for one in taken],
            }
            for name, taken in seconds.items()
        },
        "median_added_milliseconds_a_request": round(1000 * statistics.median(added), 1),
    }


def where(command: str) -> dict:
    """What a result has to say of where it is from."""
    [processor, *_] = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "processor": f"{processor.partition(':')[2].strip()}, {os.cpu_count()} processors",
        "model": "SmolLM2-135M-Instruct, BF16",
    }
