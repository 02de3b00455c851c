# SPDX-License-Identifier: Apache-2.0
"""The status codes of the C interface as exceptions."""

from __future__ import annotations

from typing import ClassVar


class SplitzipError(Exception):
    """Base of all errors that the library reports.

    `status` is the number of the C status, whose tens are its family (10 not ours or not supported, 20 damaged, 30 codebook,
    40 arguments, 50 memory); `tensor`, `chunk` and `offset` say where, as far as it is known.
    """

    status: ClassVar[int] = 0

    def __init__(
        self, message: str, *, tensor: int | None = None, chunk: int | None = None, offset: int | None = None
    ) -> None:
        places = [("tensor", tensor), ("chunk", chunk), ("byte", offset)]
        where = ", ".join(f"{name} {number}" for name, number in places if number is not None)
        super().__init__(f"{message} ({where})" if where else message)
        self.tensor = tensor
        self.chunk = chunk
        self.offset = offset


class BadMagic(SplitzipError):
    status = 10


class UnsupportedVersion(SplitzipError):
    status = 11


class UnsupportedFlag(SplitzipError):
    status = 12


class UnsupportedType(SplitzipError):
    status = 13


class UnsupportedMode(SplitzipError):
    status = 14


class Truncated(SplitzipError):
    status = 20


class TrailingBytes(SplitzipError):
    status = 21


class CorruptHeader(SplitzipError):
    status = 22


class CorruptDirectory(SplitzipError):
    status = 23


class CorruptPayload(SplitzipError):
    status = 24


class ChecksumMismatch(SplitzipError):
    status = 25


class CodebookRequired(SplitzipError):
    status = 30


class CodebookMismatch(SplitzipError):
    status = 31


class CodebookCorrupt(SplitzipError):
    status = 32


class CodebookNotFound(SplitzipError):
    status = 33


class InvalidArgument(SplitzipError, ValueError):
    status = 40


class InvalidTensor(SplitzipError, ValueError):
    status = 41


class InvalidLayout(SplitzipError, ValueError):
    status = 42


class GeometryMismatch(SplitzipError):
    status = 43


class NonceMismatch(SplitzipError):
    status = 44


class TooLarge(SplitzipError):
    status = 45


class NoSamples(SplitzipError):
    status = 46


class OutputTooSmall(SplitzipError):
    status = 50


class OutOfMemory(SplitzipError, MemoryError):
    status = 51


class DeviceError(SplitzipError):
    status = 60


class InternalError(SplitzipError):
    status = 100


BY_STATUS = {error.status: error for error in SplitzipError.__subclasses__()}


def from_status(status: int, message: str, tensor: int | None, chunk: int | None, offset: int | None) -> SplitzipError:
    """The exception for a failed call; the extension raises it."""
    return BY_STATUS.get(status, InternalError)(message, tensor=tensor, chunk=chunk, offset=offset)
