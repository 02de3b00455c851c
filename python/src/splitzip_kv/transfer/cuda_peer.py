# SPDX-License-Identifier: Apache-2.0
"""Memory of GPUs that the processes of one host share (CUDA IPC): over NVLink, PCIe, inside of one GPU, or over pinned
host memory.

Slots are in the memory of the receiver's GPU, and frames never come to the host, unless they go over pinned host
memory. Messages go over a TCP connection of our own, because the end of a process shows there at once.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
import time
import uuid
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import SplitzipError, _core, cuda
from .control import TcpControlledEngine
from .engine import Place, Route, Segment, address_of
from .errors import Code, TransferError
from .shared_host import SharedHost

log = logging.getLogger("splitzip_kv.transfer")

ROUTES = ("copy", "direct", "host")
# What CUDA gives out by: allocations of whole ones share no memory with others, so that nobody else's is exported.
GRANULE = 2 << 20


def check_device(device: int) -> None:
    """Raises TransferError unless there is such a GPU, and the package can use it."""
    problem = cuda.problem()
    if problem is None and not 0 <= device < cuda.device_count():
        problem = f"there is no GPU {device}, only {cuda.device_count()} of them"
    if problem is not None:
        raise TransferError(Code.TRANSPORT, problem)


@dataclasses.dataclass(frozen=True)
class _Piece:
    """Slots in one piece of memory; `base` is its address in the process that has it."""

    base: int
    memory: cuda.Memory | np.ndarray

    def slot(self, address: int, nbytes: int) -> Place | None:
        offset = address - self.base
        if offset < 0 or offset + nbytes > self.memory.nbytes:
            return None
        if isinstance(self.memory, np.ndarray):
            return self.memory[offset : offset + nbytes]
        return cuda.Array(self.memory, offset, (nbytes,), "|u1")


class _Lent:
    """What a receiver lends, as this process reaches it; unmapped when nobody refers to it any more."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.on_gpu: _Piece | None = None
        self.on_host: _Piece | None = None
        self.shared_host: SharedHost | None = None
        self.stream = cuda.Stream(device)
        self.lock = threading.Lock()

    def slot(self, address: int, nbytes: int) -> Place | None:
        for piece in (self.on_gpu, self.on_host):
            place = piece.slot(address, nbytes) if piece is not None else None
            if place is not None:
                return place
        return None


_OWN: weakref.WeakValueDictionary[str, _Lent] = weakref.WeakValueDictionary()
"""What engines of this process lend: a process cannot map its own memory."""


def _address(lent: _Lent, segment: Segment) -> int:
    place = lent.slot(segment.remote, segment.length)
    if place is None:
        raise TransferError(
            Code.TRANSPORT, f"{segment.length} bytes at {segment.remote:#x} are not the receiver's to lend"
        )
    return address_of(place)


class CudaPeerEngine(TcpControlledEngine):
    def __init__(self, device: int = 0, host: str = "127.0.0.1", *, routes: Sequence[str] = ROUTES) -> None:
        """`device` is the GPU that has this side's slots. The two sides may have the same one.

        `routes` are those that this side offers; a session takes one that both offer, by what its first frames take:

        - "copy": frames are encoded to this side's memory, and the copy engine takes them to the receiver's;
        - "direct": the encoder writes them to the receiver's memory. One that is damaged there fails its request,
          because it cannot be written again;
        - "host": frames are copied to pinned host memory that both sides map, for GPUs that do not reach each other. A
          receiver has a third of its staging memory there.

        Raises TransferError where there is no such GPU, or the package has no CUDA."""
        if not routes or set(routes) - set(ROUTES):
            raise ValueError(f"routes are some of {', '.join(ROUTES)}")
        check_device(device)
        self.device = device
        self._names = tuple(name for name in ROUTES if name in routes)
        super().__init__(host)
        self._lock = threading.Lock()
        self._lent: _Lent | None = None
        self._host: SharedHost | None = None
        self._peers: weakref.WeakValueDictionary[str, _Lent] = weakref.WeakValueDictionary()
        self.data_address = ""

    def allocate(self, slot_bytes: int, slots: int, *, pinned: bool, lent: bool) -> list[Place]:
        if slot_bytes % 256 != 0:
            raise ValueError("with this engine slot_bytes has to be a multiple of 256")
        if not lent:
            return [cuda.Array(cuda.Memory(slot_bytes * slots, self.device), 0, (slot_bytes * slots,), "|u1")]
        on_host = slots // 3 if "host" in self._names else 0
        on_gpu = slots - on_host if self._names != ("host",) else 0
        lending = self._lent = _Lent(self.device)
        about: dict[str, Any] = {"token": uuid.uuid4().hex}
        pieces: list[Place] = []
        if on_gpu:
            size = on_gpu * slot_bytes
            memory = cuda.Memory(-(-size // GRANULE) * GRANULE, self.device)
            try:
                about["gpu"] = [memory.ipc_handle().hex(), memory.address, memory.nbytes]
            except SplitzipError as error:
                if not on_host:
                    raise TransferError(Code.TRANSPORT, f"GPU {self.device} does not share memory: {error}") from error
                log.warning("GPU %d does not share memory, so frames go over the host: %s", self.device, error)
            else:
                pieces.append(cuda.Array(memory, 0, (size,), "|u1"))
                lending.on_gpu = _Piece(memory.address, memory)
        if "host" in self._names:
            shared = self._host = SharedHost.create((on_host if pieces else slots) * slot_bytes)
            pieces.append(shared.memory)
            lending.on_host = _Piece(shared.address, shared.memory)
            about["host"] = [*shared.name, shared.address, shared.memory.nbytes]
        _OWN[about["token"]] = lending
        self.data_address = json.dumps(about, separators=(",", ":"))
        return pieces

    def release(self, memory: Place) -> None:
        self._lent = None
        if isinstance(memory, np.ndarray) and self._host is not None:
            self._host.close()
            self._host = None

    def routes(self, data_address: str, slots: Sequence[int], slot_bytes: int) -> list[Route]:
        peer = self._peer(data_address)
        places = {number: peer.slot(address, slot_bytes) for number, address in enumerate(slots)}
        on_gpu = {number: place for number, place in places.items() if isinstance(place, cuda.Array)}
        on_host = frozenset(number for number, place in places.items() if isinstance(place, np.ndarray))
        # Memory of another process was mapped for this side's GPU, which does not hold for other GPUs of this process.
        found = {
            "copy": Route("copy", frozenset(on_gpu), keeps=peer),
            "direct": Route("direct", frozenset(on_gpu if peer.device == self.device else ()), on_gpu, keeps=peer),
            "host": Route("host", on_host, hops=2, keeps=peer),
        }
        routes = [found[name] for name in self._names if found[name].slots]
        if not routes:
            raise TransferError(
                Code.TRANSPORT, f"GPU {self.device} reaches no memory of the receiver by {', '.join(self._names)}"
            )
        return routes

    def _peer(self, data_address: str) -> _Lent:
        with self._lock:
            peer = self._peers.get(data_address)
            if peer is None:
                try:
                    peer = self._peers[data_address] = self._reach(json.loads(data_address))
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    raise TransferError(
                        Code.PROTOCOL, f"{data_address!r} is not where a CudaPeerEngine is written to: {error!r}"
                    ) from error
            return peer

    def _reach(self, about: dict[str, Any]) -> _Lent:
        own = _OWN.get(about["token"])
        if own is not None:
            return own
        peer = _Lent(self.device)
        if about.get("gpu") and {"copy", "direct"} & set(self._names):
            handle, base, nbytes = about["gpu"]
            try:
                peer.on_gpu = _Piece(int(base), cuda.PeerMemory(bytes.fromhex(handle), int(nbytes), self.device))
            except SplitzipError as error:
                log.warning("GPU %d does not reach the receiver's GPU: %s", self.device, error)
        if about.get("host") and "host" in self._names:
            process, file, base, nbytes = about["host"]
            try:
                shared = SharedHost.open(process, file, int(nbytes))
                peer.on_host, peer.shared_host = _Piece(int(base), shared.memory), shared
            except (SplitzipError, OSError) as error:
                log.warning("the receiver's host memory is not to be had: %s", error)
        return peer

    def register(self, memory: np.ndarray) -> None:
        """Does nothing: any memory can be read, and `allocate` alone makes memory that is written to."""

    def unregister(self, memory: np.ndarray) -> None:
        """Does nothing."""

    def write(self, data_address: str, segments: Sequence[Segment], timeout: float, stop: threading.Event) -> None:
        # Copies of memory take milliseconds; one that has begun is waited for, because it reads the caller's memory.
        deadline = time.monotonic() + timeout
        peer = self._peer(data_address)
        with peer.lock:
            if stop.is_set() or time.monotonic() > deadline:
                raise TransferError(Code.TIMEOUT, "write given up")
            try:
                try:
                    for segment in segments:
                        _core.cuda_copy(_address(peer, segment), segment.local, segment.length, peer.stream.handle)
                finally:
                    peer.stream.synchronize()
            except SplitzipError as error:
                raise TransferError(Code.TRANSPORT, f"a copy to the receiver's memory failed: {error}") from error
