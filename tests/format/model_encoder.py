# SPDX-License-Identifier: Apache-2.0
"""A model encoder of the splitzip format, written from docs/format.md alone: plain integers, value by value.

It is the counterpart of docs/reference_decoder.py and shares nothing with it, nor with the library. Frame, CodebookSet
and File are kept in parts, so that tests can damage one part and seal the rest correctly again. Numbers in comments are
sections of the document.
"""

import struct
from dataclasses import dataclass, field

import numpy as np

BF16, FP16, FP32, E4M3, E5M2, BYTES = 1, 2, 3, 4, 5, 6
RAW, FIXED4, TIERED = 0, 1, 2
CODED_CHUNK, RAW_CHUNK, CONSTANT_CHUNK = 0, 1, 2

ELEMENT_BYTES = {BF16: 2, FP16: 2, FP32: 4, E4M3: 1, E5M2: 1, BYTES: 1}
SYMBOL_BITS = {BF16: 8, FP16: 5, FP32: 8, E4M3: 4, E5M2: 5, BYTES: 4}
SECTION = 32  # section 4: what sections are padded to
REST_PLANES = {BF16: [8], FP16: [8, 2, 1], FP32: [16, 8], E4M3: [4], E5M2: [2, 1], BYTES: [4]}
UNSIGNED = {1: "<u1", 2: "<u2", 4: "<u4"}

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def bits(x, low, high):
    """x[low:high] of the document."""
    return (x >> low) & ((1 << (high - low)) - 1)


def split(element_type, x):
    """Section 2: exponent symbol and rest of a value."""
    if element_type == BF16:
        return bits(x, 7, 15), bits(x, 15, 16) << 7 | bits(x, 0, 7)
    if element_type == FP16:
        return bits(x, 10, 15), bits(x, 15, 16) << 10 | bits(x, 0, 10)
    if element_type == FP32:
        return bits(x, 23, 31), bits(x, 31, 32) << 23 | bits(x, 0, 23)
    if element_type == E4M3:
        return bits(x, 3, 7), bits(x, 7, 8) << 3 | bits(x, 0, 3)
    if element_type == E5M2:
        return bits(x, 2, 7), bits(x, 7, 8) << 2 | bits(x, 0, 2)
    return bits(x, 4, 8), bits(x, 0, 4)


def up(n, multiple):
    return (n + multiple - 1) // multiple * multiple


def pad(data, multiple):
    return bytes(data) + bytes(up(len(data), multiple) - len(data))


def pack_fields(values, width):
    """Fields of `width` bits fill bytes from the lowest bit."""
    number = 0
    for k, value in enumerate(values):
        number |= value << (k * width)
    return number.to_bytes((len(values) * width + 7) // 8, "little")


# ---- 6. Checksums ----------------------------------------------------------------------------------------------------


def murmur_final(h):
    h ^= h >> 16
    h = h * 0x85EBCA6B & M32
    h ^= h >> 13
    h = h * 0xC2B2AE35 & M32
    return h ^ (h >> 16)


def short_hash(domain, words):
    h = domain
    for w in words:
        x = (h ^ w) * 0x9E3779B1 & M32
        h = x ^ (x >> 15)
    return murmur_final(h)


def two_words(x):
    return [x & M32, x >> 32]


def words_of(data):
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]


K = [
    int(word, 16)
    for word in [
        "243F6A88",
        "85A308D3",
        "13198A2E",
        "03707344",
        "A4093822",
        "299F31D0",
        "082EFA98",
        "EC4E6C89",
        "452821E6",
        "38D01377",
        "BE5466CF",
        "34E90C6C",
        "C0AC29B7",
        "C97C50DD",
        "3F84D5B5",
        "B5470917",
    ]
]


def content_checksum(content, tensor_key, block, channel, chunk, count):
    acc = [0] * 32
    for number, word in enumerate(words_of(content)):
        vector, j = divmod(number, 4)
        i, lane = divmod(vector, 32)
        acc[lane] = (acc[lane] + K[4 * i + j] * word) & M64
    h = short_hash(6, two_words(tensor_key))
    h += (block & M32) * 0x27D4EB2F + (block >> 32) * 0x165667B1
    h += channel * 0x9E3779B1 + chunk * 0x85EBCA77 + count * 0xC2B2AE3D
    for lane in range(32):
        low, high = two_words(acc[lane])
        x = (low ^ (high * 0x85EBCA6B & M32)) * (0x9E3779B1 + 2 * lane) & M32
        h += x ^ (x >> 15)
    return murmur_final(h & M32)


def xxh64(data):
    """XXH64 with seed 0, after the published specification."""
    prime1, prime2, prime3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
    prime4, prime5 = 9650029242287828579, 2870177450012600261

    def rotl(x, r):
        return ((x << r) & M64) | (x >> (64 - r))

    def round_(accumulator, lane):
        return rotl((accumulator + lane * prime2) & M64, 31) * prime1 & M64

    def read(at, size):
        return int.from_bytes(data[at : at + size], "little")

    at = 0
    if len(data) < 32:
        h = prime5
    else:
        a, b, c, d = (prime1 + prime2) & M64, prime2, 0, (M64 + 1 - prime1) & M64
        while at + 32 <= len(data):
            a, b = round_(a, read(at, 8)), round_(b, read(at + 8, 8))
            c, d = round_(c, read(at + 16, 8)), round_(d, read(at + 24, 8))
            at += 32
        h = (rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18)) & M64
        for accumulator in (a, b, c, d):
            h = ((h ^ round_(0, accumulator)) * prime1 + prime4) & M64
    h = (h + len(data)) & M64
    while at + 8 <= len(data):
        h = (rotl(h ^ round_(0, read(at, 8)), 27) * prime1 + prime4) & M64
        at += 8
    if at + 4 <= len(data):
        h = (rotl(h ^ (read(at, 4) * prime1 & M64), 23) * prime2 + prime3) & M64
        at += 4
    while at < len(data):
        h = rotl(h ^ (read(at, 1) * prime5 & M64), 11) * prime1 & M64
        at += 1
    h = (h ^ (h >> 33)) * prime2 & M64
    h = (h ^ (h >> 29)) * prime3 & M64
    return h ^ (h >> 32)


# ---- 7. Codebooks ----------------------------------------------------------------------------------------------------


@dataclass
class Codebook:
    type: int
    ranks: list
    bases: list
    name: str = ""
    fixed4_slot_words: int = 0
    tiered_slot_words: int = 0
    sample_values: int = 0
    statistics: tuple = (0.0,) * 8
    # What a damaged record says instead of the truth.
    identity: int = None
    base_count: int = None
    name_bytes: bytes = None
    reserved: int = 0
    padding: int = 0

    def real_identity(self):
        count = len(self.bases) if self.base_count is None else self.base_count
        message = bytes([self.type, *self.ranks, 0, 0]) + struct.pack("<I", count) + bytes(self.bases)
        return xxh64(message) or 1

    def record(self):
        name = self.name.encode() if self.name_bytes is None else self.name_bytes
        data = struct.pack("<Q", self.real_identity() if self.identity is None else self.identity)
        data += struct.pack("<I", len(self.bases) if self.base_count is None else self.base_count)
        data += struct.pack("<HB", len(name), self.type) + bytes(self.ranks)
        data += struct.pack("<HHI", self.fixed4_slot_words, self.tiered_slot_words, self.reserved)
        data += struct.pack("<Q", self.sample_values) + struct.pack("<8d", *self.statistics)
        data += bytes(self.bases) + name
        return data + bytes([self.padding] * (up(len(data), 8) - len(data)))


@dataclass
class CodebookSet:
    codebooks: list
    provenance: bytes = b""
    magic: bytes = b"SZCB"
    version: int = 0
    reserved: int = 0
    count: int = None
    provenance_bytes: int = None
    provenance_padding: int = 0
    set_bytes_excess: int = 0
    checksum_flip: int = 0

    def bytes(self):
        body = self.provenance
        body += bytes([self.provenance_padding] * (up(len(body), 8) - len(body)))
        body += b"".join(codebook.record() for codebook in self.codebooks)
        count = len(self.codebooks) if self.count is None else self.count
        provenance_bytes = len(self.provenance) if self.provenance_bytes is None else self.provenance_bytes
        start = self.magic + struct.pack("<HHII", self.version, self.reserved, count, provenance_bytes)
        start += struct.pack("<Q", 32 + len(body) + self.set_bytes_excess)
        return start + struct.pack("<Q", xxh64(start + body) ^ self.checksum_flip) + body


# ---- 4. Frame --------------------------------------------------------------------------------------------------------


@dataclass
class Tensor:
    """What is encoded; `values` is an array [tokens][ranges][channels] of unsigned integers."""

    type: int
    mode: int
    codebook: Codebook
    values: np.ndarray
    tokens_per_unit: int
    tensor_key: int = 0
    first_block: int = 0
    first_channel: int = 0
    slot_words: int = 0

    @property
    def element_bytes(self):
        return ELEMENT_BYTES[self.type]

    def plane_widths(self):
        if self.mode == RAW:
            return [8 * self.element_bytes]
        return [*REST_PLANES[self.type], 4 if self.mode == FIXED4 else 2]

    def plane_bytes(self):
        """Of one vector, for each plane."""
        return [width * 16 // self.element_bytes // 8 for width in self.plane_widths()]

    def units(self):
        """(block, range, values) in order."""
        tokens, ranges, _ = self.values.shape
        for block, first in enumerate(range(0, tokens, self.tokens_per_unit)):
            for r in range(ranges):
                part = self.values[first : first + self.tokens_per_unit, r, :]
                yield block, r, [int(x) for row in part for x in row]

    def base(self, channel):
        bases = self.codebook.bases
        return bases[0] if len(bases) == 1 else bases[channel]


@dataclass
class Chunk:
    kind: int
    pieces: list  # bytes for each plane
    variable: bytes
    checksum: int
    words: int


def code_tiered(ranks, delta):
    """Section 3: tier-1 code, tier-2 code, tier-3 code, escape byte; None where there is none."""
    rank = ranks.index(delta) if delta in ranks else 9
    if rank < 3:
        return rank, None, None, None
    if rank < 6:
        return 3, rank - 3, None, None
    return 3, 3, rank - 6, delta if rank == 9 else None


def encode_chunk(tensor, block, r, number, values):
    """Section 5, of the values of one chunk."""
    size, s = tensor.element_bytes, SYMBOL_BITS[tensor.type]
    content = pad(b"".join(x.to_bytes(size, "little") for x in values), 16)
    vectors = len(content) // 16
    lengths = [vectors * n for n in tensor.plane_bytes()]
    raw_words = up(vectors * 16 - sum(lengths), 4) // 4
    first_channel = tensor.first_channel + r * tensor.values.shape[2]
    checksum = content_checksum(content, tensor.tensor_key, (tensor.first_block + block) & M64, first_channel, number, len(values))
    verbatim, pieces = content, []
    for length in lengths:
        pieces.append(verbatim[:length])
        verbatim = verbatim[length:]
    raw = Chunk(RAW_CHUNK, pieces, pad(verbatim, 4), checksum, raw_words)
    if tensor.mode == RAW:
        return raw

    planes = [[] for _ in tensor.plane_widths()]
    codes = []
    for i, x in enumerate(values):
        symbol, rest = split(tensor.type, x)
        for plane, width in zip(planes, REST_PLANES[tensor.type]):
            plane.append(rest & ((1 << width) - 1))
            rest >>= width
        position = number * (2048 // size) + i
        delta = (symbol - tensor.base(first_channel + position % tensor.values.shape[2])) % (1 << s)
        if tensor.mode == FIXED4:
            codes.append((min(delta, 15), None, None, delta if delta >= 15 else None))
        else:
            codes.append(code_tiered(tensor.codebook.ranks, delta))
    planes[-1] = [code[0] for code in codes]
    lane_order = sorted(range(len(values)), key=lambda i: (i * size // 16 % 32, i * size // 16, i))
    tier2, tier3, escapes = ([codes[i][t] for i in lane_order if codes[i][t] is not None] for t in (1, 2, 3))
    variable = pad(pack_fields(tier2 + tier3, 2) + bytes(escapes), 4)
    if len(variable) // 4 <= raw_words:
        pieces = [pack_fields(plane, width).ljust(length, b"\0") for plane, width, length in zip(planes, tensor.plane_widths(), lengths)]
        return Chunk(CODED_CHUNK, pieces, variable, checksum, len(variable) // 4)
    if len(set(values)) == 1 and raw_words:
        return Chunk(CONSTANT_CHUNK, [bytes(n) for n in lengths], struct.pack("<I", values[0]), checksum, 1)
    return raw


@dataclass
class Frame:
    """A frame in parts; bytes() seals it with correct checksums."""

    nonce: int
    has_checksums: bool
    entries: list  # of dict
    records: list
    checksums: list
    tile_records: list
    sections: list  # planes and slots of all entries, padded
    spill: bytes
    # What a damaged frame says instead of the truth, and padding of the directory's sections.
    header: dict = field(default_factory=dict)
    directory_padding: int = None
    checksum_flips: tuple = (0, 0)

    ENTRY = (
        "<QQQIIIIIHBB",
        (
            "codebook_hash",
            "tensor_key",
            "first_block",
            "tokens",
            "tokens_per_unit",
            "channels",
            "first_channel",
            "ranges",
            "slot_words",
            "type",
            "mode",
        ),
    )

    def bytes(self):
        entry_bytes = [struct.pack(self.ENTRY[0], *(entry[name] for name in self.ENTRY[1])) for entry in self.entries]
        directory = [
            struct.pack(f"<{len(self.records)}H", *self.records),
            struct.pack(f"<{len(self.checksums)}I", *self.checksums) if self.has_checksums else b"",
            struct.pack(f"<{len(self.tile_records)}I", *self.tile_records),
        ]
        entries_end = 48 + 48 * len(self.entries)
        padded = [bytearray(up(entries_end, SECTION) - entries_end)] + [bytearray(pad(section, SECTION)) for section in directory]
        if not self.entries:
            padded = []
        if self.directory_padding is not None:
            padded[self.directory_padding][-1] = 1
        body = b"".join([*padded, *self.sections, self.spill])

        total = short_hash(5, two_words(self.nonce))
        for c, record in enumerate(self.records):
            total += short_hash(3, [c, record, self.checksums[c] if self.has_checksums else 0])
        for t, record in enumerate(self.tile_records):
            total += short_hash(4, [t, record])
        h = {
            "magic": b"SZKF",
            "version": 0,
            "flags": int(self.has_checksums),
            "nonce": self.nonce,
            "entry_count": len(self.entries),
            "chunk_count": len(self.records),
            "tile_count": len(self.tile_records),
            "spill_words": len(self.spill) // 4,
            "frame_bytes": entries_end + len(body),
            **self.header,
        }
        header = h["magic"] + struct.pack(
            "<HHQIIIIQ",
            *(h[name] for name in ("version", "flags", "nonce", "entry_count", "chunk_count", "tile_count", "spill_words", "frame_bytes")),
        )
        header += struct.pack("<I", (total & M32) ^ self.checksum_flips[1])
        total = short_hash(1, words_of(header))
        for e, entry in enumerate(entry_bytes):
            total += short_hash(2, [e, *words_of(entry)])
        header += struct.pack("<I", (total & M32) ^ self.checksum_flips[0])
        return header + b"".join(entry_bytes) + body


def build_frame(tensors, nonce=0, has_checksums=True):
    frame = Frame(nonce, has_checksums, [], [], [], [], [], b"")
    for tensor in tensors:
        chunks, per_chunk = [], 2048 // tensor.element_bytes
        for block, r, values in tensor.units():
            for number, first in enumerate(range(0, len(values), per_chunk)):
                chunks.append(encode_chunk(tensor, block, r, number, values[first : first + per_chunk]))
        slots = b""
        for first in range(0, len(chunks), 8):
            tile = chunks[first : first + 8]
            slot_bytes = 4 * (up(tensor.slot_words * len(tile), 8) // 8)
            variable = b"".join(chunk.variable for chunk in tile)
            frame.tile_records.append(len(frame.spill) // 4)
            slots += variable[:slot_bytes].ljust(slot_bytes, b"\0")
            frame.spill += variable[slot_bytes:]
        for plane in range(len(tensor.plane_widths())):
            frame.sections.append(bytearray(pad(b"".join(chunk.pieces[plane] for chunk in chunks), SECTION)))
        frame.sections.append(bytearray(pad(slots, SECTION)))
        frame.records += [chunk.kind << 8 | chunk.words for chunk in chunks]
        frame.checksums += [chunk.checksum for chunk in chunks]
        tokens, ranges, channels = tensor.values.shape
        frame.entries.append(
            {
                "codebook_hash": 0 if tensor.mode == RAW else tensor.codebook.real_identity(),
                "tensor_key": tensor.tensor_key,
                "first_block": tensor.first_block,
                "tokens": tokens,
                "tokens_per_unit": tensor.tokens_per_unit,
                "channels": channels,
                "first_channel": tensor.first_channel,
                "ranges": ranges,
                "slot_words": tensor.slot_words,
                "type": tensor.type,
                "mode": tensor.mode,
            }
        )
    return frame


def encode_frame(tensors, nonce=0, has_checksums=True):
    return build_frame(tensors, nonce, has_checksums).bytes()


def mark(nonce=0):
    """What stands where a frame that does not fit in its budget would be."""
    frame = build_frame([], nonce, has_checksums=False)
    frame.header["flags"] = 2
    return frame


# ---- 8. File ---------------------------------------------------------------------------------------------------------


@dataclass
class Block:
    type: int
    content: bytes
    order: int = 0
    # What a damaged file says.
    reserved: int = 0
    padding: int = 0
    checksum_flip: int = 0
    number: int = None

    def bytes(self, number):
        header = struct.pack("<BBHQ", self.type, self.order, self.reserved, len(self.content))
        checksum = short_hash(8, [number if self.number is None else self.number, *words_of(header)])
        header += struct.pack("<I", checksum ^ self.checksum_flip)
        fill = up(len(self.content), 16) - len(self.content)
        return header + self.content + bytes([self.padding] * fill)


@dataclass
class File:
    """A file in parts: blocks without the index, and the offset in the original of every frame."""

    kind: int
    blocks: list
    frame_offsets: list
    length: int
    magic: bytes = b"SZKV"
    version: int = 0
    reserved: tuple = (0, 0)
    header_flip: int = 0
    index_change: callable = None  # of the list of numbers
    index_flip: int = 0
    trailer_change: callable = None  # of the offset of the index
    trailer_flip: int = 0

    def bytes(self):
        start = self.magic + struct.pack("<HBBI", self.version, self.kind, *self.reserved)
        data = start + struct.pack("<I", short_hash(7, words_of(start)) ^ self.header_flip)
        index = [self.length, len(self.frame_offsets)]
        offsets = iter(self.frame_offsets)
        for number, block in enumerate(self.blocks):
            if block.type == 2:
                index += [len(data), next(offsets)]
            data += block.bytes(number)
        if self.index_change:
            index = self.index_change(index)
        content = struct.pack(f"<{len(index)}Q", *index)
        content += struct.pack("<Q", xxh64(content) ^ self.index_flip)
        at = len(data)
        data += Block(3, content).bytes(len(self.blocks))
        if self.trailer_change:
            at = self.trailer_change(at)
        trailer = struct.pack("<Q", at)
        return data + trailer + struct.pack("<I", short_hash(9, words_of(trailer)) ^ self.trailer_flip) + self.magic


def build_file(kind, pieces, embedded=None):
    """`pieces` are (Tensor, order): token-major (0) or range-major (1) in the original. Returns (File, original)."""
    blocks = [] if embedded is None else [Block(1, embedded.bytes())]
    original, offsets = b"", []
    for tensor, order in pieces:
        blocks.append(Block(2, encode_frame([tensor], nonce=len(original)), order))
        offsets.append(len(original))
        values = tensor.values if order == 0 else tensor.values.transpose(1, 0, 2)
        original += np.ascontiguousarray(values).astype(UNSIGNED[tensor.element_bytes]).tobytes()
    return File(kind, blocks, offsets, len(original)), original


def original_of(tensors):
    """What decoding a bare frame gives: all entries, token-major."""
    return b"".join(tensor.values.astype(UNSIGNED[tensor.element_bytes]).tobytes() for tensor in tensors)
