# SPDX-License-Identifier: Apache-2.0
"""NIXL with its UCX backend: TCP, shared memory or RDMA, whatever UCX finds between the two sides.

It moves the frames. Messages go over a TCP connection of our own, because the end of a process shows there at once.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import cuda
from .control import TcpControlledEngine
from .cuda_peer import check_device
from .engine import Place, Segment, address_of
from .errors import Code, TransferError

_LENGTH = struct.Struct("<I")
MAX_METADATA = 1 << 24
GIVE_UP = 10.0  # seconds that a write which is to end may take to do so


class _Metadata:
    """Tells who connects what NIXL needs to know of this process's registered memory, as it is at that time."""

    def __init__(self, host: str, current: Any) -> None:
        self._listener = socket.create_server((host, 0))
        self._current = current
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, name="splitzip-nixl", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), connection:
                connection.settimeout(2.0)
                data = self._current()
                connection.sendall(_LENGTH.pack(len(data)) + data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _fetch(address: str, timeout: float) -> bytes:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout) as connection:
        data, wanted = bytearray(), _LENGTH.size
        while len(data) < wanted:
            piece = connection.recv(wanted - len(data))
            if not piece:
                raise ConnectionError("closed in the middle")
            data += piece
            if len(data) == _LENGTH.size:
                wanted += _LENGTH.unpack(data)[0]
                if wanted > MAX_METADATA:
                    raise ConnectionError(f"{wanted} bytes of metadata")
        return bytes(data[_LENGTH.size :])


def _kind(device: int | None) -> str:
    """What NIXL calls such memory."""
    return "DRAM" if device is None else "VRAM"


def _device_of(data_address: str) -> int | None:
    number = data_address.partition("/")[2]
    return int(number) if number else None


class NixlEngine(TcpControlledEngine):
    def __init__(self, host: str = "127.0.0.1", *, device: int | None = None, backend: str = "UCX") -> None:
        """`host` is where peers reach this process. UCX chooses the transport; its variables (UCX_TLS, UCX_NET_DEVICES) hold.

        With `device` this side's frames are in the memory of that GPU, and never come to the host where UCX finds a way
        between the two sides' memories; the other side may have them in host memory.

        Raises TransferError where NIXL is not installed or cannot start, and where there is no such GPU."""
        if device is not None:
            check_device(device)
        try:
            from nixl._api import nixl_agent, nixl_agent_config  # type: ignore[import-not-found]
        except ImportError as error:
            raise TransferError(
                Code.TRANSPORT, f"NIXL is not usable ({error}); install nixl, nixl-cu13 or nixl-cu12, and torch"
            ) from error
        try:
            self._agent = nixl_agent(f"splitzip-{uuid.uuid4()}", nixl_agent_config(backends=[backend]))
        except Exception as error:  # NIXL's exceptions have no common base
            raise TransferError(Code.TRANSPORT, f"NIXL cannot start with backend {backend}: {error!r}") from error
        if backend not in self._agent.backends:
            raise TransferError(Code.TRANSPORT, f"NIXL has no backend {backend}")
        self._backend = backend
        self._device = device
        self._lock = threading.Lock()
        self._registered: dict[int, Any] = {}
        self._peers: dict[str, str] = {}
        super().__init__(host)
        self._metadata = _Metadata(host, self._own_metadata)
        # Whose memory lent slots are in is a part of where they are.
        self.data_address = self._metadata.address + ("" if device is None else f"/{device}")

    def _own_metadata(self) -> bytes:
        with self._lock:
            return bytes(self._agent.get_agent_metadata())

    def allocate(self, slot_bytes: int, slots: int, *, pinned: bool, lent: bool) -> list[Place]:
        if self._device is None:
            return super().allocate(slot_bytes, slots, pinned=pinned, lent=lent)
        if slot_bytes % 256 != 0:
            raise ValueError("with memory of a GPU slot_bytes has to be a multiple of 256")
        size = slot_bytes * slots
        memory = cuda.Array(cuda.Memory(size, self._device), 0, (size,), "|u1")
        self._register(memory, self._device)
        return [memory]

    def release(self, memory: Place) -> None:
        self.unregister(memory)

    def register(self, memory: np.ndarray) -> None:
        self._register(memory, None)

    def _register(self, memory: Place, device: int | None) -> None:
        region = [(address_of(memory), memory.nbytes, device or 0, "")]
        with self._lock:
            try:
                self._registered[address_of(memory)] = self._agent.register_memory(
                    region, _kind(device), [self._backend]
                )
            except Exception as error:
                raise TransferError(Code.TRANSPORT, f"NIXL cannot register {memory.nbytes} bytes: {error!r}") from error

    def unregister(self, memory: Place) -> None:
        with self._lock:
            region = self._registered.pop(address_of(memory), None)
            if region is not None:
                self._agent.deregister_memory(region)

    def write(self, data_address: str, segments: Sequence[Segment], timeout: float, stop: threading.Event) -> None:
        deadline = time.monotonic() + timeout
        try:
            peer = self._peer(data_address, max(timeout, 0.01))
            handle = self._start(peer, _device_of(data_address), segments)
        except TransferError:
            raise
        except Exception as error:
            self._forget(data_address)
            raise TransferError(Code.TRANSPORT, f"NIXL cannot write to {data_address}: {error!r}") from error
        state = self._finish(handle, deadline, stop)
        if state == "PROC":
            raise TransferError(Code.TIMEOUT, f"write to {data_address} given up")
        if state != "DONE":
            self._forget(data_address)
            raise TransferError(Code.TRANSPORT, f"NIXL cannot write to {data_address} (state {state})")

    def _peer(self, data_address: str, timeout: float) -> str:
        with self._lock:
            known = self._peers.get(data_address)
        if known is not None:
            return known
        data = _fetch(data_address.partition("/")[0], timeout)
        with self._lock:
            name = self._agent.add_remote_agent(data)
            self._peers[data_address] = name = name.decode() if isinstance(name, bytes) else str(name)
        return name

    def _forget(self, data_address: str) -> None:
        """What is known of a peer may be of an earlier state of it: the next write asks again."""
        with self._lock:
            name = self._peers.pop(data_address, None)
            if name is not None:
                with contextlib.suppress(Exception):
                    self._agent.remove_remote_agent(name)

    def _start(self, peer: str, device: int | None, segments: Sequence[Segment]) -> Any:
        own = self._device
        with self._lock:
            here = [(segment.local, segment.length, own or 0) for segment in segments]
            there = [(segment.remote, segment.length, device or 0) for segment in segments]
            local = self._agent.get_xfer_descs(here, _kind(own))
            remote = self._agent.get_xfer_descs(there, _kind(device))
            handle = self._agent.initialize_xfer("WRITE", local, remote, peer, b"", [self._backend])
            try:
                if self._agent.transfer(handle) == "ERR":
                    raise RuntimeError("the transfer did not start")
            except Exception:
                with contextlib.suppress(Exception):
                    self._agent.release_xfer_handle(handle)
                raise
            return handle

    def _finish(self, handle: Any, deadline: float, stop: threading.Event) -> str:
        """Waits for the end of a write. One that is given up is aborted, and waited for all the same: it reads the caller's memory."""
        pause, last = 20e-6, None
        while True:
            with self._lock:
                try:
                    state = str(self._agent.check_xfer_state(handle))
                except Exception:  # of a peer that is gone
                    state = "ERR"
                now = time.monotonic()
                if last is None and (stop.is_set() or now > deadline):
                    last = now + GIVE_UP
                if state != "PROC" or last is not None:
                    try:
                        self._agent.release_xfer_handle(handle)
                        return state
                    except Exception:
                        if now > (last or deadline):
                            return state
            time.sleep(pause)
            pause = min(pause * 1.2, 1e-3)

    def close(self) -> None:
        super().close()
        self._metadata.close()
        with self._lock:
            for region in self._registered.values():
                with contextlib.suppress(Exception):
                    self._agent.deregister_memory(region)
            self._registered.clear()
