# SPDX-License-Identifier: Apache-2.0
"""What the transfer layer needs of a transfer engine: one-sided writes into registered memory, and messages."""

from __future__ import annotations

import abc
import dataclasses
import mmap
import threading
from collections.abc import Mapping, Sequence

import numpy as np

from .. import cuda

Place = np.ndarray | cuda.Array
"""Bytes in one piece, of the host or of a GPU."""


@dataclasses.dataclass(frozen=True)
class Segment:
    """One piece of a write: `length` bytes from a local to a remote address, both in registered memory."""

    local: int
    remote: int
    length: int


class Link(abc.ABC):
    """A connection for messages to one peer. `peer` names it in error messages."""

    peer: str

    @abc.abstractmethod
    def close(self) -> None:
        """Close it on both sides. Closing it again does nothing."""


@dataclasses.dataclass(frozen=True, eq=False)
class Route:
    """A way of frames into slots that a receiver has lent."""

    name: str
    """For operators."""
    slots: frozenset[int]
    """Numbers of the slots that it leads to."""
    places: Mapping[int, Place] | None = None
    """These slots as memory that the encoder may write to, so that nothing is left to do; None: `Engine.write` takes
    frames there."""
    hops: int = 1
    """Copies of such a length that a frame takes until the decoder has it, with those of the receiver."""
    keeps: object = None
    """What has to live as long as the route."""


@dataclasses.dataclass(frozen=True)
class Event:
    """What arrived on a link: a message, or (`message` is None) its end, with the reason."""

    link: Link
    message: bytes | None
    reason: str = ""


class Engine(abc.ABC):
    """One process's end of a transfer engine. All methods may be called from any thread."""

    address: str
    """Where peers connect to."""
    data_address: str
    """Where peers write to."""

    def allocate(self, slot_bytes: int, slots: int, *, pinned: bool, lent: bool) -> list[Place]:
        """Registered memory for so many frames, in one or several pieces of whole slots; `lent`: peers write to it.

        It is host memory unless the engine has frames elsewhere; `release` gives it back. Unless it is pinned, pages
        are taken from the system when they are first used."""
        size = slot_bytes * slots
        memory = cuda.pinned(size) if pinned else np.frombuffer(mmap.mmap(-1, size), np.uint8)
        self.register(memory)
        return [memory]

    def release(self, memory: Place) -> None:
        """Give back what `allocate` gave."""
        assert isinstance(memory, np.ndarray)
        self.unregister(memory)

    def routes(self, data_address: str, slots: Sequence[int], slot_bytes: int) -> list[Route]:
        """The ways to these slots of a peer, by their addresses there; at least one. Raises TransferError."""
        return [Route("write", frozenset(range(len(slots))))]

    @abc.abstractmethod
    def register(self, memory: np.ndarray) -> None:
        """Let the engine read this memory (contiguous bytes), and peers write to it, until `unregister`."""

    @abc.abstractmethod
    def unregister(self, memory: np.ndarray) -> None: ...

    @abc.abstractmethod
    def connect(self, address: str, timeout: float) -> Link:
        """A link to the engine at `address`. Raises TransferError."""

    @abc.abstractmethod
    def write(self, data_address: str, segments: Sequence[Segment], timeout: float, stop: threading.Event) -> None:
        """Write to a peer's memory; returns when the engine reports completion, which nothing here trusts.

        Raises TransferError on failure, and early once `stop` is set; the local memory may be reused in every case.
        """

    @abc.abstractmethod
    def notify(self, link: Link, message: bytes) -> None:
        """Send a message. One that cannot be delivered shows as the end of the link."""

    @abc.abstractmethod
    def receive(self, timeout: float) -> Event | None:
        """The next event of any link, or None after `timeout` seconds or once the engine is closed."""

    @abc.abstractmethod
    def close(self) -> None:
        """End all links and release everything. Memory stays registered until then, at most."""


def address_of(memory: Place) -> int:
    return int(memory.ctypes.data) if isinstance(memory, np.ndarray) else memory.address


def piece_of(memory: Place, offset: int, nbytes: int) -> Place:
    """Some of its bytes."""
    if isinstance(memory, np.ndarray):
        return memory[offset : offset + nbytes]
    return cuda.Array(memory.memory, memory.offset + offset, (nbytes,), "|u1")
