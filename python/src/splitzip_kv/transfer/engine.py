# SPDX-License-Identifier: Apache-2.0
"""What the transfer layer needs of a transfer engine: one-sided writes into registered memory, and messages."""

from __future__ import annotations

import abc
import dataclasses
import threading
from collections.abc import Sequence

import numpy as np


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


def address_of(memory: np.ndarray) -> int:
    return int(memory.ctypes.data)
