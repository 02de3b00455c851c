# SPDX-License-Identifier: Apache-2.0
"""The bad golden files: each has one fault, and everything else is right, checksums included."""

from dataclasses import replace

import numpy as np

import model_encoder as model
from random_tensors import join

SET = "bad/codebooks.szcb"

# Six channels; the base of channel c is 100 + c, so that equal values have different deltas. Ranks are 0 to 8.
BOOK = model.Codebook(model.BF16, list(range(9)), [100, 101, 102, 103, 104, 105], "bf16")
BYTES_BOOK = model.Codebook(model.BYTES, list(range(9)), [2], "bytes")
FP16_BOOK = model.Codebook(model.FP16, list(range(9)), [7], "fp16")


def codebook_set():
    return model.CodebookSet([BOOK, BYTES_BOOK, FP16_BOOK])


def values_of(book, rows):
    """Rows of deltas to values [tokens][1][channels]; the rest is some number that differs from value to value."""
    out = []
    for t, row in enumerate(rows):
        for c, delta in enumerate(row):
            base = book.bases[c] if len(book.bases) > 1 else book.bases[0]
            symbol = (base + delta) % (1 << model.SYMBOL_BITS[book.type])
            rest_bits = 8 * model.ELEMENT_BYTES[book.type] - model.SYMBOL_BITS[book.type]
            out.append(join(book.type, symbol, (37 * (t * len(row) + c) + 5) % (1 << rest_bits)))
    size = model.ELEMENT_BYTES[book.type]
    return np.array(out, model.UNSIGNED[size]).reshape(len(rows), 1, -1)


# Each row is a unit of one chunk: 6 values in one vector, of which two are padding.
ROWS = [
    [0, 1, 2, 0, 1, 2],  # coded, no variable part
    [0, 4, 0, 0, 0, 0],  # word 0: one tier-2 code
    [0, 0, 200, 0, 0, 0],  # word 1: one escape
    [91, 92, 93, 94, 95, 96],  # words 2 and 3: raw
    [0, 0, 0, 0, 0, 0],  # word 4: constant (below)
    [3, 8, 5, 0, 0, 0],
]  # word 5: three tier-2 codes and a tier-3 code
SLOT_WORDS = 12  # of 8 chunks; this tile of 6 has 9 words, 3 of them unused


def tensor(mode=model.TIERED, slot_words=SLOT_WORDS):
    values = values_of(BOOK, ROWS)
    values[4] = 0x1234
    return model.Tensor(model.BF16, mode, BOOK if mode else None, values, 1, tensor_key=3, slot_words=slot_words)


def base_frame():
    frame = model.build_frame([tensor()], nonce=5)
    assert frame.records == [0x000, 0x001, 0x001, 0x102, 0x201, 0x001] and not frame.spill
    return frame


def spilled_frame():
    frame = model.build_frame([tensor(slot_words=4)], nonce=5)
    assert len(frame.spill) == 12 and frame.tile_records == [0]
    return frame


def raw_frame():
    return model.build_frame([tensor(model.RAW, 0)], nonce=5)


def frame_faults():
    """(name, status, fault, bytes, other fields of the manifest)."""

    def sealed(name, status, fault, change, base=base_frame, **fields):
        frame = base()
        change(frame)
        return name, status, fault, frame.bytes(), fields

    def header(name, status, fault, **values):
        return sealed(name, status, fault, lambda frame: frame.header.update(values))

    def entry(name, status, fault, base=base_frame, **values):
        return sealed(name, status, fault, lambda frame: frame.entries[0].update(values), base)

    def record(name, fault, number, value, base=base_frame):
        return sealed(name, "CORRUPT_DIRECTORY", fault, lambda frame: frame.records.__setitem__(number, value), base)

    def payload(name, fault, section, at, flip, status="CORRUPT_PAYLOAD", base=base_frame):
        def change(frame):
            frame.sections[section][at] ^= flip

        return sealed(name, status, fault, change, base)

    whole = base_frame().bytes()
    yield header("frame_magic", "BAD_MAGIC", "first byte of the magic", magic=b"TZKF")
    yield header("frame_version", "UNSUPPORTED_VERSION", "version 1", version=1)
    yield header("frame_flag", "UNSUPPORTED_FLAG", "flag bit 2", flags=5)
    for name, length in (
        ("nothing", 0),
        ("in_magic", 3),
        ("in_header", 47),
        ("in_entries", 95),
        ("in_directory", 100),
        ("last_byte", len(whole) - 1),
    ):
        yield f"frame_truncated_{name}", "TRUNCATED", f"only the first {length} bytes", whole[:length], {}
    yield "frame_trailing_byte", "TRAILING_BYTES", "a byte after the frame", whole + b"\0", {}
    yield sealed("frame_header_checksum", "CORRUPT_HEADER", "header checksum", lambda f: setattr(f, "checksum_flips", (1, 0)))
    yield header("frame_entry_count", "CORRUPT_HEADER", "65,536 entries", entry_count=65536)
    yield header("frame_chunk_count", "CORRUPT_HEADER", "one chunk too many", chunk_count=7)
    yield header("frame_tile_count", "CORRUPT_HEADER", "one tile too few", tile_count=0)
    yield (
        "frame_bytes_too_many",
        "CORRUPT_HEADER",
        "frame_bytes includes 16 bytes that are there, but in no section",
        seal_length(16) + bytes(16),
        {},
    )
    yield ("frame_bytes_too_few", "CORRUPT_HEADER", "frame_bytes and frame are 16 bytes short", seal_length(-16)[:-16], {})

    yield entry("entry_type_0", "UNSUPPORTED_TYPE", "type 0", type=0)
    yield entry("entry_type_7", "UNSUPPORTED_TYPE", "type 7", type=7)
    yield entry("entry_mode", "UNSUPPORTED_MODE", "mode 3", mode=3)
    yield entry("entry_tokens_per_unit", "CORRUPT_HEADER", "tokens_per_unit 0", empty_frame, tokens_per_unit=0)
    yield entry("entry_channels", "CORRUPT_HEADER", "channels 0", empty_frame, channels=0)
    yield entry("entry_ranges", "CORRUPT_HEADER", "ranges 0", empty_frame, ranges=0)
    yield entry("entry_reach", "CORRUPT_HEADER", "first_channel + ranges * channels = 2^32", base=raw_frame, first_channel=2**32 - 6)
    yield ("entry_slot_words", "CORRUPT_HEADER", "slot_words 1537", model.encode_frame([replace(short_tensor(), slot_words=1537)], 5), {})
    yield ("entry_raw_with_slot", "CORRUPT_HEADER", "slot_words 1 in mode raw", model.encode_frame([tensor(model.RAW, 1)], 5), {})
    yield entry("entry_raw_with_codebook", "CORRUPT_HEADER", "a codebook in mode raw", base=raw_frame, codebook_hash=1)
    yield entry("entry_without_codebook", "CORRUPT_HEADER", "codebook_hash 0 in mode tiered", codebook_hash=0)
    yield entry("entry_huge", "CORRUPT_HEADER", "far more than 2^24 chunks", base=raw_frame, tokens=2**32 - 1, ranges=2**15, channels=2**16)
    yield "entry_too_many_chunks", "CORRUPT_HEADER", "2^24 chunks", announced(2**24), {}
    yield ("frame_truncated_large", "TRUNCATED", "header and entry of a frame of 2^24 - 128 chunks", announced(2**24 - 128), {})
    yield entry("entry_tokens", "CORRUPT_HEADER", "a token more than there are chunks", tokens=7)

    yield sealed("directory_checksum", "CORRUPT_DIRECTORY", "directory checksum", lambda f: setattr(f, "checksum_flips", (0, 1)))
    for number, name in enumerate(("entries", "records", "checksums", "tile_records")):
        yield sealed(
            f"directory_padding_{name}",
            "CORRUPT_DIRECTORY",
            f"padding of the {name}",
            lambda f, number=number: setattr(f, "directory_padding", number),
            two_entries_frame,
        )
    yield record("record_reserved_bit", "bit 10 of a record", 0, 0x400)
    yield record("record_kind", "kind 3", 5, 0x301)
    yield record("record_coded_too_long", "a coded chunk of 3 words where raw takes 2", 5, 0x003)
    yield record("record_raw_words", "a raw chunk of 1 word instead of 2", 3, 0x101)
    yield record("record_constant_words", "a constant chunk of 2 words", 4, 0x202)
    yield record("record_coded_in_mode_raw", "a coded chunk in mode raw", 0, 0x000, raw_frame)
    yield record("record_constant_in_mode_raw", "a constant chunk in mode raw", 0, 0x201, raw_frame)
    yield record("record_words_in_mode_raw", "a word in mode raw", 0, 0x101, raw_frame)
    yield ("record_constant_without_words", "CORRUPT_DIRECTORY", "a constant chunk where raw takes 0 words", constant_without_words(), {})
    yield sealed(
        "tile_record", "CORRUPT_DIRECTORY", "tile record 1 instead of 0", lambda f: f.tile_records.__setitem__(0, 1), spilled_frame
    )
    yield sealed(
        "spill_words_too_many",
        "CORRUPT_DIRECTORY",
        "a word of the spill that no tile has",
        lambda f: setattr(f, "spill", f.spill + bytes(4)),
        spilled_frame,
    )
    yield sealed(
        "spill_words_too_few",
        "CORRUPT_DIRECTORY",
        "the last word of the spill is missing",
        lambda f: setattr(f, "spill", f.spill[:-4]),
        spilled_frame,
    )

    yield "mark", "OVER_BUDGET", "a mark: the frame did not fit in its budget", model.mark(5).bytes(), {}
    yield "mark_nonce", "NONCE_MISMATCH", "a mark of an earlier frame", model.mark(4).bytes(), {}
    yield header("mark_with_entries", "CORRUPT_HEADER", "a mark with an entry", flags=2)
    yield sealed(
        "mark_with_checksums",
        "CORRUPT_HEADER",
        "a mark with the flag of checksums",
        lambda frame: frame.header.update(flags=3),
        lambda: model.mark(5),
    )
    yield sealed(
        "mark_with_spill",
        "CORRUPT_HEADER",
        "a mark with a word of spill",
        lambda frame: frame.header.update(spill_words=1),
        lambda: model.mark(5),
    )
    yield "nonce", "NONCE_MISMATCH", "nonce 5 where the receiver expects 6", whole, {"nonce": 6}
    yield entry("codebook_unknown", "CODEBOOK_REQUIRED", "a codebook that is not in the set", codebook_hash=1)
    yield entry("codebook_type", "CODEBOOK_MISMATCH", "a codebook of another type", codebook_hash=FP16_BOOK.real_identity())
    yield entry("codebook_reach", "CODEBOOK_MISMATCH", "an entry beyond the codebook's channels", first_channel=1)
    yield (
        "codebook_reach_empty",
        "CODEBOOK_MISMATCH",
        "an empty entry beyond the codebook's channels",
        model.encode_frame([model.Tensor(model.BF16, model.TIERED, BOOK, np.zeros((0, 1, 7), "<u2"), 1)], 5),
        {},
    )

    # Sections of the entry: 0 rest plane, 8 bytes a chunk; 1 code plane, 2 bytes a chunk; 2 slots.
    yield payload("padding_of_plane", "padding of the code plane", 1, 31, 1)
    yield payload("padding_of_slots", "padding of the slots", 2, 63, 1)
    yield payload("padding_of_rest_plane", "padding of the rest plane", 0, 31, 1, base=short_frame)
    yield payload("slot_unused_word", "an unused word of a slot", 2, 4 * 8, 1)
    yield payload("padding_value_rest", "rest of a padding value", 0, 6, 1)
    yield payload("padding_value_code", "code of a padding value", 1, 1, 1 << 4)
    yield payload("padding_value_in_mode_raw", "a padding value in mode raw", 0, 12, 1, base=raw_frame)
    yield payload("code_needs_more", "a code 3 that the variable part has nothing for", 1, 0, 3)
    yield sealed("variable_part_too_long", "CORRUPT_PAYLOAD", "a word that no code needs", add_word)
    yield payload("tier_padding_bits", "bits between the tiers and the escapes", 2, 0, 0x80)
    yield payload("variable_part_padding", "bytes after the escapes", 2, 4 + 3, 1)
    yield payload("raw_padding_value", "a padding value of a raw chunk", 2, 8 + 2, 1)
    yield payload("raw_padding", "bytes after the values of a raw chunk", 2, 8 + 7, 1)
    yield payload("constant_extension", "bits above a constant value", 2, 16 + 2, 1)
    yield payload("constant_rest_plane", "rest plane of a constant chunk", 0, 4 * 8, 1)
    yield payload("constant_code_plane", "code plane of a constant chunk", 1, 4 * 2, 1)
    yield payload("fixed4_variable_part_padding", "bytes after the escapes in mode fixed4", 2, 2, 1, base=fixed4_frame)
    yield sealed(
        "fixed4_escape_missing",
        "CORRUPT_PAYLOAD",
        "more codes 15 than bytes in the variable part",
        lambda f: f.sections[1].__setitem__(slice(0, 3), b"\xff\xff\xff"),
        fixed4_frame,
    )

    yield payload("content_rest", "a bit of a rest", 0, 0, 1, "CHECKSUM_MISMATCH")
    yield payload("content_code", "another code", 1, 0, 2, "CHECKSUM_MISMATCH")
    yield payload("content_tier", "another tier-2 code", 2, 0, 3, "CHECKSUM_MISMATCH")
    yield payload("content_escape", "another escape byte", 2, 4 + 1, 1, "CHECKSUM_MISMATCH")
    yield payload("content_raw", "a bit of a raw chunk", 2, 8, 1, "CHECKSUM_MISMATCH")
    yield payload("content_constant", "another constant value", 2, 16, 1, "CHECKSUM_MISMATCH")
    yield payload("content_in_mode_raw", "a bit of a value in mode raw", 0, 0, 1, "CHECKSUM_MISMATCH", raw_frame)
    yield sealed("content_checksum", "CHECKSUM_MISMATCH", "checksum of chunk 2", lambda f: f.checksums.__setitem__(2, 1))
    yield entry("content_tensor_key", "CHECKSUM_MISMATCH", "another tensor_key", tensor_key=4)
    yield entry("content_first_block", "CHECKSUM_MISMATCH", "another first_block", first_block=2**32)
    yield sealed("content_swapped_chunks", "CHECKSUM_MISMATCH", "two raw chunks exchanged", swap, raw_frame)


def announced(chunks):
    """Header and entry of a frame of so many one-byte chunks, and nothing else."""
    frame = empty_frame()
    frame.entries[0].update(type=model.BYTES, tokens=chunks, channels=1)
    frame.header = {
        "chunk_count": chunks,
        "tile_count": chunks // 8,
        "frame_bytes": 96 + 2 * chunks + 4 * chunks + chunks // 2 + 16 * chunks,
    }
    return frame.bytes()


def seal_length(excess):
    frame = base_frame()
    frame.header["frame_bytes"] = len(frame.bytes()) + excess
    return frame.bytes()


def short_tensor():
    """Three chunks: 24 bytes of rest plane, so 8 bytes of padding."""
    return replace(tensor(), values=tensor().values[:3])


def short_frame():
    return model.build_frame([short_tensor()], nonce=5)


def empty_frame():
    return model.build_frame([model.Tensor(model.BF16, model.RAW, None, np.zeros((0, 1, 6), "<u2"), 1)], nonce=5)


def two_entries_frame():
    return model.build_frame([tensor(), short_tensor()], nonce=5)


def constant_without_words():
    """bytes in mode fixed4: all planes have 16 bytes a vector, so raw_words is 0."""
    values = np.full((1, 1, 16), 0x15, np.uint8)  # delta is 15: an escape
    frame = model.build_frame([model.Tensor(model.BYTES, model.FIXED4, BYTES_BOOK, values, 1, slot_words=8)], nonce=5)
    assert frame.records == [0x100]
    frame.records = [0x201]
    frame.sections = [bytearray(model.SECTION), bytearray(model.SECTION), bytearray(model.pad(bytes([0x15]), model.SECTION))]
    return frame.bytes()


def fixed4_frame():
    """One chunk of six values, with two escapes."""
    values = values_of(BOOK, [[0, 30, 0, 40, 0, 0]])
    frame = model.build_frame([model.Tensor(model.BF16, model.FIXED4, BOOK, values, 1, slot_words=8)], nonce=5)
    assert frame.records == [0x001] and bytes(frame.sections[2][:4]) == bytes([30, 40, 0, 0])
    return frame


def add_word(frame):
    """The last chunk gets a word of the slot that it does not need."""
    assert frame.records[5] == 0x001
    frame.records[5] = 0x002


def swap(frame):
    first, second = frame.sections[0][:16], frame.sections[0][16:32]
    frame.sections[0][:32] = second + first


def codebook_set_faults():
    def case(name, fault, status="CODEBOOK_CORRUPT", book=None, **fields):
        books = [replace(FP16_BOOK, **(book or {})), BYTES_BOOK]
        return f"set_{name}", status, fault, replace(model.CodebookSet(books, b"origin"), **fields).bytes()

    def statistic(number, value):
        return {"statistics": tuple(value if i == number else 0.0 for i in range(8))}

    whole = model.CodebookSet([FP16_BOOK], b"origin").bytes()
    yield case("magic", "first byte of the magic", "BAD_MAGIC", magic=b"TZCB")
    yield case("version", "version 1", "UNSUPPORTED_VERSION", version=1)
    yield case("reserved", "reserved field of the header", reserved=1)
    yield case("checksum", "checksum", checksum_flip=1)
    yield case("set_bytes", "set_bytes too large by 8", set_bytes_excess=8)
    yield case("count_too_large", "a codebook more than there is", count=3)
    yield case("count_too_small", "a codebook less than there is", count=1)
    yield case("provenance_bytes", "provenance_bytes 65,536", provenance_bytes=65536)
    yield case("provenance_padding", "padding of the provenance", provenance_padding=1)
    yield case("provenance_text", "provenance that is not UTF-8", provenance=b"\xc0\x80")
    yield case("provenance_zero", "a zero byte in the provenance", provenance=b"a\0b")
    yield "set_truncated", "CODEBOOK_CORRUPT", "the last byte is missing", whole[:-1]
    yield "set_truncated_header", "CODEBOOK_CORRUPT", "31 bytes", whole[:31]
    yield "set_trailing", "CODEBOOK_CORRUPT", "eight bytes too many", whole + bytes(8)
    yield case("identity", "identity of other content", book={"identity": 1})
    yield case("type", "type 7", book={"type": 7, "identity": 0})
    yield case("base_count_0", "no bases", book={"bases": []})
    yield case("base_count_large", "2^24 + 1 bases", book={"base_count": 2**24 + 1})
    yield case("rank_twice", "a rank that occurs twice", book={"ranks": [0, 1, 2, 3, 4, 5, 6, 7, 7]})
    yield case("rank_15", "rank 15", book={"ranks": [0, 1, 2, 3, 4, 5, 6, 7, 15]})
    yield case("base", "base 32 of a symbol of 5 bits", book={"bases": [32]})
    yield case("name_bytes", "a name of 4097 bytes", book={"name": "n" * 4097})
    yield case("name_text", "a name that is not UTF-8", book={"name_bytes": b"\xff"})
    yield case("name_surrogate", "a name with an encoded surrogate", book={"name_bytes": b"\xed\xa0\x80"})
    yield case("name_zero", "a zero byte in a name", book={"name_bytes": b"a\0"})
    yield case("name_twice", "two codebooks of one name", book={"name": BYTES_BOOK.name})
    yield case("record_reserved", "reserved field of a record", book={"reserved": 1})
    yield case("record_padding", "padding of a record", book={"padding": 1})
    yield case("fixed4_slot", "fixed4_slot_words 1537", book={"fixed4_slot_words": 1537})
    yield case("tiered_slot", "tiered_slot_words 1537", book={"tiered_slot_words": 1537})
    yield case("statistic_nan", "a statistic that is no number", book=statistic(2, float("nan")))
    yield case("statistic_infinite", "an infinite statistic", book=statistic(3, float("inf")))
    yield case("statistic_negative", "a negative statistic", book=statistic(7, -1.0))
    yield case("statistic_negative_zero", "a negative zero", book=statistic(4, -0.0))
    yield case("statistic_coverage8", "a coverage above 1", book=statistic(0, 1.5))
    yield case("statistic_coverage16", "a coverage above 1", book=statistic(1, 1.5))


def file_faults():
    """(name, status, fault, bytes, codebook set)."""
    small = replace(tensor(), values=tensor().values[:2])
    embedded = codebook_set()

    def base():
        return model.build_file(0, [(small, 0), (tensor(), 1)], embedded)[0]

    def case(name, status, fault, change=lambda file: None, codebooks=None, cut=None, tail=b"", **fields):
        file = replace(base(), **fields)
        change(file)
        return f"file_{name}", status, fault, file.bytes()[:cut] + tail, codebooks

    def block(name, status, fault, index, **fields):
        def change(file):
            file.blocks[index] = replace(file.blocks[index], **fields)

        return case(name, status, fault, change)

    def frame(name, status, fault, data):
        """The second frame is another one."""
        return block(name, status, fault, 2, content=data)

    first = 12 * 2
    yield case("magic", "BAD_MAGIC", "first byte of the magic", magic=b"TZKV")
    yield case("version", "UNSUPPORTED_VERSION", "version 1", version=1)
    yield case("kind", "CORRUPT_HEADER", "kind 2", kind=2)
    yield case("reserved_byte", "CORRUPT_HEADER", "reserved byte", reserved=(1, 0))
    yield case("reserved_word", "CORRUPT_HEADER", "reserved word", reserved=(0, 1))
    yield case("header_checksum", "CORRUPT_HEADER", "checksum of the file header", header_flip=1)
    yield block("block_type_0", "CORRUPT_HEADER", "block type 0", 1, type=0)
    yield block("block_type_4", "CORRUPT_HEADER", "block type 4", 1, type=4)
    yield block("block_order", "CORRUPT_HEADER", "order 2", 1, order=2)
    yield block("block_order_of_set", "CORRUPT_HEADER", "order 1 of a codebook set", 0, order=1)
    yield block("block_reserved", "CORRUPT_HEADER", "reserved field of a block header", 1, reserved=1)
    yield block("block_checksum", "CORRUPT_HEADER", "checksum of a block header", 1, checksum_flip=1)
    yield block("block_number", "CORRUPT_HEADER", "checksum of block 1 as if it were block 2", 1, number=2)
    yield block("block_padding", "CORRUPT_PAYLOAD", "padding of a block", 0, padding=1)
    yield case("second_set", "CORRUPT_HEADER", "a second codebook set", lambda f: f.blocks.insert(1, f.blocks[0]))
    yield case("late_set", "CORRUPT_HEADER", "a codebook set after a frame", lambda f: f.blocks.insert(1, f.blocks.pop(0)), SET)
    yield block(
        "set_corrupt", "CODEBOOK_CORRUPT", "checksum of the embedded codebook set", 0, content=replace(embedded, checksum_flip=1).bytes()
    )
    yield block(
        "other_set",
        "CODEBOOK_REQUIRED",
        "an embedded set without the codebook; the caller's has it",
        0,
        content=model.CodebookSet([FP16_BOOK]).bytes(),
    )[:4] + (SET,)
    yield ("file_no_set", "CODEBOOK_REQUIRED", "no codebooks at all", model.build_file(0, [(small, 0)])[0].bytes(), None)
    yield frame("frame_nonce", "NONCE_MISMATCH", "nonce of a frame", model.encode_frame([tensor()], nonce=first + 1))
    yield frame(
        "frame_without_checksums", "CORRUPT_HEADER", "a frame without checksums", model.encode_frame([tensor()], first, has_checksums=False)
    )
    yield frame("frame_two_entries", "CORRUPT_HEADER", "a frame of two entries", model.encode_frame([tensor(), small], first))
    yield frame("frame_no_entries", "CORRUPT_HEADER", "a frame without entries", model.encode_frame([], first))
    damaged = model.build_frame([tensor()], first)
    damaged.sections[0][0] ^= 1
    yield frame("frame_content", "CHECKSUM_MISMATCH", "a bit of a frame's content", damaged.bytes())
    yield frame(
        "frame_trailing", "TRAILING_BYTES", "a byte after a frame, inside of its block", model.encode_frame([tensor()], first) + b"\0"
    )
    yield frame("frame_short", "TRUNCATED", "the last byte of a frame is missing in its block", model.encode_frame([tensor()], first)[:-1])
    yield case("index_length", "CORRUPT_DIRECTORY", "length of the original", index_change=lambda x: [x[0] + 1, *x[1:]])
    yield case("index_count", "CORRUPT_DIRECTORY", "a frame is missing in the index", index_change=lambda x: [x[0], 1, *x[2:4]])
    yield case("index_block_offset", "CORRUPT_DIRECTORY", "offset of a block", index_change=lambda x: [*x[:2], x[2] + 16, *x[3:]])
    yield case("index_original_offset", "CORRUPT_DIRECTORY", "offset in the original", index_change=lambda x: [*x[:5], x[5] + 1])
    yield case("index_longer", "CORRUPT_DIRECTORY", "a number too many in the index", index_change=lambda x: [*x, 0])
    yield case("index_checksum", "CORRUPT_DIRECTORY", "checksum of the index", index_flip=1)
    yield case("trailer_offset", "CORRUPT_HEADER", "offset in the trailer", trailer_change=lambda at: at - 16)
    yield case("trailer_checksum", "CORRUPT_HEADER", "checksum of the trailer", trailer_flip=1)
    yield case("trailer_magic", "CORRUPT_HEADER", "magic of the trailer", cut=-1, tail=b"W")
    yield case("trailing_byte", "TRAILING_BYTES", "a byte after the trailer", tail=b"\0")
    length = len(base().bytes())
    for name, end in (
        ("nothing", 0),
        ("in_header", 15),
        ("in_block_header", 31),
        ("in_frame", length // 2),
        ("in_index", length - 30),
        ("in_trailer", length - 1),
    ):
        yield case(f"truncated_{name}", "TRUNCATED", f"only the first {end} bytes", cut=end)


def cases():
    """(name, kind, status, fault, bytes, fields of the manifest)."""
    for name, status, fault, data, fields in frame_faults():
        yield name, "frame", status, fault, data, {"codebooks": SET, "nonce": 5, **fields}
    for name, status, fault, data in codebook_set_faults():
        yield name, "codebook_set", status, fault, data, {}
    for name, status, fault, data, codebooks in file_faults():
        yield name, "file", status, fault, data, {"codebooks": codebooks}
