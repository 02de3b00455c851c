# SPDX-License-Identifier: Apache-2.0
"""Memory of GPUs, and what copies it: part of splitzip_kv.cuda."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from . import _core
from ._errors import InvalidArgument
from ._layout import bytes_of, device_memory_of


def device_count() -> int:
    """How many GPUs this process sees. Raises DeviceError where the driver says why there is none."""
    return _core.cuda_device_count()


class Memory:
    """`nbytes` of a GPU's memory, at a multiple of 256. Freed with the object, which waits for the device.

    Raises OutOfMemory or DeviceError. Other frameworks take it by `__cuda_array_interface__`.
    """

    def __init__(self, nbytes: int, device: int = 0) -> None:
        self._memory = _core.CudaMemory(max(nbytes, 1), device)
        self.address = self._memory.address
        self.nbytes = nbytes
        self.device = device

    def ipc_handle(self) -> bytes:
        """What `PeerMemory` in another process of this host takes."""
        return _core.cuda_ipc_handle(self.address)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.address, False), "version": 3}


class PeerMemory(Memory):
    """`nbytes` of a GPU's memory that another process of this host has as a `Memory`, made of its `ipc_handle`.

    Kernels and copies of `device` reach it. Whoever has it must keep it while it is mapped, which ends with the
    object. Raises DeviceError where it cannot be mapped: in the process that has it, or on a GPU that cannot reach the
    other one's memory.
    """

    def __init__(self, handle: bytes, nbytes: int, device: int = 0) -> None:
        self._mapped = _core.CudaPeerMemory(handle, device)
        self.address = self._mapped.address
        self.nbytes = nbytes
        self.device = device


@dataclasses.dataclass(frozen=True)
class Array:
    """Part of a Memory with a shape, like a numpy array in C order, for `Layout`."""

    memory: Memory
    offset: int
    shape: tuple[int, ...]
    typestr: str

    @property
    def address(self) -> int:
        return self.memory.address + self.offset

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.typestr).itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.typestr, "data": (self.address, False), "version": 3}


def pinned(nbytes: int, device: int = 0) -> np.ndarray:
    """Bytes of pinned host memory, which GPUs read and write, too: copies from and to it are fast and asynchronous."""
    return _core.cuda_pinned(max(nbytes, 1), device)[:nbytes]


class Stream:
    """A stream of its own, which waits for work of the default stream, and the default stream for it."""

    def __init__(self, device: int = 0) -> None:
        self._stream = _core.CudaStream(device)
        self.handle = self._stream.handle

    def synchronize(self) -> None:
        """Wait for all that was launched on it. Raises DeviceError if some of it failed."""
        self._stream.synchronize()


def place_of(memory: Any) -> tuple[int, int]:
    """Address and bytes of anything in one piece in the memory of a GPU or of the host; an address is taken as it
    is."""
    if isinstance(memory, int):
        return memory, 0
    found = device_memory_of(memory)
    if found is None:
        view = np.frombuffer(bytes_of(memory), np.uint8)
        return int(view.ctypes.data), view.nbytes
    array = found[0]
    step = array.itemsize
    for length, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if length != 1 and stride != step:
            raise TypeError("the memory has to be in one piece")
        step *= length
    return array.address, step


def copy(destination: Any, source: Any, stream: int = 0) -> None:
    """Copy between memory in one piece, of a GPU or of the host, in stream order; waits where host memory is not
    pinned."""
    (to, room), (of, size) = place_of(destination), place_of(source)
    if size > room:
        raise InvalidArgument(f"{size} bytes do not fit into {room}")
    _core.cuda_copy(to, of, size, stream)
