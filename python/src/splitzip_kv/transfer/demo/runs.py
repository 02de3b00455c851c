# SPDX-License-Identifier: Apache-2.0
"""What a run of a transfer took, of the spans that its two processes report; and how a command reports its result."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

from .processes import WorkerFailed


def summary(run: dict[str, Any]) -> dict[str, Any]:
    stages = {name: run.pop(name) for name in ("encode", "write", "decode")}
    all_spans = [span for spans in stages.values() for span in spans]
    seconds = {name: sum(end - begin for begin, end in spans) for name, spans in stages.items()}
    total = max(end for _, end in all_spans) - min(begin for begin, _ in all_spans)
    return {
        **run,
        "seconds": total,
        "encode_seconds": seconds["encode"],
        "write_seconds": seconds["write"],
        "decode_seconds": seconds["decode"],
        # Share of the work that another stage's work hid.
        "overlap": max(1 - total / sum(seconds.values()), 0.0),
    }


def median_run(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The run of median time."""
    median = statistics.median(run["seconds"] for run in runs)
    return min(runs, key=lambda run: abs(run["seconds"] - median))


def report(work: Callable[[], dict[str, Any]], text_of: Callable[[dict[str, Any]], str], as_json: bool) -> int:
    """Do the work of a command, print its result, and return the status that the command exits with."""
    try:
        result = work()
    except WorkerFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps(result, indent=2) if as_json else text_of(result))
    return 0
