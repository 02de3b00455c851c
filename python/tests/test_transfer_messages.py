# SPDX-License-Identifier: Apache-2.0
"""Control messages: round trips, and bytes from someone who means no good."""

import dataclasses
import random
import struct
import zlib

import pytest

from splitzip_kv.transfer import messages
from splitzip_kv.transfer.messages import (
    HEADER,
    MAGIC,
    MAX_BODY,
    Accept,
    Ack,
    Chunk,
    DamagedMessage,
    Done,
    End,
    Fail,
    Hello,
    MessageError,
    Nak,
    Offer,
    Refuse,
    TensorRecord,
    UnsupportedProtocol,
    Welcome,
    pack,
    unpack,
)

RECORD = TensorRecord(
    codebook_hash=2**63 + 5,
    tensor_key=7,
    first_block=3,
    tokens=192,
    tokens_per_unit=64,
    channels=64,
    first_channel=128,
    ranges=3,
    type=1,
    mode=2,
    slot_words=164,
)

EXAMPLES = [
    Hello(messages.PROTOCOL, 0, 1, 0xDEADBEEF, "0.1.0", (1, 2**64 - 1)),
    Welcome(0, 8 << 20, "0.1.0", "127.0.0.1:15000", (0, 2**63, 2**64 - 1), ()),
    Refuse(8, "no"),
    Offer(1, "request ä"),
    Accept(2**32 - 1),
    Chunk(1, 0, 1, 3, 2**64 - 1, 4096, 1, (RECORD, dataclasses.replace(RECORD, mode=0, codebook_hash=0, slot_words=0))),
    Ack(1, 2, 3),
    Nak(1, 2, 3, 4, "checksum"),
    End(1, 60),
    Done(1),
    Fail(1, 4, "why"),
]


def with_body(kind: int, body: bytes) -> bytes:
    """A message whose header is right, whatever its body."""
    checksum = zlib.crc32(body, zlib.crc32(struct.pack("<HI", kind, len(body))))
    return HEADER.pack(MAGIC, kind, 0, len(body), checksum) + body


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_round_trip(message):
    data = pack(message)
    assert unpack(data) == message
    assert messages.body_bytes(data[: HEADER.size]) == len(data) - HEADER.size


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_cut_and_every_flipped_bit_is_found(message):
    data = pack(message)
    for length in range(len(data)):
        with pytest.raises(DamagedMessage):
            unpack(data[:length])
    with pytest.raises(DamagedMessage):
        unpack(data + b"\0")
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedMessage):
            unpack(damaged)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_bodies_that_are_too_short_or_too_long(message):
    data = pack(message)
    body = data[HEADER.size :]
    for length in range(len(body)):
        with pytest.raises(MessageError):
            unpack(with_body(message.kind, body[:length]))
    with pytest.raises(MessageError, match="after the end"):
        unpack(with_body(message.kind, body + b"\0"))


def test_random_bodies_raise_nothing_else():
    random_bytes = random.Random(1)
    understood = 0
    for _ in range(20_000):
        kind = random_bytes.randrange(14)
        body = random_bytes.randbytes(random_bytes.choice((0, 4, 8, 16, 40, 100)))
        try:
            unpack(with_body(kind, body))
            understood += 1
        except MessageError:
            pass
    assert understood > 100  # short kinds are nothing but numbers


def test_lengths_are_not_believed():
    with pytest.raises(DamagedMessage, match="at most"):
        messages.body_bytes(HEADER.pack(MAGIC, 1, 0, MAX_BODY + 1, 0))
    with pytest.raises(DamagedMessage, match="not a message"):
        messages.body_bytes(HEADER.pack(b"HTTP", 1, 0, 0, 0))
    count = struct.pack("<I", 2**32 - 1)
    with pytest.raises(MessageError, match="list of"):
        unpack(with_body(Hello.kind, struct.pack("<HHHIH", messages.PROTOCOL, 0, 0, 1, 0) + count))
    with pytest.raises(MessageError, match="chunk of"):
        unpack(with_body(Chunk.kind, bytes(36) + count))
    with pytest.raises(MessageError, match="text of"):
        unpack(with_body(Offer.kind, bytes(4) + b"\xff\xff" + bytes(65535)))
    with pytest.raises(MessageError, match="UTF-8"):
        unpack(with_body(Offer.kind, bytes(4) + b"\x01\x00\xff"))
    with pytest.raises(MessageError, match="unknown kind"):
        unpack(with_body(99, b""))


@pytest.mark.parametrize(
    "change",
    [
        {"tokens_per_unit": 0},
        {"channels": 0},
        {"ranges": 0},
        {"ranges": 2**31, "channels": 2},
        {"type": 0},
        {"type": 7},
        {"mode": 3},
        {"mode": 0},
        {"codebook_hash": 0},
        {"slot_words": 1537},
        {"mode": 0, "codebook_hash": 0, "slot_words": 1},
    ],
)
def test_geometry_that_cannot_be(change):
    with pytest.raises(MessageError):
        unpack(pack(Chunk(1, 0, 1, 0, 1, 100, 0, (dataclasses.replace(RECORD, **change),))))


def test_unknown_flags():
    with pytest.raises(MessageError, match="flags"):
        unpack(pack(Chunk(1, 0, 1, 0, 1, 100, 2, (RECORD,))))


def test_another_version_is_told_from_damage():
    body = struct.pack("<H", messages.PROTOCOL + 1) + b"whatever a later version says"
    with pytest.raises(UnsupportedProtocol) as caught:
        unpack(with_body(Hello.kind, body))
    assert caught.value.version == messages.PROTOCOL + 1


def test_long_texts_are_cut_when_sent():
    reason = unpack(pack(Refuse(1, "ä" * 1000))).reason
    assert reason == "ä" * 256
