# SPDX-License-Identifier: Apache-2.0
"""Is it worth encoding this transfer, in which mode, and in slices of which size?

    speeds = load_speeds("speeds.json")  # made by `splitzip bench --json`
    plan = plan_transfer(64 << 20, speeds, link_bytes_per_second=1.25e9, link_seconds=50e-6)
    if plan.speed is not None:
        ...  # encode in plan.speed.mode, plan.slice_bytes at a time

The planner is arithmetic on measured figures and takes some microseconds: ask it for every transfer. Its model is in
`include/splitzip/splitzip_plan.h`.
"""

import enum
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from ._core import Mode
from ._core import plan_transfer as _plan_transfer

__all__ = ["Bound", "CodecSpeed", "Plan", "load_speeds", "plan_transfer"]


class Bound(enum.Enum):
    """What takes longest in a transfer."""

    LINK = 0
    ENCODE = 1
    DECODE = 2


@dataclass(frozen=True)
class CodecSpeed:
    """One way to run the codec, as measured: speeds are of raw bytes, seconds what a call costs beside its bytes."""

    mode: Mode
    ratio: float
    encode_bytes_per_second: float
    decode_bytes_per_second: float
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0
    budget: int = 0
    """Threads or multiprocessors that it occupies; fewer are preferred where that costs nothing."""


@dataclass(frozen=True)
class Plan:
    speed: CodecSpeed | None
    """The fastest way; None for a plain raw transfer without the codec."""
    slice_bytes: int
    slices: int
    seconds: float
    """Predicted; never more than `raw_seconds`."""
    raw_seconds: float
    exposed_seconds: float
    """What encoding and decoding add to the time of the writes alone."""
    bound: Bound
    reason: str


def plan_transfer(
    raw_bytes: int,
    speeds: Sequence[CodecSpeed],
    *,
    link_bytes_per_second: float,
    link_seconds: float = 0.0,
    raw_writes: int = 1,
    smallest_slice_bytes: int = 1 << 16,
    largest_slice_bytes: int = 1 << 28,
    least_gain: float = 0.02,
) -> Plan:
    """The fastest way to move `raw_bytes`. `link_seconds` is what each write costs beside its bytes, `raw_writes` how many writes a
    plain raw transfer takes (one for each page, say). Raises InvalidArgument for a figure that cannot be."""
    rows = [
        (
            int(s.mode),
            s.budget,
            s.ratio,
            s.encode_bytes_per_second,
            s.encode_seconds,
            s.decode_bytes_per_second,
            s.decode_seconds,
        )
        for s in speeds
    ]
    speed, slice_bytes, slices, seconds, raw_seconds, exposed_seconds, bound, reason = _plan_transfer(
        raw_bytes,
        rows,
        link_bytes_per_second,
        link_seconds,
        raw_writes,
        smallest_slice_bytes,
        largest_slice_bytes,
        least_gain,
    )
    chosen = None if speed < 0 else speeds[speed]
    return Plan(chosen, slice_bytes, slices, seconds, raw_seconds, exposed_seconds, Bound(bound), reason)


def load_speeds(path: str | os.PathLike[str]) -> list[CodecSpeed]:
    """What `splitzip bench --json` wrote for one input. Raises ValueError if the file is something else."""
    with open(path, "rb") as file:
        text = file.read()
    try:
        document = json.loads(text)
        return [
            CodecSpeed(
                Mode[result["mode"].upper()],
                result["ratio"],
                result["encode_gb_per_s"]["median"] * 1e9,
                result["decode_gb_per_s"]["median"] * 1e9,
                result["encode_call_seconds"],
                result["decode_call_seconds"],
                document["threads"],
            )
            for result in document["results"]
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)} is not what splitzip bench --json writes: {error!r}") from error
