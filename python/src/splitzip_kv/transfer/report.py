# SPDX-License-Identifier: Apache-2.0
"""Where the time of a transfer went."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Span:
    """Work on one chunk, in seconds of the machine's monotonic clock, which all its processes share."""

    chunk: int
    begin: float
    end: float


@dataclasses.dataclass
class TransferReport:
    """What one side did for a request: a sender fills `encode` and `write`, a receiver `decode`."""

    frames: int = 0
    wire_bytes: int = 0
    encode: list[Span] = dataclasses.field(default_factory=list)
    write: list[Span] = dataclasses.field(default_factory=list)
    decode: list[Span] = dataclasses.field(default_factory=list)


def busy(spans: list[Span]) -> float:
    """Seconds of work, overlapping or not."""
    return sum(span.end - span.begin for span in spans)


def wall(*stages: list[Span]) -> float:
    """Seconds from the first begin to the last end."""
    spans = [span for stage in stages for span in stage]
    return max(span.end for span in spans) - min(span.begin for span in spans) if spans else 0.0
