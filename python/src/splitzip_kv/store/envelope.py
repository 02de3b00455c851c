# SPDX-License-Identifier: Apache-2.0
"""Bytes of a value: a header that names the codebook set, and the frame. docs/store.md has the table."""

from __future__ import annotations

import hashlib
import struct

from .values import StoreError

_HEADER = struct.Struct("<4sIQ32s16x")
HEADER_BYTES = _HEADER.size
MAGIC = b"SZSV"
VERSION = 0
NO_SET = bytes(32)


class BadValue(StoreError):
    """What lies under the key was not written by this library, or is damaged."""


def set_id(codebooks: bytes) -> bytes:
    return hashlib.sha256(codebooks).digest()


def nonce_of(key: str) -> int:
    """The nonce of the frame under this key: a value that lies under another key is found out."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")


def write_header(out: memoryview, frame_bytes: int, id: bytes) -> None:
    _HEADER.pack_into(out, 0, MAGIC, VERSION, frame_bytes, id)


def open_value(value: memoryview, padded: bool = False) -> tuple[memoryview, bytes]:
    """Frame and id of the codebook set."""
    if len(value) < HEADER_BYTES:
        raise BadValue(f"a value of {len(value)} bytes has no header")
    magic, version, frame_bytes, id = _HEADER.unpack_from(value)
    if magic != MAGIC:
        raise BadValue("the value does not begin with SZSV")
    if version != VERSION:
        raise BadValue(f"the value has version {version}, this library reads {VERSION}")
    if any(value[48:HEADER_BYTES]):
        raise BadValue("reserved bytes of the value's header are not zero")
    size = HEADER_BYTES + frame_bytes
    if len(value) < size or (len(value) > size and not padded):
        raise BadValue(f"the value has {len(value)} bytes, and its header says {size}")
    return value[HEADER_BYTES:size], id
