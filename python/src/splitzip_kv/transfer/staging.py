# SPDX-License-Identifier: Apache-2.0
"""Registered memory of a fixed size, in slots that hold one frame each."""

from __future__ import annotations

import mmap

import numpy as np

from .. import cuda
from .engine import Engine, address_of
from .options import Options


class Staging:
    """Not synchronised: its owner's lock guards it. Unless it is pinned, pages are taken from the system when they are
    first used."""

    def __init__(self, engine: Engine, options: Options) -> None:
        self.slot_bytes = options.slot_bytes
        count = options.staging_bytes // self.slot_bytes
        size = count * self.slot_bytes
        self._engine = engine
        self._memory = cuda.pinned(size) if options.pinned else np.frombuffer(mmap.mmap(-1, size), np.uint8)
        self._free = list(range(count - 1, -1, -1))
        engine.register(self._memory)

    @property
    def free_count(self) -> int:
        return len(self._free)

    def states(self) -> dict[str, float]:
        free = self.free_count * self.slot_bytes
        return {"used": self._memory.nbytes - free, "free": free}

    def take(self) -> int:
        # Last in, first out: what is not needed at the same time is never touched.
        return self._free.pop()

    def give_back(self, slot: int) -> None:
        self._free.append(slot)

    def address(self, slot: int) -> int:
        return address_of(self._memory) + slot * self.slot_bytes

    def view(self, slot: int) -> np.ndarray:
        start = slot * self.slot_bytes
        return self._memory[start : start + self.slot_bytes]

    def close(self) -> None:
        self._engine.unregister(self._memory)
