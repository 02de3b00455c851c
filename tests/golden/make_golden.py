#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden files: make_golden.py [FOLDER]. Always the same bytes; see README.md."""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "format"))

import bad_golden
import model_encoder as model
import random_tensors
from random_tensors import MODES, TYPES

SET = "good/all.szcb"


class Books:
    """The codebooks of all good frames, collected into one set."""

    def __init__(self):
        self.books = []

    def add(self, book):
        book = replace(book, name=f"layers.{len(self.books)}.k" if self.books else "")
        self.books.append(book)
        return book

    def new(self, random, element_type, channels, shared=False):
        return self.add(random_tensors.codebook(random, element_type, channels, shared))


def every_kind(random, books, element_type, mode):
    """A unit of a coded, a raw, a constant chunk, as far as type and mode have them, and a short one of odd length."""
    channels, per_chunk = 7, 2048 // model.ELEMENT_BYTES[element_type]
    book = books.new(random, element_type, channels)
    tokens = (3 * per_chunk if mode else per_chunk) // channels + 4
    values = random_tensors.values(random, book, (tokens, 1, channels), 0, "escapes")
    flat = values.reshape(-1)
    if mode:
        for number, content in ((1, "noise"), (2, "equal")):
            piece = random_tensors.values(random, book, (per_chunk, 1, 1), 0, content)
            flat[number * per_chunk : (number + 1) * per_chunk] = piece.reshape(-1)
    return model.Tensor(element_type, mode, book if mode else None, values, tokens, tensor_key=element_type, slot_words=256 if mode else 0)


def good_frames(books):
    """(name, tensors, nonce, has_checksums) of each."""
    for element_type, type_name in TYPES.items():
        for mode, mode_name in MODES.items():
            random = random_tensors.Random(100, element_type, mode)
            yield f"{type_name}_{mode_name}", [every_kind(random, books, element_type, mode)], mode, True

    random = random_tensors.Random(101)

    def tensor(shape, unit, content="escapes", element_type=model.BF16, mode=model.TIERED, first_channel=0, **fields):
        book = books.new(random, element_type, first_channel + shape[1] * shape[2]) if mode else None
        anything = book or random_tensors.codebook(random, element_type, first_channel + shape[1] * shape[2])
        values = random_tensors.values(random, anything, shape, first_channel, content)
        return model.Tensor(element_type, mode, book, values, unit, first_channel=first_channel, **fields)

    yield "no_entries", [], 2**64 - 1, True
    yield "empty_entry", [tensor((0, 2, 8), 4)], 0, True
    yield "empty_entry_between", [tensor((2, 1, 8), 4), tensor((0, 2, 8), 4), tensor((3, 1, 5), 4)], 0, True
    yield "one_value", [tensor((1, 1, 1), 1)], 0, True
    yield "no_checksums", [tensor((9, 2, 11), 4, slot_words=8)], 0, False
    yield "short_units", [tensor((37, 3, 8), 16, first_channel=8, slot_words=40)], 0, True
    yield "spill", [tensor((20, 3, 8), 1, "clustered", slot_words=4), tensor((11, 1, 16), 1, "noise", slot_words=9)], 0, True
    yield "spill_without_slots", [tensor((20, 3, 8), 1)], 0, True
    yield "largest_slot", [tensor((3, 1, 8), 1, slot_words=1536)], 0, True
    for chunks in (7, 8, 9, 17):
        yield f"{chunks}_chunks", [tensor((chunks, 1, 9), 1, slot_words=13)], 0, True
    yield "odd_channels", [tensor((50, 5, 13), 7, first_channel=3, slot_words=60)], 0, True
    yield "last_block_numbers", [tensor((5, 1, 8), 2, first_block=2**64 - 2, tensor_key=2**64 - 1)], 0, True
    yield "unit_of_many_tokens", [tensor((5, 1, 8), 2**32 - 1)], 0, True
    yield "zeros", [tensor((100, 1, 8), 64, "zeros", slot_words=10)], 0, True
    yield (
        "mixed_row",
        [
            tensor((6, 1, 64), 4, element_type=model.E4M3, slot_words=200, tensor_key=1),
            tensor((6, 1, 4), 4, element_type=model.FP32, mode=model.RAW, tensor_key=2),
            tensor((6, 1, 16), 4, tensor_key=3, slot_words=50),
        ],
        7,
        True,
    )
    shared = books.new(random, model.BF16, 1, shared=True)
    values = random_tensors.values(random, shared, (4, 2, 10), 100, "escapes")
    yield "one_base", [model.Tensor(model.BF16, model.TIERED, shared, values, 3, first_channel=100, slot_words=30)], 0, True
    for element_type in (model.BF16, model.E5M2):
        size = model.ELEMENT_BYTES[element_type]
        special = np.array([0, 1, 0x7F, 0x80, 0x7F80, 0x7F81, 0x7FC0, 0x7FFF, 0x8000, 0x8001, 0xFF80, 0xFFC1, 0xFFFF])
        patterns = np.arange(256) if size == 1 else special
        book = books.new(random, element_type, patterns.size)
        yield (
            f"patterns_{TYPES[element_type]}",
            [model.Tensor(element_type, model.TIERED, book, patterns.reshape(1, 1, -1).astype(model.UNSIGNED[size]), 1)],
            0,
            True,
        )


def accepted_frames(books):
    """Frames that no encoder of ours writes and that a decoder accepts all the same: one vector of FP16 values."""
    random = random_tensors.Random(102)
    book = books.new(random, model.FP16, 1, shared=True)
    symbols = [(book.bases[0] + book.ranks[i % 3]) % 32 for i in range(8)]  # all in tier 1
    values = random_tensors.join(model.FP16, np.array(symbols), random.integers(0, 2**11, 8))
    values = values.astype("<u2").reshape(1, 1, 8)
    tensor = model.Tensor(model.FP16, model.TIERED, book, values, 1, slot_words=64)

    # An escape for a delta that has a code of its own, with bits above the symbol's.
    frame = model.build_frame([tensor])
    assert frame.records == [0] and bytes(frame.sections[3][:2]) == bytes([0b00100100, 0b01001001])
    frame.sections[3][0] |= 3
    frame.sections[4][:2] = bytes([0b1111, book.ranks[0] | 0xE0])
    frame.records[0] = 1
    yield "accepted_escape", frame, [tensor]

    # A raw chunk where codes would do.
    raw = model.build_frame([model.Tensor(model.FP16, model.RAW, None, values, 1)])
    frame, content = model.build_frame([tensor]), bytes(raw.sections[0])
    frame.sections = [
        bytearray(model.pad(piece, model.SECTION))
        for piece in (content[:8], content[8:10], content[10:11], content[11:13], content[13:16] + bytes(29))
    ]
    frame.records[0] = 1 << 8 | 1
    yield "accepted_raw", frame, [tensor]

    # A constant chunk where codes would do.
    equal = replace(tensor, values=np.full((1, 1, 8), int(values[0, 0, 0]), values.dtype))
    frame = model.build_frame([equal])
    frame.sections = [bytearray(model.SECTION)] * 4
    frame.sections.append(bytearray(model.pad(int(values[0, 0, 0]).to_bytes(4, "little"), model.SECTION)))
    frame.records[0] = 2 << 8 | 1
    yield "accepted_constant", frame, [equal]


def good_codebook_sets(books):
    random = random_tensors.Random(103)
    same = random_tensors.codebook(random, model.BF16, 3)
    yield "all", model.CodebookSet(books.books, b"Codebooks of the golden frames")
    yield "empty", model.CodebookSet([])
    names = ("", "a", "a" * 4096, "Schl\u00fcssel \U0001f511")
    yield "names", model.CodebookSet([replace(same, name=name) for name in names], "Herkunft: \u6e90".encode())
    extremes = model.Codebook(
        model.E4M3, [14, 0, 13, 1, 12, 2, 11, 3, 10], [15], "x", 1536, 1536, 2**64 - 1, (0.0, 1.0, 4.0, 1e308, 5e-324, 0.5, 0.25, 0.125)
    )
    yield "extremes", model.CodebookSet([extremes])


def safetensors_original(random, books):
    """Pieces of a small safetensors file: the header with odd white space, an empty tensor, BF16, I64 as bytes."""
    header = (
        b'{ "k":{"dtype":"BF16","shape":[2,6,8],"data_offsets":[0,192]},\n "e":{"dtype":"F32","shape":[0],'
        b'"data_offsets":[192,192]},"i":{"data_offsets":[192,216],"shape":[3],"dtype":"I64"},'
        b'"__metadata__":{"a":"b"}}   '
    )
    start = len(header).to_bytes(8, "little") + header
    raw = np.frombuffer(start, np.uint8).reshape(1, 1, -1)
    book = books[0]
    key = random_tensors.values(random, book, (6, 2, 8), 0, "escapes")
    integers = np.frombuffer(np.arange(3, dtype="<i8").tobytes(), np.uint8).reshape(1, 1, -1)
    return [
        (model.Tensor(model.BYTES, model.RAW, None, raw, 1), 0),
        (model.Tensor(model.BF16, model.TIERED, book, key, 6, slot_words=40), 1),
        (model.Tensor(model.BYTES, model.RAW, None, integers, 1), 0),
    ]


def good_files():
    """(name, File, original, codebook set or None)."""
    random = random_tensors.Random(104)
    books = [random_tensors.codebook(random, model.BF16, 16, name="k"), random_tensors.codebook(random, model.FP32, 5, name="v")]
    codebooks, tensors = model.CodebookSet(books), []
    for book, shape, mode in zip(books, ((7, 2, 8), (4, 1, 5)), (model.TIERED, model.FIXED4)):
        values = random_tensors.values(random, book, shape, 0, "escapes")
        tensors.append(model.Tensor(book.type, mode, book, values, 3, slot_words=20))
    pieces = [(tensors[0], 0), (tensors[1], 0), (tensors[0], 1)]
    yield "plain_embedded", *model.build_file(0, pieces, codebooks), None
    yield "plain", *model.build_file(0, pieces), codebooks
    yield "plain_empty", *model.build_file(0, []), None
    raw = model.Tensor(model.BYTES, model.RAW, None, random.integers(0, 256, (1, 1, 33)).astype(np.uint8), 1)
    yield "plain_raw", *model.build_file(0, [(raw, 0)]), None
    yield "safetensors_embedded", *model.build_file(1, safetensors_original(random, books), codebooks), None
    yield "safetensors", *model.build_file(1, safetensors_original(random, books)), codebooks


def make(folder):
    """Writes all files and the manifest into `folder`."""
    good, bad, written = [], [], {}

    def write(name, data):
        assert name not in written and len(data) <= 16384, name
        written[name] = data

    def add_good(name, kind, data, original=None, **fields):
        entry = {"file": name, "kind": kind, **fields}
        if original is not None:
            entry |= {"bytes": len(original), "sha256": hashlib.sha256(original).hexdigest()}
        write(name, data)
        good.append(entry)

    books = Books()
    for name, tensors, nonce, has_checksums in good_frames(books):
        data = model.encode_frame(tensors, nonce, has_checksums)
        add_good(f"good/{name}.frame", "frame", data, model.original_of(tensors), codebooks=SET, nonce=nonce)
    for name, frame, tensors in accepted_frames(books):
        add_good(f"good/{name}.frame", "frame", frame.bytes(), model.original_of(tensors), codebooks=SET, nonce=0)
    for name, codebook_set in good_codebook_sets(books):
        identities = [f"{book.real_identity():016x}" for book in codebook_set.codebooks]
        add_good(f"good/{name}.szcb", "codebook_set", codebook_set.bytes(), identities=identities)
    for name, file, original, outside in good_files():
        codebooks = None
        if outside:
            codebooks = "good/files.szcb"
            if codebooks not in written:
                write(codebooks, outside.bytes())
                good.append(
                    {
                        "file": codebooks,
                        "kind": "codebook_set",
                        "identities": [f"{book.real_identity():016x}" for book in outside.codebooks],
                    }
                )
            assert written[codebooks] == outside.bytes()
        add_good(f"good/{name}.szkv", "file", file.bytes(), original, codebooks=codebooks)

    write(bad_golden.SET, bad_golden.codebook_set().bytes())
    for name, kind, status, fault, data, fields in bad_golden.cases():
        suffix = {"frame": "frame", "codebook_set": "szcb", "file": "szkv"}[kind]
        write(f"bad/{name}.{suffix}", data)
        bad.append({"file": f"bad/{name}.{suffix}", "kind": kind, "status": f"SPLITZIP_ERROR_{status}", "fault": fault, **fields})

    for part in ("good", "bad"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for name, data in written.items():
        (folder / name).write_bytes(data)
    lines = [
        f' "{part}": [\n' + ",\n".join("  " + json.dumps(entry) for entry in entries) + "\n ]"
        for part, entries in (("good", good), ("bad", bad))
    ]
    (folder / "manifest.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
