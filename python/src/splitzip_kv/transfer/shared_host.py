# SPDX-License-Identifier: Apache-2.0
"""Pinned host memory that processes of one host share. It ends with them, however they end."""

from __future__ import annotations

import mmap
import os

import numpy as np

from .. import _core

FILE_NAME = "splitzip-slots"


class SharedHost:
    """Use `create` or `open`. `name` is what another process opens; `address` is that of `memory` in this one."""

    def __init__(self, file: int, nbytes: int, name: tuple[int, int]) -> None:
        self.name = name
        self.memory = np.frombuffer(mmap.mmap(file, nbytes), np.uint8)
        self.address = int(self.memory.ctypes.data)
        self._pin: object = _core.CudaHostRegistration(self.address, nbytes)

    @classmethod
    def create(cls, nbytes: int) -> SharedHost:
        """Raises OSError or DeviceError."""
        file = os.memfd_create(FILE_NAME)
        try:
            os.ftruncate(file, nbytes)
            return cls(file, nbytes, (os.getpid(), file))
        except BaseException:
            os.close(file)
            raise

    @classmethod
    def open(cls, process: int, file: int, nbytes: int) -> SharedHost:
        """What another process of the same user has created. Raises OSError or DeviceError."""
        path = f"/proc/{int(process)}/fd/{int(file)}"
        if not os.readlink(path).startswith(f"/memfd:{FILE_NAME}"):
            raise FileNotFoundError(f"{path} is no shared memory of this package")
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(opened).st_size < nbytes:
                raise ValueError(f"{path} has fewer than {nbytes} bytes")
            return cls(opened, nbytes, (process, file))
        finally:
            os.close(opened)

    def close(self) -> None:
        """Only for the process that created it."""
        self._pin = None
        os.close(self.name[1])
