# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode processes whose engine says itself which pages belong to a request (a room): the decode side opens
a room, the prefill side offers pieces of it, and the decode side takes them into its own pages only."""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
from collections.abc import Sequence

import numpy as np

from .. import CodebookSet
from ..transfer import Engine, IncomingRequest, Options, Receiver, Sender, TransferError
from .blocks import Blocks


class NotTaken(Exception):
    """The decode side did not take the offer, and nothing was written: the engine's own way is open."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """`tokens` tokens in `count` pages from page `first` of a room on. Its name is what the prefill side offers."""

    room: int
    first: int
    count: int
    tokens: int

    @property
    def name(self) -> str:
        return f"{self.room}/{self.first}/{self.count}/{self.tokens}"

    @classmethod
    def named(cls, name: str) -> Piece:
        """Raises ValueError for anything that is no such name."""
        return cls(*(int(number) for number in name.split("/")))


@dataclasses.dataclass
class _Room:
    pages: np.ndarray
    incoming: list[tuple[IncomingRequest, int]] = dataclasses.field(default_factory=list)


class DecodeRooms:
    """The decode side. Closes `engine` at its end."""

    def __init__(self, engine: Engine, blocks: Blocks, codebooks: CodebookSet, options: Options) -> None:
        self.counters: collections.Counter[str] = collections.Counter()
        """Of rooms that were closed: received_pieces, received_bytes, received_raw_bytes, failed_pieces."""
        self._blocks = blocks
        self._rooms: dict[int, _Room] = {}
        self._lock = threading.Lock()
        self._receiver = Receiver(engine, codebooks, options, on_offer=self._offered)

    @property
    def address(self) -> str:
        return self._receiver.address

    def open(self, room: int, pages: Sequence[int] | np.ndarray) -> None:
        """From now on pieces of `room` go to these pages, in their order. Opening it again changes nothing."""
        with self._lock:
            self._rooms.setdefault(room, _Room(np.array(pages, np.int32)))

    def close(self, room: int) -> None:
        """On return nothing writes to the pages of `room` any more. Does nothing for one that is not open."""
        with self._lock:
            closed = self._rooms.pop(room, None)
        if closed is None:
            return
        for incoming, raw_bytes in closed.incoming:
            incoming.cancel("the request is over")
            with self._lock:
                if incoming.error is None:
                    self.counters["received_pieces"] += 1
                    self.counters["received_bytes"] += incoming.report.wire_bytes
                    self.counters["received_raw_bytes"] += raw_bytes
                else:
                    self.counters["failed_pieces"] += 1

    def shut_down(self) -> None:
        for room in list(self._rooms):
            self.close(room)
        self._receiver.close()

    def _offered(self, name: str) -> None:
        piece = Piece.named(name)
        page_tokens = self._blocks.block_tokens
        with self._lock:
            room = self._rooms.get(piece.room)
            if room is None:
                raise ValueError(f"room {piece.room} is not open")
            end = piece.first + piece.count
            if not 0 <= piece.first < end <= len(room.pages) or not 0 < piece.tokens <= piece.count * page_tokens:
                raise ValueError(f"room {piece.room} has {len(room.pages)} pages, offered is {piece}")
            parts, _ = self._blocks.targets(room.pages[piece.first : end], piece.tokens)
            room.incoming.append((self._receiver.expect(name, parts), self._blocks.raw_bytes(piece.tokens)))


class PrefillRooms:
    """The prefill side. Closes `engine` at its end."""

    def __init__(self, engine: Engine, blocks: Blocks, codebooks: CodebookSet, options: Options) -> None:
        self.counters: collections.Counter[str] = collections.Counter()
        """sent_pieces, sent_bytes, sent_raw_bytes, send_microseconds, failed_pieces, untaken_pieces."""
        self._blocks = blocks
        self._find = codebooks.find
        self._lock = threading.Lock()
        self._sender = Sender(engine, codebooks, options)

    @property
    def shadow_mismatches(self) -> int:
        return self._sender.counters["shadow_mismatches"]

    def send(self, address: str, piece: Piece, pages: Sequence[int] | np.ndarray) -> None:
        """Encode the tokens of `piece`, which are in these pages here, and return when the decode side at `address`
        has them and has verified them.

        Raises NotTaken, before anything is written; or TransferError: then the decode side's pages hold anything. In
        every case nothing reads the pages any more."""
        begin = time.perf_counter()
        taken = False
        try:
            outgoing = self._sender.start(address, piece.name)
            try:
                outgoing.send(self._blocks.parts(pages, piece.tokens, self._find))
                wire_bytes = outgoing.finish().wire_bytes
            finally:
                taken = outgoing.accepted
                outgoing.cancel()
        except TransferError as error:
            self._count({"failed_pieces" if taken else "untaken_pieces": 1})
            if taken:
                raise
            raise NotTaken(str(error)) from error
        self._count(
            {
                "sent_pieces": 1,
                "sent_bytes": wire_bytes,
                "sent_raw_bytes": self._blocks.raw_bytes(piece.tokens),
                "send_microseconds": int(1e6 * (time.perf_counter() - begin)),
            }
        )

    def shut_down(self) -> None:
        self._sender.close()

    def _count(self, counts: dict[str, int]) -> None:
        with self._lock:
            self.counters.update(counts)
