# SPDX-License-Identifier: Apache-2.0
"""What the model encoder writes, the reference decoder reads: two programs from one document."""

from dataclasses import replace

import numpy as np
import pytest
import reference_decoder as reference

import model_encoder as model
import random_tensors

ALL = [(t, m, c) for t in random_tensors.TYPES for m in random_tensors.MODES for c in random_tensors.CONTENTS]


def codebooks_of(tensors):
    books = {tensor.codebook.real_identity(): tensor.codebook for tensor in tensors if tensor.codebook}
    named = [replace(book, name=str(i)) for i, book in enumerate(books.values())]
    return reference.decode_codebook_set(model.CodebookSet(named, b"random").bytes())


def check(tensors, nonce=0, has_checksums=True):
    frame = model.encode_frame(tensors, nonce, has_checksums)
    decoded_checksums, entries = reference.decode_frame(frame, codebooks_of(tensors), nonce)
    assert decoded_checksums == has_checksums
    assert len(entries) == len(tensors)
    for (entry, values), tensor in zip(entries, tensors):
        assert values.shape == tensor.values.shape and np.array_equal(values, tensor.values)
        assert entry.tensor_key == tensor.tensor_key
    return frame


@pytest.mark.parametrize(
    "value, expected",
    [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999), (bytes(range(101)), None), (bytes(1024), None)],
)
def test_xxh64(value, expected):
    assert reference.xxh64(value) == model.xxh64(value)
    assert expected in (None, model.xxh64(value))


@pytest.mark.parametrize("element_type, mode, content", ALL, ids=lambda x: str(x))
def test_every_type_mode_and_content(element_type, mode, content):
    random = random_tensors.Random(element_type, mode, random_tensors.CONTENTS.index(content))
    check([random_tensors.tensor(random, element_type, mode, content) for _ in range(3)], nonce=17)


@pytest.mark.parametrize("seed", range(60))
def test_random_frames(seed):
    random = random_tensors.Random(1, seed)
    tensors = [random_tensors.tensor(random) for _ in range(random.integers(0, 4))]
    check(tensors, int(random.integers(2**64)), bool(random.random() < 0.8))


@pytest.mark.parametrize("element_type", random_tensors.TYPES, ids=random_tensors.TYPES.values())
@pytest.mark.parametrize("mode", random_tensors.MODES, ids=random_tensors.MODES.values())
def test_every_pattern(element_type, mode):
    """All patterns of an 8- or 16-bit value; of FP32 all sixteen-bit halves."""
    random = random_tensors.Random(2, element_type, mode)
    size = model.ELEMENT_BYTES[element_type]
    patterns = np.arange(1 << min(16, 8 * size), dtype=model.UNSIGNED[size])
    if size == 4:
        patterns = patterns[::16] << 16 | patterns[::16][::-1]
    elif size == 2:
        patterns = random.permutation(patterns)[:8192]
    book = random_tensors.codebook(random, element_type, 16)
    check([model.Tensor(element_type, mode, book if mode else None, patterns.reshape(-1, 1, 16), 4096)])


@pytest.mark.parametrize("size", [1, 2, 4], ids=["fp8_e5m2", "bf16", "fp32"])
def test_every_length_up_to_two_vectors_and_around_a_chunk(size):
    element_type = {1: model.E5M2, 2: model.BF16, 4: model.FP32}[size]
    random = random_tensors.Random(3, size)
    chunk = 2048 // size
    for count in [*range(1, 34 // size + 1), chunk - 1, chunk, chunk + 1, 8 * chunk, 8 * chunk + 1]:
        book = random_tensors.codebook(random, element_type, 1)
        array = random_tensors.values(random, book, (count, 1, 1), 0, "escapes")
        for mode in (model.FIXED4, model.TIERED):
            check([model.Tensor(element_type, mode, book, array, count, slot_words=100)])


def test_all_chunk_kinds_and_spills_occur():
    random = random_tensors.Random(4)
    book = random_tensors.codebook(random, model.BF16, 8)
    contents = ("fitting", "noise", "equal", "clustered")
    pieces = [random_tensors.values(random, book, (128, 1, 8), 0, content) for content in contents]
    tensor = model.Tensor(model.BF16, model.TIERED, book, np.concatenate(pieces * 3), 200, slot_words=300)
    frame = model.build_frame([tensor])
    assert {record >> 8 for record in frame.records} == {0, 1, 2}
    assert frame.spill and len(frame.tile_records) == 2
    check([tensor])


@pytest.mark.parametrize("embed", [False, True])
def test_files(embed):
    random = random_tensors.Random(5)
    books, pieces = [], []
    for number in range(4):
        tensor = random_tensors.tensor(random, mode=number % 3)
        if tensor.codebook:
            books.append(replace(tensor.codebook, name=str(number)))
        pieces.append((tensor, number % 2))
    embedded = model.CodebookSet(books)
    file, original = model.build_file(0, pieces, embedded if embed else None)
    outside = {} if embed else reference.decode_codebook_set(embedded.bytes())
    assert reference.decode_file(file.bytes(), outside) == original
    assert reference.decode_file(model.build_file(0, [])[0].bytes(), {}) == b""


def test_truncation_and_bit_flips_are_noticed():
    """Every truncation and every flipped bit of a small frame: an error, or the identical values."""
    random = random_tensors.Random(6)
    book = random_tensors.codebook(random, model.BF16, 6)
    array = random_tensors.values(random, book, (3, 1, 6), 0, "escapes")
    tensor = model.Tensor(model.BF16, model.TIERED, book, array, 2, slot_words=12)
    codebooks, frame = codebooks_of([tensor]), check([tensor])
    for length in range(len(frame)):
        with pytest.raises(reference.FormatError) as error:
            reference.decode_frame(frame[:length], codebooks)
        assert error.value.args[0] == "TRUNCATED"
    for bit in range(8 * len(frame)):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert np.array_equal(reference.decode_frame(bytes(damaged), codebooks)[1][0][1], array)
        except reference.FormatError:
            pass
