# SPDX-License-Identifier: Apache-2.0
"""What can be set about transfers."""

from __future__ import annotations

import dataclasses
import os

from ..plan import CodecSpeed


def raw_by_environment() -> bool:
    return os.environ.get("SPLITZIP_RAW", "") not in ("", "0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of one side. Times are in seconds."""

    staging_bytes: int = 256 << 20
    """Registered memory of this side: no more is ever used. Where it is full, senders wait."""
    pinned: bool = False
    """Pin it, for caches in the memory of a GPU: frames are then copied at the full speed of its bus."""
    slot_bytes: int = 2 << 20
    """Memory for one frame. What does not fit goes as several frames."""
    slots_per_session: int = 16
    """Receiver: slots that one sender can have under way."""
    timeout: float = 30.0
    """For a request, from its start to its end."""
    connect_timeout: float = 5.0
    resend_interval: float = 0.2
    """A message without an answer is sent again after this time, then after twice as long, and so on."""
    settle_time: float = 0.1
    """Receiver: an announced frame that is not right may still become so in this time; then it is asked for again."""
    attempts: int = 5
    """Sender: a frame is written at most so often."""
    threads: int = 1
    """Threads that encode, or decode, the frames; 0: as many as the machine has processors."""
    checksums: bool = True
    budget_margin: float | None = None
    """Sender: coded frames have budgets (docs/budgets.md). Each is written as long as its tensors alone say, whatever their values: what is
    known of a frame beforehand (`frame_sizes(...).known_bytes`) and this share more, for instance 0.03. One that does not fit goes in mode raw."""
    raw: bool = dataclasses.field(default_factory=raw_by_environment)
    """Kill switch: this side neither sends nor wants coded frames. By default what the variable SPLITZIP_RAW says."""
    breaker: int = 8
    """Sender: after so many refused frames in a row, a session goes on in mode raw."""
    speeds: tuple[CodecSpeed, ...] = ()
    """Sender: how fast frames are coded on the two sides (`splitzip bench`, `load_speeds`). With them a request whose size is known at its
    start goes in the mode that the planner expects to be fastest, which for a short one or on a fast link is raw."""
    link_bytes_per_second: float | None = None
    """Sender: the link's speed for the planner. None: that of the session's own writes so far; nothing is planned before the first ones."""
    shadow: int = 0
    """Sender: one coded frame in so many is decoded and compared before it leaves; if it differs, the session goes on
    in mode raw. 0: none."""

    def __post_init__(self) -> None:
        if self.slot_bytes < 4096 or self.staging_bytes < self.slot_bytes:
            raise ValueError("slot_bytes has to be at least 4096, and staging_bytes at least one slot")
        if not 1 <= self.slots_per_session <= 1024:
            raise ValueError("slots_per_session has to be from 1 to 1024")
        if min(self.attempts, self.breaker) < 1 or min(self.threads, self.shadow) < 0:
            raise ValueError("attempts and breaker have to be at least 1, threads and shadow at least 0")
        if self.budget_margin is not None and not 0 <= self.budget_margin < float("inf"):
            raise ValueError("budget_margin has to be a number that is at least 0")
        if min(self.timeout, self.connect_timeout, self.resend_interval, self.settle_time) <= 0:
            raise ValueError("times have to be positive")
        if self.link_bytes_per_second is not None and not self.link_bytes_per_second > 0:
            raise ValueError("the link's speed has to be positive")
