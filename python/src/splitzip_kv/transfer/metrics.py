# SPDX-License-Identifier: Apache-2.0
"""What one side of transfers has done so far, for operators: docs/transfer.md, "Metrics"."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

try:
    import nvtx  # type: ignore[import-not-found]
except ImportError:
    nvtx = None

PREFIX = "splitzip_transfer_"

_HELP = {
    "requests_total": ("counter", "requests that have ended, by outcome: done, or the code of the error"),
    "frames_total": ("counter", "frames encoded (sender) or verified and decoded (receiver), by coding: coded or raw"),
    "raw_bytes_total": ("counter", "bytes of values in these frames"),
    "wire_bytes_total": ("counter", "bytes of these frames"),
    "routed_frames_total": ("counter", "frames that left by each route to the receiver's memory"),
    "routes_total": ("counter", "sessions whose first frames were timed by several routes, by the one that was chosen"),
    "seconds_total": ("counter", "time that was spent encoding, writing or decoding frames, by stage"),
    "fallbacks_total": ("counter", "times that a session went to mode raw, by reason"),
    "plans_total": ("counter", "requests that were planned, by the mode that was chosen"),
    "events_total": ("counter", "what was noticed and mended or reported, by event"),
    "ratio": ("gauge", "raw bytes over wire bytes of all frames so far"),
    "sessions": ("gauge", "open sessions, by state: coded, or raw"),
    "staging_bytes": ("gauge", "registered memory, by state: used or free"),
}


def trace(name: str) -> contextlib.AbstractContextManager[Any]:
    """An NVTX range where the package nvtx is installed, else nothing."""
    return contextlib.nullcontext() if nvtx is None else nvtx.annotate(name, domain="splitzip")


class Metrics:
    """Sums that only grow, by name and labels. Its endpoint's lock guards it."""

    def __init__(self) -> None:
        self._sums: dict[str, Counter[tuple[tuple[str, str], ...]]] = {}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        self._sums.setdefault(name, Counter())[tuple(labels.items())] += amount  # type: ignore[assignment]

    def add_frame(self, coded: bool, raw_bytes: int, wire_bytes: int, stage: str, seconds: float) -> None:
        coding = "coded" if coded else "raw"
        self.add("frames_total", coding=coding)
        self.add("raw_bytes_total", raw_bytes, coding=coding)
        self.add("wire_bytes_total", wire_bytes, coding=coding)
        self.add("seconds_total", seconds, stage=stage)

    def sum(self, name: str, **labels: str) -> float:
        """Over all entries that have these labels."""
        entries = self._sums.get(name, Counter())
        return sum(amount for entry, amount in entries.items() if labels.items() <= dict(entry).items())

    def text(self, role: str, gauges: Mapping[str, Mapping[str, float]], events: Mapping[str, int]) -> str:
        """Prometheus' text format 0.0.4. `gauges` are values by name and state."""
        found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for name, entries in self._sums.items():
            found[name] = [(dict(labels), amount) for labels, amount in entries.items()]
        found["events_total"] = [({"event": event}, count) for event, count in sorted(events.items())]
        wire = self.sum("wire_bytes_total")
        if wire:
            found["ratio"] = [({}, self.sum("raw_bytes_total") / wire)]
        for name, states in gauges.items():
            found[name] = [({"state": state}, value) for state, value in states.items()]
        lines = []
        for name, (kind, text) in _HELP.items():
            if found.get(name):
                lines += [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}"]
                lines += [_sample(name, {"role": role, **labels}, value) for labels, value in found[name]]
        return "\n".join(lines) + "\n"


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{PREFIX}{name}{{{shown}}} {value:.15g}"
