# SPDX-License-Identifier: Apache-2.0
"""The status codes of the C interface as exceptions."""

from __future__ import annotations

from typing import ClassVar


class SplitzipError(Exception):
    """Base of all errors that the library reports.

    `status` is the number of the C status, whose tens are its family (10 not ours or not supported, 20 damaged,
    30 codebook, 40 arguments, 50 memory); `tensor`, `chunk` and `offset` say where, as far as it is known.
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
    """The bytes are no frame, or no codebook set."""

    status = 10


class UnsupportedVersion(SplitzipError):
    """Another version of the format."""

    status = 11


class UnsupportedFlag(SplitzipError):
    """A flag that this version does not know."""

    status = 12


class UnsupportedType(SplitzipError):
    """An element type that this version does not know."""

    status = 13


class UnsupportedMode(SplitzipError):
    """A mode that this version does not know."""

    status = 14


class Truncated(SplitzipError):
    """Fewer bytes than the frame declares."""

    status = 20


class TrailingBytes(SplitzipError):
    """More bytes than the frame declares."""

    status = 21


class CorruptHeader(SplitzipError):
    """Header or tensor entries are damaged."""

    status = 22


class CorruptDirectory(SplitzipError):
    """Chunk records, checksums or tile records are damaged."""

    status = 23


class CorruptPayload(SplitzipError):
    """Codes, lengths or padding of a chunk are damaged."""

    status = 24


class ChecksumMismatch(SplitzipError):
    """A chunk decoded to other values than were encoded."""

    status = 25


class CodebookRequired(SplitzipError):
    """The mode of the tensor needs a codebook, and none was given."""

    status = 30


class CodebookMismatch(SplitzipError):
    """Another codebook, type or channel count than is needed."""

    status = 31


class CodebookCorrupt(SplitzipError):
    """The codebook set is damaged."""

    status = 32


class CodebookNotFound(SplitzipError):
    """No codebook with the hash that a frame asks for."""

    status = 33


class InvalidArgument(SplitzipError, ValueError):
    """An argument that cannot be."""

    status = 40


class InvalidTensor(SplitzipError, ValueError):
    """A tensor description that cannot be."""

    status = 41


class InvalidLayout(SplitzipError, ValueError):
    """Memory that does not hold the tensor, or axes or pages that do not fit."""

    status = 42


class GeometryMismatch(SplitzipError):
    """The frame holds another tensor than is expected."""

    status = 43


class NonceMismatch(SplitzipError):
    """The frame is of another generation than is expected."""

    status = 44


class TooLarge(SplitzipError):
    """Beyond a limit of the format: split it into several frames."""

    status = 45


class NoSamples(SplitzipError):
    """Calibration without a single value."""

    status = 46


class OutputTooSmall(SplitzipError):
    """The frame does not fit in the memory given."""

    status = 50


class OutOfMemory(SplitzipError, MemoryError):
    """The library could not allocate."""

    status = 51


class OverBudget(SplitzipError):
    """The frame did not fit in its budget, and a mark that says so is in its place."""

    status = 52


class DeviceError(SplitzipError):
    """The device runtime reported an error."""

    status = 60


class InternalError(SplitzipError):
    """A bug in the library."""

    status = 100


BY_STATUS = {error.status: error for error in SplitzipError.__subclasses__()}


def from_status(status: int, message: str, tensor: int | None, chunk: int | None, offset: int | None) -> SplitzipError:
    """The exception for a failed call; the extension raises it."""
    return BY_STATUS.get(status, InternalError)(message, tensor=tensor, chunk=chunk, offset=offset)
