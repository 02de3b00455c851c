#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A second, independent decoder of the splitzip format: docs/format.md as a program, with nothing but numpy.

    reference_decoder.py FILE [--codebook SET] -o OUT

FILE is a splitzip file (*.szkv) or a bare frame. OUT receives the original bytes; of a bare frame the values of all
entries, each as [tokens][ranges][channels]. Written to be read, not to be fast. Numbers are sections of the document.
"""
import argparse
import struct
from functools import partial
from pathlib import Path

import numpy as np


class FormatError(Exception):
    """args[0] is the name of the status code in the C interface, without SPLITZIP_ERROR_."""

def require(status, condition, message):
    if not condition:
        raise FormatError(status, message)

def ceil_div(a, b):
    return -(-a // b)

class Reader:
    def __init__(self, data, short):
        self.data, self.at, self.short = data, 0, short

    def take(self, size, align=1, padding="CORRUPT_PAYLOAD"):  # passes over the zero bytes up to a multiple of `align`
        start, end, self.at = self.at, self.at + size, ceil_div(self.at + size, align) * align
        require(self.short, self.at <= len(self.data), f"cut off at byte {len(self.data)}")
        require(padding, not any(self.data[end : self.at]), f"padding at byte {end} is not zero")
        return self.data[start:end]

    def header(self, magic, layout):
        require("BAD_MAGIC", len(self.data) < 4 or self.data[:4] == magic, f"does not begin with {magic}")
        version, *fields = struct.unpack(layout, self.take(struct.calcsize(layout)))
        require("UNSUPPORTED_VERSION", version == 0, f"version {version}")
        return fields


# 6. Checksums, and XXH64
def hash32(h, *words):
    """6.1. Words may be arrays: then it is the sum of the hashes of all elements, which 6.3 asks for."""
    h = np.full(1, h, np.uint32)
    for word in words:
        h = (h ^ np.asarray(word).astype(np.uint32)) * np.uint32(0x9E3779B1)
        h = h ^ h >> 15
    h = (h ^ h >> 16) * np.uint32(0x85EBCA6B)
    h = (h ^ h >> 13) * np.uint32(0xC2B2AE35)
    return int((h ^ h >> 16).sum(dtype=np.uint64)) % 2**32

PI = np.array([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0, 0x082EFA98, 0xEC4E6C89,
               0x452821E6, 0x38D01377, 0xBE5466CF, 0x34E90C6C, 0xC0AC29B7, 0xC97C50DD, 0x3F84D5B5, 0xB5470917], "u8")

def content_checksum(content, tensor_key, block, channel, chunk, count):
    """6.2, of the bytes of a chunk's whole vectors."""
    words = np.zeros(512, np.uint64)
    words[: content.size // 4] = content.view("<u4")
    acc = (words.reshape(4, 32, 4) * PI.reshape(4, 1, 4)).sum(axis=(0, 2), dtype=np.uint64)  # axes: i, lane, j
    fold = acc.astype(np.uint32) ^ (acc >> np.uint64(32)).astype(np.uint32) * np.uint32(0x85EBCA6B)
    fold = fold * (np.uint32(0x9E3779B1) + 2 * np.arange(32, dtype=np.uint32))
    seed = hash32(6, tensor_key % 2**32, tensor_key >> 32) + block % 2**32 * 0x27D4EB2F + (block >> 32) * 0x165667B1
    seed += channel * 0x9E3779B1 + chunk * 0x85EBCA77 + count * 0xC2B2AE3D
    return hash32((seed + int((fold ^ fold >> 15).sum(dtype=np.uint64))) % 2**32)

def xxh64(data):
    p1, p2, p3, p4 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63
    h = p5 = 0x27D4EB2F165667C5
    rotate = lambda x, by: (x << by | x % 2**64 >> (64 - by)) % 2**64
    step = lambda acc, lane: rotate(acc + lane * p2, 31) * p1 % 2**64
    if len(data) >= 32:
        acc = [p1 + p2, p2, 0, -p1]
        for stripe in struct.iter_unpack("<4Q", data[: len(data) // 32 * 32]):
            acc = [step(a, lane) for a, lane in zip(acc, stripe)]
        h = sum(rotate(a, by) for a, by in zip(acc, (1, 7, 12, 18)))
        for a in acc:
            h = (h ^ step(0, a)) * p1 + p4
    h, tail = (h + len(data)) % 2**64, data[len(data) // 32 * 32 :]
    for size, first, by, factor, term in ((8, 0, 27, p1, p4), (4, p1, 23, p2, p3), (1, p5, 11, p1, 0)):
        while len(tail) >= size:
            lane, tail = int.from_bytes(tail[:size], "little"), tail[size:]
            h = (rotate(h ^ (lane * first if first else step(0, lane)) % 2**64, by) * factor + term) % 2**64
    h = (h ^ h >> 33) * p2 % 2**64
    h = (h ^ h >> 29) * p3 % 2**64
    return h ^ h >> 32


# 2. Element types: bytes, s, bits below the symbol (what is above it goes on top of these in the rest), rest planes
TYPES = {1: (2, 8, 7, (8,)), 2: (2, 5, 10, (8, 2, 1)), 3: (4, 8, 23, (16, 8)),
         4: (1, 4, 3, (4,)), 5: (1, 5, 2, (2, 1)), 6: (1, 4, 4, (4,))}
(RAW, FIXED4, TIERED), (KIND_CODED, KIND_RAW, KIND_CONSTANT) = range(3), range(3)  # modes, kinds of chunks

# 7. Codebooks
def decode_codebook_set(data):
    """7.2. Returns {identity: (type, ranks, bases)}."""
    check, reader = partial(require, "CODEBOOK_CORRUPT"), Reader(data, "CODEBOOK_CORRUPT")
    zero, count, provenance_bytes, set_bytes, checksum = reader.header(b"SZCB", "<4xHHIIQQ")
    check(set_bytes == len(data) and checksum == xxh64(data[:24] + data[32:]), "length or checksum")
    check(zero == 0 and count <= 2**20 and provenance_bytes <= 65535, "header")
    provenance, names, codebooks = reader.take(provenance_bytes, 8, "CODEBOOK_CORRUPT"), [], {}
    for _ in range(count):
        (identity, base_count, name_bytes, code, ranks, slot1, slot2, zero, _,
         *statistics) = struct.unpack("<QIHB9sHHIQ8d", reader.take(104))
        check(code in TYPES and 1 <= base_count <= 2**24 and name_bytes <= 4096, "type or lengths")
        check(max(slot1, slot2) <= 1536 and zero == 0, "slots or reserved field")
        check(all(0 <= x < np.inf and not np.signbit(x) for x in statistics) and max(statistics[:2]) <= 1, "statistics")
        body = reader.take(base_count + name_bytes, 8, "CODEBOOK_CORRUPT")
        bases, names = body[:base_count], [*names, body[base_count:]]
        check(len(set(ranks)) == 9 and max(ranks) < 15 and max(bases) < 2 ** TYPES[code][1], "ranks or bases")
        check(identity == (xxh64(struct.pack("<B9sHI", code, ranks, 0, base_count) + bases) or 1), "identity")
        codebooks[identity] = code, *(np.frombuffer(x, np.uint8).astype(int) for x in (ranks, bases))
    check(reader.at == len(data) and len(names) == len(set(names)), "bytes after the last codebook, or a name twice")
    check(all(0 not in t and t == t.decode("utf-8", "replace").encode() for t in [provenance, *names]), "text")
    return codebooks


# 4. Frame
class Entry:
    def __init__(self, *fields):  # 4.2
        (self.codebook, self.tensor_key, self.first_block, self.tokens, self.tokens_per_unit, self.channels,
         self.first_channel, self.ranges, self.slot, self.type, self.mode) = fields
        require("UNSUPPORTED_TYPE", self.type in TYPES, f"type {self.type}")
        require("UNSUPPORTED_MODE", self.mode <= TIERED, f"mode {self.mode}")
        self.end_channel = self.first_channel + self.ranges * self.channels
        shape = self.tokens_per_unit and self.channels and self.ranges and self.end_channel < 2**32
        coding = self.codebook and self.slot <= 1536 if self.mode else self.codebook == self.slot == 0
        require("CORRUPT_HEADER", shape and coding, "field of an entry")
        self.bytes, self.symbol_bits, self.symbol_at, rest_planes = TYPES[self.type]
        self.widths = (8 * self.bytes,) if self.mode == RAW else rest_planes + (4 if self.mode == FIXED4 else 2,)
        self.plane_bytes = [2 * width // self.bytes for width in self.widths]  # of one vector, 4.3
        blocks, tail = divmod(self.tokens, self.tokens_per_unit)
        unit, last = (ceil_div(t * self.channels * self.bytes, 16) for t in (self.tokens_per_unit, tail))
        self.vector_count = self.ranges * (blocks * unit + last)
        self.chunk_count = self.ranges * (blocks * ceil_div(unit, 128) + ceil_div(last, 128))
        slots = self.slot * (self.chunk_count // 8) + ceil_div(self.slot * (self.chunk_count % 8), 8)
        self.sizes = [size * self.vector_count for size in self.plane_bytes] + [4 * slots]  # of its sections

    def chunks(self):  # 1; of each chunk: block, range, number in its unit, values, vectors
        size = 2048 // self.bytes
        for block in range(ceil_div(self.tokens, self.tokens_per_unit)):
            unit = min(self.tokens_per_unit, self.tokens - block * self.tokens_per_unit) * self.channels
            for r in range(self.ranges):
                for number in range(ceil_div(unit, size)):
                    count = min(size, unit - number * size)
                    yield block, r, number, count, ceil_div(count * self.bytes, 16)

def decode_frame(data, codebooks, expected_nonce=None):
    """Returns whether there are checksums, and for each entry (Entry, array [tokens][ranges][channels])."""
    reader, check = Reader(data, "TRUNCATED"), partial(require, "CORRUPT_HEADER")
    header = reader.header(b"SZKF", "<4xHHQIIIIQII")  # 4.1
    flags, nonce, entry_count, chunk_count, tile_count, spill_words, frame_bytes, directory_sum, header_sum = header
    require("UNSUPPORTED_FLAG", flags <= 3, f"flags {flags:#x}")
    check((flags < 2 and entry_count <= 65535) or (flags, entry_count) == (2, 0), "entry_count or flags")
    table = reader.take(48 * entry_count)
    checksum = hash32(2, np.arange(entry_count), *np.frombuffer(table, "<u4").reshape(-1, 12).T)
    check(header_sum == (hash32(1, *struct.unpack_from("<11I", data)) + checksum) % 2**32, "header checksum")
    entries = [Entry(*fields) for fields in struct.iter_unpack("<QQQ5IHBB", table)]
    counts = sum(e.chunk_count for e in entries), sum(ceil_div(e.chunk_count, 8) for e in entries)
    check((chunk_count, tile_count) == counts and chunk_count < 2**24, "chunk_count or tile_count")
    align, shared = 32 if entries else 1, [0, 2 * chunk_count, 4 * chunk_count * (flags & 1), 4 * tile_count]  # 4
    sizes = sum([e.sizes for e in entries], [reader.at, *shared])
    check(frame_bytes == sum(ceil_div(s, align) * align for s in sizes) + 4 * spill_words, "frame_bytes")
    require("TRUNCATED" if len(data) < frame_bytes else "TRAILING_BYTES", len(data) == frame_bytes, "frame length")

    check, spilled = partial(require, "CORRUPT_DIRECTORY"), 0
    _, records, checksums, tile_records = (np.frombuffer(reader.take(size, align, "CORRUPT_DIRECTORY"), layout)
                                           for size, layout in zip(shared, ("u1", "<u2", "<u4", "<u4")))
    checksums = checksums if flags else 0 * records
    checksum = hash32(3, np.arange(chunk_count), records, checksums) + hash32(4, np.arange(tile_count), tile_records)
    check(directory_sum == (hash32(5, nonce % 2**32, nonce >> 32) + checksum) % 2**32, "directory checksum")
    directory = list(zip((records >> 8).tolist(), (records & 255).tolist(), checksums.tolist()))
    for e in entries:
        e.directory, directory = directory[: e.chunk_count], directory[e.chunk_count :]
        for (*_, vectors), (kind, length, _) in zip(e.chunks(), e.directory):  # 5.1
            raw_words = ceil_div(vectors * (16 - sum(e.plane_bytes)), 4)
            legal = {KIND_CODED: e.mode != RAW, KIND_RAW: length == raw_words, KIND_CONSTANT: length == 1}
            check(length <= raw_words and legal.get(kind), f"chunk record of {length} words")
        e.tiles = []  # of each: words, those in its slot, its remainder in the spill from start to end; 4.4
        for tile in (e.directory[c : c + 8] for c in range(0, e.chunk_count, 8)):
            words, slot_words = sum(length for _, length, _ in tile), ceil_div(e.slot * len(tile), 8)
            e.tiles.append((words, slot_words, spilled, spilled := spilled + max(0, words - slot_words)))
    starts = [start for e in entries for *_, start, _ in e.tiles] + [spilled]
    check(starts == [*tile_records.tolist(), spill_words], "tile records or spill_words")

    require("NONCE_MISMATCH", expected_nonce in (None, nonce), f"nonce {nonce}")
    require("OVER_BUDGET", flags < 2, "the frame did not fit in its budget")
    for e in (e for e in entries if e.mode != RAW):
        require("CODEBOOK_REQUIRED", e.codebook in codebooks, f"codebook {e.codebook:016x}")
        code, e.ranks, e.bases = codebooks[e.codebook]
        fits = code == e.type and (len(e.bases) == 1 or len(e.bases) >= e.end_channel)
        require("CODEBOOK_MISMATCH", fits, "codebook of another type, or of fewer channels")

    spill, result = np.frombuffer(data[frame_bytes - 4 * spill_words :], "<u4"), []
    for e in entries:
        *planes, slots = (np.frombuffer(reader.take(size, align), np.uint8) for size in e.sizes)
        slots, parts, vector, word = slots.view("<u4"), [], 0, 0
        for words, slot_words, start, end in e.tiles:
            slot, slots = slots[:slot_words], slots[slot_words:]
            require("CORRUPT_PAYLOAD", not slot[words:].any(), "unused words of a slot")
            parts += [slot[:words], spill[start:end]]
        parts, values = np.concatenate([slots, *parts]), np.empty((e.tokens, e.ranges, e.channels), f"<u{e.bytes}")
        for (block, r, number, count, vectors), (kind, length, checksum) in zip(e.chunks(), e.directory):
            pieces = [plane[size * vector : size * (vector + vectors)] for plane, size in zip(planes, e.plane_bytes)]
            i, channel = np.arange(count) + number * (2048 // e.bytes), e.first_channel + r * e.channels
            content = decode_chunk(e, kind, channel + i % e.channels, pieces, parts[word : word + length].view("u1"))
            actual = content_checksum(content, e.tensor_key, (e.first_block + block) % 2**64, channel, number, count)
            require("CHECKSUM_MISMATCH", not flags or checksum == actual, f"block {block}, range {r}, chunk {number}")
            values[block * e.tokens_per_unit + i // e.channels, r, i % e.channels] = content.view(values.dtype)[:count]
            vector, word = vector + vectors, word + length
        result.append((e, values))
    return bool(flags), result


# 5. Chunks
def unpack(bits, width):  # fields of `width` bits, lowest first, from single bits
    return bits.reshape(-1, width) @ (1 << np.arange(width))

def decode_chunk(e, kind, channels, pieces, variable):
    """The bytes of a chunk's vectors. `channels` are those of its values, `pieces` its parts of the planes."""
    check, count = partial(require, "CORRUPT_PAYLOAD"), len(channels)
    content = np.zeros(ceil_div(count * e.bytes, 16) * 16, np.uint8)
    values = content.view(f"<u{e.bytes}")[:count]
    if kind == KIND_RAW:  # 5.3
        verbatim = np.concatenate([*pieces, variable])
        check(not verbatim[count * e.bytes :].any(), "padding of a raw chunk")
        return verbatim[: len(content)]
    if kind == KIND_CONSTANT:  # 5.4
        check(not any(piece.any() for piece in pieces) and not variable[e.bytes :].any(), "padding of a constant chunk")
        values[:] = variable[: e.bytes].view(values.dtype)
        return content
    planes = [unpack(np.unpackbits(p, bitorder="little"), width) for p, width in zip(pieces, e.widths)]
    check(not any(plane[count:].any() for plane in planes), "padding values")
    *rest, codes = (plane[:count] for plane in planes)
    rest = sum(plane << shift for plane, shift in zip(rest, np.cumsum([0, *e.widths])))  # 2
    bits = Reader(np.unpackbits(variable, bitorder="little"), "CORRUPT_PAYLOAD")
    # 3 and 5.2: `pending` are the values, in lane order, whose code is still open
    escape, tiers, deltas = (15, 1, np.arange(16)) if e.mode == FIXED4 else (3, 3, np.append(e.ranks, 0))
    pending, rank = np.argsort(np.arange(count) * e.bytes // 16 % 32, kind="stable"), np.zeros(count, int)
    for tier in range(tiers):
        code = unpack(bits.take(2 * len(pending), align=8 if tier == 2 else 1), 2) if tier else codes[pending]
        rank[pending] = escape * tier + code
        pending = pending[code == escape]
    delta = deltas[rank]
    delta[pending] = unpack(bits.take(8 * len(pending), align=32), 8)
    check(bits.at == len(bits.data), "length of the variable part")
    symbol = (e.bases[channels if len(e.bases) > 1 else 0 * channels] + delta) % 2**e.symbol_bits
    values[:] = rest % 2**e.symbol_at | symbol << e.symbol_at | rest >> e.symbol_at << e.symbol_at + e.symbol_bits
    return content


# 8. File
def decode_file(data, codebooks):
    """Returns the original bytes. An embedded codebook set replaces `codebooks`."""
    reader, check = Reader(data, "TRUNCATED"), partial(require, "CORRUPT_HEADER")
    kind, zero, zero2, checksum = reader.header(b"SZKV", "<4xHBBII")
    check(checksum == hash32(7, *struct.unpack_from("<3I", data)) and kind <= 1 and zero == zero2 == 0, "file header")
    number, block_type, original, index = 0, 0, b"", []
    while block_type != 3:
        block_at, header = reader.at, reader.take(16)
        block_type, order, zero, block_bytes, checksum = struct.unpack("<BBHQI", header)
        legal = block_type in (1, 2, 3) and zero == 0 and order <= (block_type == 2)
        check(legal and checksum == hash32(8, number, *struct.unpack_from("<3I", header)), f"header of block {number}")
        block = reader.take(block_bytes, 16)
        if block_type == 1:
            check(number == 0, "a codebook set that is not the first block")
            codebooks = decode_codebook_set(block)
        elif block_type == 2:
            has_checksums, entries = decode_frame(block, codebooks, expected_nonce=len(original))
            check(has_checksums and len(entries) == 1, f"frame in block {number}")
            index += [block_at, len(original)]
            original += (entries[0][1].swapaxes(0, 1) if order else entries[0][1]).tobytes()
        number += 1
    index = struct.pack(f"<QQ{len(index)}Q", len(original), len(index) // 2, *index)
    require("CORRUPT_DIRECTORY", block == index + struct.pack("<Q", xxh64(index)), "index")
    trailer = struct.pack("<QI4s", block_at, hash32(9, block_at % 2**32, block_at >> 32), b"SZKV")
    check(reader.take(16) == trailer, "trailer")
    require("TRAILING_BYTES", reader.at == len(data), "bytes after the trailer")
    return original


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Decode a splitzip file or a bare frame.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--codebook", type=Path, metavar="SET")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT", required=True)
    arguments = parser.parse_args()
    try:
        data = arguments.file.read_bytes()
        codebooks = decode_codebook_set(arguments.codebook.read_bytes()) if arguments.codebook else {}
        if data[:4] == b"SZKV":
            output = decode_file(data, codebooks)
        else:
            output = b"".join(values.tobytes() for _, values in decode_frame(data, codebooks)[1])
        arguments.output.write_bytes(output)
    except (FormatError, OSError) as error:
        raise SystemExit(f"reference_decoder.py: {': '.join(map(str, error.args))}") from None
