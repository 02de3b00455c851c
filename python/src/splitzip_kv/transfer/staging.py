# SPDX-License-Identifier: Apache-2.0
"""Registered memory of a fixed size, in slots that hold one frame each."""

from __future__ import annotations

from .engine import Engine, Place, address_of, piece_of
from .options import Options


class Staging:
    """Not synchronised: its owner's lock guards it. `lent`: peers write to it."""

    def __init__(self, engine: Engine, options: Options, *, lent: bool) -> None:
        self.slot_bytes = options.slot_bytes
        self._engine = engine
        count = options.staging_bytes // self.slot_bytes
        self.pieces = engine.allocate(self.slot_bytes, count, pinned=options.pinned, lent=lent)
        # Slots of one piece after those of the other: piece and offset, and which ones of each piece are free.
        self._places = [
            (number, offset)
            for number, piece in enumerate(self.pieces)
            for offset in range(0, piece.nbytes, self.slot_bytes)
        ]
        self._free: list[list[int]] = [[] for _ in self.pieces]
        for slot in reversed(range(len(self._places))):
            self.give_back(slot)

    @property
    def free_count(self) -> int:
        return sum(map(len, self._free))

    def states(self) -> dict[str, float]:
        free = self.free_count * self.slot_bytes
        return {"used": len(self._places) * self.slot_bytes - free, "free": free}

    def take(self) -> int:
        # Last in, first out: what is not needed at the same time is never touched.
        return next(free for free in self._free if free).pop()

    def take_of_each(self, most: int) -> list[int]:
        """So many slots of each piece of memory, or as many as there are."""
        return [free.pop() for free in self._free for _ in range(min(most, len(free)))]

    def give_back(self, slot: int) -> None:
        self._free[self._places[slot][0]].append(slot)

    def address(self, slot: int) -> int:
        number, offset = self._places[slot]
        return address_of(self.pieces[number]) + offset

    def view(self, slot: int, nbytes: int) -> Place:
        """The first bytes of a slot."""
        number, offset = self._places[slot]
        return piece_of(self.pieces[number], offset, nbytes)

    def close(self) -> None:
        for piece in self.pieces:
            self._engine.release(piece)
        self.pieces = []
