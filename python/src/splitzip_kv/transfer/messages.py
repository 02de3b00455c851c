# SPDX-License-Identifier: Apache-2.0
"""Control messages as bytes: the only place that knows their layout (docs/transfer.md, "Messages").

Everything that comes from the other side passes through `unpack`, which raises `MessageError` for anything but a
well-formed message; no size in a message is believed before it was compared with the bytes that are there.
"""

from __future__ import annotations

import dataclasses
import struct
import zlib
from typing import Any, ClassVar, TypeVar

PROTOCOL = 3
MAGIC = b"SZTM"
HEADER = struct.Struct("<4sHHII")  # magic, kind, zero, bytes of the body, CRC-32 of kind, length and body
MAX_BODY = 1 << 20
MAX_TEXT = 512
MAX_CODEBOOKS = 1 << 14
MAX_SLOTS = 1 << 10
MAX_TENSORS = 1 << 12

RAW_ONLY = 1  # flag of HELLO and WELCOME: this side wants mode raw
IN_BUDGET = 1  # flag of CHUNK: the bytes are a budget, and the frame may end before them


class MessageError(ValueError):
    """Bytes that are no message."""


class DamagedMessage(MessageError):
    """Bytes that were a message before something happened to them, or that never were one."""


class UnsupportedProtocol(MessageError):
    """A HELLO of another version; `version` is the other side's."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"the other side speaks version {version} of the transfer protocol, this one version {PROTOCOL}"
        )
        self.version = version


class _Reader:
    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def take(self, count: int) -> memoryview:
        if count > len(self._body) - self._at:
            raise MessageError(f"message ends at byte {len(self._body)}, {self._at + count} are needed")
        piece = self._body[self._at : self._at + count]
        self._at += count
        return piece

    def numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))

    def number(self, layout: struct.Struct) -> int:
        (number,) = self.numbers(layout)
        assert isinstance(number, int)
        return number

    def text(self) -> str:
        length = self.number(_U16)
        if length > MAX_TEXT:
            raise MessageError(f"text of {length} bytes, at most {MAX_TEXT} are allowed")
        try:
            return bytes(self.take(length)).decode("utf-8")
        except UnicodeDecodeError as error:
            raise MessageError("text is not UTF-8") from error

    def u64_list(self, most: int) -> tuple[int, ...]:
        count = self.number(_U32)
        if count > most:
            raise MessageError(f"list of {count} entries, at most {most} are allowed")
        return struct.unpack(f"<{count}Q", self.take(8 * count))

    def finish(self) -> None:
        if self._at != len(self._body):
            raise MessageError(f"{len(self._body) - self._at} bytes after the end of the message")


_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_TENSOR = struct.Struct("<QQQIIIIIBBH")


def _text(value: str) -> bytes:
    data = value.encode("utf-8")
    if len(data) > MAX_TEXT:
        data = data[:MAX_TEXT].decode("utf-8", "ignore").encode("utf-8")
    return _U16.pack(len(data)) + data


def _u64_list(values: tuple[int, ...]) -> bytes:
    return _U32.pack(len(values)) + struct.pack(f"<{len(values)}Q", *values)


@dataclasses.dataclass(frozen=True)
class TensorRecord:
    """What a tensor entry of the frame is to be, with the fields and limits of docs/format.md, 4.2."""

    codebook_hash: int
    tensor_key: int
    first_block: int
    tokens: int
    tokens_per_unit: int
    channels: int
    first_channel: int
    ranges: int
    type: int
    mode: int
    slot_words: int
    """Told, since codebooks with the same identity may have other defaults."""

    def pack(self) -> bytes:
        return _TENSOR.pack(*dataclasses.astuple(self))

    @classmethod
    def read(cls, reader: _Reader) -> TensorRecord:
        record = cls(*reader.numbers(_TENSOR))
        if not (record.tokens_per_unit and record.channels and record.ranges):
            raise MessageError("tensor with zero tokens per unit, channels or ranges")
        if record.first_channel + record.ranges * record.channels >= 1 << 32:
            raise MessageError("tensor with 2^32 channels or more")
        if not 1 <= record.type <= 6 or record.mode > 2:
            raise MessageError("tensor with an unknown type or mode")
        if record.slot_words > 1536 or (record.mode == 0 and record.slot_words):
            raise MessageError(f"tensor with slots of {record.slot_words} words")
        if (record.mode == 0) != (record.codebook_hash == 0):
            raise MessageError("mode and codebook of a tensor contradict each other")
        return record


@dataclasses.dataclass(frozen=True)
class Hello:
    """First message of a sender. Only `protocol` has a fixed place in all versions."""

    kind: ClassVar[int] = 1
    protocol: int
    format_version: int
    flags: int
    session: int
    library: str
    codebooks: tuple[int, ...]

    def body(self) -> bytes:
        head = struct.pack("<HHHI", self.protocol, self.format_version, self.flags, self.session)
        return head + _text(self.library) + _u64_list(self.codebooks)

    @classmethod
    def read(cls, reader: _Reader) -> Hello:
        protocol = reader.number(_U16)
        if protocol != PROTOCOL:
            raise UnsupportedProtocol(protocol)
        format_version, flags, session = reader.numbers(struct.Struct("<HHI"))
        return cls(protocol, format_version, flags, session, reader.text(), reader.u64_list(MAX_CODEBOOKS))


@dataclasses.dataclass(frozen=True)
class Welcome:
    """The receiver takes the session and lends it slots of its staging memory."""

    kind: ClassVar[int] = 2
    flags: int
    slot_bytes: int
    library: str
    data_address: str
    slots: tuple[int, ...]
    codebooks: tuple[int, ...]

    def body(self) -> bytes:
        head = struct.pack("<HQ", self.flags, self.slot_bytes)
        return head + _text(self.library) + _text(self.data_address) + _u64_list(self.slots) + _u64_list(self.codebooks)

    @classmethod
    def read(cls, reader: _Reader) -> Welcome:
        flags, slot_bytes = reader.numbers(struct.Struct("<HQ"))
        library, data_address = reader.text(), reader.text()
        return cls(flags, slot_bytes, library, data_address, reader.u64_list(MAX_SLOTS), reader.u64_list(MAX_CODEBOOKS))


@dataclasses.dataclass(frozen=True)
class Refuse:
    """The receiver does not take the session. Its layout is the same in all versions."""

    kind: ClassVar[int] = 3
    code: int
    reason: str

    def body(self) -> bytes:
        return _U16.pack(self.code) + _text(self.reason)

    @classmethod
    def read(cls, reader: _Reader) -> Refuse:
        return cls(reader.number(_U16), reader.text())


@dataclasses.dataclass(frozen=True)
class Offer:
    """The sender wants to fill the request `name`, which it calls `request` from now on."""

    kind: ClassVar[int] = 4
    request: int
    name: str

    def body(self) -> bytes:
        return _U32.pack(self.request) + _text(self.name)

    @classmethod
    def read(cls, reader: _Reader) -> Offer:
        return cls(reader.number(_U32), reader.text())


_SomeRequestMessage = TypeVar("_SomeRequestMessage", bound="_RequestMessage")


@dataclasses.dataclass(frozen=True)
class _RequestMessage:
    request: int

    def body(self) -> bytes:
        return _U32.pack(self.request)

    @classmethod
    def read(cls: type[_SomeRequestMessage], reader: _Reader) -> _SomeRequestMessage:
        return cls(reader.number(_U32))


class Accept(_RequestMessage):
    """The receiver is ready for the chunks of the request."""

    kind: ClassVar[int] = 5


class Done(_RequestMessage):
    """Everything of the request is in its place and verified."""

    kind: ClassVar[int] = 10


@dataclasses.dataclass(frozen=True)
class Chunk:
    """The frame `nonce` was written to slot `slot`, for the `attempt`-th time."""

    kind: ClassVar[int] = 6
    request: int
    chunk: int
    attempt: int
    slot: int
    nonce: int
    frame_bytes: int
    flags: int
    tensors: tuple[TensorRecord, ...]

    _HEAD: ClassVar[struct.Struct] = struct.Struct("<IIIIQQI")

    def body(self) -> bytes:
        numbers = (self.request, self.chunk, self.attempt, self.slot, self.nonce, self.frame_bytes, self.flags)
        return (
            self._HEAD.pack(*numbers)
            + _U32.pack(len(self.tensors))
            + b"".join(tensor.pack() for tensor in self.tensors)
        )

    @classmethod
    def read(cls, reader: _Reader) -> Chunk:
        request, chunk, attempt, slot, nonce, frame_bytes, flags = reader.numbers(cls._HEAD)
        if flags & ~IN_BUDGET:
            raise MessageError(f"chunk with unknown flags {flags:#x}")
        count = reader.number(_U32)
        if not 1 <= count <= MAX_TENSORS:
            raise MessageError(f"chunk of {count} tensors, 1 to {MAX_TENSORS} are allowed")
        tensors = tuple(TensorRecord.read(reader) for _ in range(count))
        return cls(request, chunk, attempt, slot, nonce, frame_bytes, flags, tensors)


@dataclasses.dataclass(frozen=True)
class Ack:
    """The chunk is decoded and verified; its slot is the sender's again."""

    kind: ClassVar[int] = 7
    request: int
    chunk: int
    nonce: int

    _BODY: ClassVar[struct.Struct] = struct.Struct("<IIQ")

    def body(self) -> bytes:
        return self._BODY.pack(self.request, self.chunk, self.nonce)

    @classmethod
    def read(cls, reader: _Reader) -> Ack:
        return cls(*reader.numbers(cls._BODY))


@dataclasses.dataclass(frozen=True)
class Nak:
    """The slot did not come to hold the announced frame: it is to be written again."""

    kind: ClassVar[int] = 8
    request: int
    chunk: int
    attempt: int
    nonce: int
    reason: str

    _HEAD: ClassVar[struct.Struct] = struct.Struct("<IIIQ")

    def body(self) -> bytes:
        return self._HEAD.pack(self.request, self.chunk, self.attempt, self.nonce) + _text(self.reason)

    @classmethod
    def read(cls, reader: _Reader) -> Nak:
        request, chunk, attempt, nonce = reader.numbers(cls._HEAD)
        return cls(request, chunk, attempt, nonce, reader.text())


@dataclasses.dataclass(frozen=True)
class End:
    """The sender has sent all its chunks, `chunks` of them."""

    kind: ClassVar[int] = 9
    request: int
    chunks: int

    def body(self) -> bytes:
        return struct.pack("<II", self.request, self.chunks)

    @classmethod
    def read(cls, reader: _Reader) -> End:
        return cls(reader.number(_U32), reader.number(_U32))


@dataclasses.dataclass(frozen=True)
class Fail:
    """One side gave the request up; the session goes on."""

    kind: ClassVar[int] = 11
    request: int
    code: int
    reason: str

    def body(self) -> bytes:
        return struct.pack("<IH", self.request, self.code) + _text(self.reason)

    @classmethod
    def read(cls, reader: _Reader) -> Fail:
        return cls(reader.number(_U32), reader.number(_U16), reader.text())


Message = Hello | Welcome | Refuse | Offer | Accept | Chunk | Ack | Nak | End | Done | Fail
_KINDS = {cls.kind: cls for cls in (Hello, Welcome, Refuse, Offer, Accept, Chunk, Ack, Nak, End, Done, Fail)}


def _checksum(kind: int, body: bytes | memoryview) -> int:
    return zlib.crc32(body, zlib.crc32(struct.pack("<HI", kind, len(body))))


def pack(message: Message) -> bytes:
    """The message as bytes, header and body."""
    body = message.body()
    if len(body) > MAX_BODY:
        raise MessageError(f"message of {len(body)} bytes, at most {MAX_BODY} are allowed")
    return HEADER.pack(MAGIC, message.kind, 0, len(body), _checksum(message.kind, body)) + body


def body_bytes(header: bytes | memoryview) -> int:
    """Length of the body that follows a header, for readers of a stream."""
    magic, _, zero, length, _ = HEADER.unpack(header)
    if magic != MAGIC or zero != 0:
        raise DamagedMessage("not a message of the transfer protocol")
    if length > MAX_BODY:
        raise DamagedMessage(f"message of {length} bytes, at most {MAX_BODY} are allowed")
    return int(length)


def unpack(data: bytes | memoryview) -> Message:
    """The message that fills `data`. Any bytes whatever are safe to pass."""
    view = memoryview(data)
    if len(view) < HEADER.size:
        raise DamagedMessage(f"message of {len(view)} bytes, a header alone has {HEADER.size}")
    if len(view) - HEADER.size != body_bytes(view[: HEADER.size]):
        raise DamagedMessage("length of the message is not what its header says")
    _, kind, _, _, checksum = HEADER.unpack(view[: HEADER.size])
    body = view[HEADER.size :]
    if checksum != _checksum(kind, body):
        raise DamagedMessage("checksum of the message is wrong")
    if kind not in _KINDS:
        raise MessageError(f"unknown kind of message, {kind}")
    reader = _Reader(body)
    message = _KINDS[kind].read(reader)
    reader.finish()
    return message
