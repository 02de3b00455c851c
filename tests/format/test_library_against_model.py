# SPDX-License-Identifier: Apache-2.0
"""The library against the model encoder (equal bytes) and the reference decoder (equal values, equal status)."""

from dataclasses import replace

import numpy as np
import pytest
import reference_decoder as reference

import library
import model_encoder as model
import random_tensors

pytestmark = pytest.mark.skipif(not library.PATH, reason="SPLITZIP_LIBRARY is not set")
NO_CODEBOOKS = model.CodebookSet([]).bytes()


def set_of(tensors):
    books = {tensor.codebook.real_identity(): tensor.codebook for tensor in tensors if tensor.codebook}
    return model.CodebookSet([replace(book, name=f"tensor {i}") for i, book in enumerate(books.values())]).bytes()


def outcome(decode, *arguments):
    """Values, or the name of the status."""
    try:
        return decode(*arguments)
    except (library.LibraryError, reference.FormatError) as error:
        return error.args[0]


def reference_values(frame, codebooks, nonce=None):
    return [values for _, values in reference.decode_frame(frame, codebooks, nonce)[1]]


def same(a, b):
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a == b
    return len(a) == len(b) and all(x.shape == y.shape and np.array_equal(x, y) for x, y in zip(a, b))


def same_outcome(a, b):
    """Of several faults in the payload any may be found first."""
    payload = {"CORRUPT_PAYLOAD", "CHECKSUM_MISMATCH"}
    return same(a, b) or (isinstance(a, str) and isinstance(b, str) and {a, b} == payload)


def compare(tensors, nonce=0, has_checksums=True, gaps=None):
    codebooks = library.CodebookSet(set_of(tensors))
    expected = model.encode_frame(tensors, nonce, has_checksums)
    for way in library.ways:
        assert library.encode(tensors, codebooks, nonce, has_checksums, gaps=gaps) == expected, way
        assert same(library.decode(expected, codebooks, nonce, gaps), [tensor.values for tensor in tensors]), way
    return expected, codebooks


@pytest.mark.parametrize("mode", random_tensors.MODES, ids=random_tensors.MODES.values())
@pytest.mark.parametrize("element_type", random_tensors.TYPES, ids=random_tensors.TYPES.values())
def test_every_type_mode_and_content(element_type, mode):
    for number, content in enumerate(random_tensors.CONTENTS):
        random = random_tensors.Random(7, element_type, mode, number)
        for _ in range(4):
            compare([random_tensors.tensor(random, element_type, mode, content)], number)


@pytest.mark.parametrize("seed", range(100))
def test_random_frames(seed):
    random = random_tensors.Random(8, seed)
    tensors = [random_tensors.tensor(random) for _ in range(random.integers(0, 5))]
    gaps = tuple(int(gap) for gap in random.choice([0, 0, 1, 2, 5, 16], 3)) if seed % 2 else None
    frame, codebooks = compare(tensors, int(random.integers(2**64)), bool(random.random() < 0.8), gaps)
    opened = library.OpenFrame(frame, codebooks)
    for index, tensor in enumerate(tensors):
        units = list(tensor.units())
        if not units:
            continue
        unit = int(random.integers(len(units)))
        values = np.array(units[unit][2]).reshape(-1, tensor.values.shape[2])
        first = int(random.integers(len(values)))
        count = int(random.integers(len(values) - first + 1))
        for way in library.ways:
            part = opened.decode_unit(index, unit, first, count)
            assert np.array_equal(part[:, 0, :], values[first : first + count]), way


def test_capacity_is_exact():
    random = random_tensors.Random(9)
    tensor = random_tensors.tensor(random, model.BF16, model.TIERED, "fitting")
    tensor.slot_words = 1536  # so nothing spills, and the known size is the size
    codebooks = library.CodebookSet(set_of([tensor]))
    with pytest.raises(library.LibraryError) as error:
        library.encode([tensor], codebooks, slack=-1)
    assert error.value.args[0] == "OUTPUT_TOO_SMALL"


def budget_outcomes(tensors, codebooks, frame, nonce, budget):
    """Whether the library writes what the model says in a budget, and both readers make the same of it."""
    fits = len(frame) <= budget
    length = len(frame) if fits else 48
    expected = (frame if fits else model.mark(nonce).bytes()).ljust(budget, b"\0")
    books = reference.decode_codebook_set(set_of(tensors))
    for way in library.ways:
        assert library.encode(tensors, codebooks, nonce, budget=budget) == expected, way
        for n in (nonce, nonce + 1):
            got = outcome(lambda n=n: library.OpenFrame(expected, codebooks, n, in_budget=True).decode())
            reread = outcome(lambda n=n: [values for _, values in reference.decode_frame(expected[:length], books, n)[1]])
            if n != nonce:
                assert got == reread == "NONCE_MISMATCH", way
            elif fits:
                assert same(got, [tensor.values for tensor in tensors]) and same(reread, got), way
            else:
                assert got == reread == "OVER_BUDGET", way


@pytest.mark.parametrize("seed", range(20))
def test_budgets(seed):
    random = random_tensors.Random(12, seed)
    tensors = [random_tensors.tensor(random) for _ in range(random.integers(1, 4))]
    codebooks, nonce = library.CodebookSet(set_of(tensors)), int(random.integers(2**63))
    frame = model.encode_frame(tensors, nonce)
    for budget in {48, len(frame) // 2 + 24, len(frame) - 1, len(frame), len(frame) + 1, len(frame) + 3000}:
        budget_outcomes(tensors, codebooks, frame, nonce, budget)


def test_codebook_sets():
    random = random_tensors.Random(10)
    for count in range(6):
        books = [
            random_tensors.codebook(
                random, int(random.integers(1, 7)), int(random.integers(1, 50)), i == 2, name="" if i == 3 else f"läyer.{i}" * i
            )
            for i in range(1, count + 1)
        ]
        data = model.CodebookSet(books, b"origin" * count).bytes()
        loaded = library.CodebookSet(data)
        assert len(loaded) == count and loaded.save() == data
        assert set(reference.decode_codebook_set(data)) == {book.real_identity() for book in books}


@pytest.mark.parametrize("length, good", [(65535, True), (65536, False)])
def test_longest_provenance(length, good):
    data = model.CodebookSet([], b"p" * length).bytes()
    assert outcome(lambda data: library.CodebookSet(data).save(), data) == (data if good else "CODEBOOK_CORRUPT")
    assert outcome(reference.decode_codebook_set, data) == ({} if good else "CODEBOOK_CORRUPT")


def damage(random, data):
    """One of: flipped bits, a random byte, cut off, extended."""
    data, way = bytearray(data), random.integers(8)
    if way == 0:
        return bytes(data[: random.integers(len(data))])
    if way == 1:
        return bytes(data) + random.bytes(int(random.integers(1, 20)))
    for _ in range(random.integers(1, 4)):
        at = int(random.integers(len(data)))
        data[at] = data[at] ^ (1 << random.integers(8)) if way < 6 else random.integers(256)
    return bytes(data)


@pytest.mark.parametrize("seed", range(30))
def test_damaged_frames_have_the_same_outcome(seed):
    random = random_tensors.Random(11, seed)
    tensors = [random_tensors.tensor(random) for _ in range(random.integers(1, 3))]
    for tensor in tensors:
        tensor.values = tensor.values[:40]
    data, has_checksums = set_of(tensors), bool(random.random() < 0.5)
    theirs, ours = library.CodebookSet(data), reference.decode_codebook_set(data)
    frame = model.encode_frame(tensors, 5, has_checksums)
    for _ in range(40):
        damaged = damage(random, frame)
        expected = outcome(reference_values, damaged, ours)
        for way in library.ways:
            assert same_outcome(outcome(library.decode, damaged, theirs), expected), way


def damage_part(random, frame):
    """Changes a part of a frame that is then sealed with correct checksums."""
    way = random.integers(7)
    if way == 0:
        entry = frame.entries[random.integers(len(frame.entries))]
        name = list(entry)[random.integers(len(entry))]
        limit = {"type": 256, "mode": 256, "slot_words": 2**16}.get(name, 2**32)
        entry[name] = int(random.choice([0, 1, 2, 7, entry[name] + 1, 1537, limit - 1])) % limit
    elif way == 1 and frame.records:
        frame.records[random.integers(len(frame.records))] ^= 1 << int(random.integers(16))
    elif way == 2 and frame.tile_records:
        frame.tile_records[random.integers(len(frame.tile_records))] ^= 1 << int(random.integers(32))
    elif way == 3:
        name = ("entry_count", "chunk_count", "tile_count", "spill_words", "frame_bytes", "version", "flags")[random.integers(7)]
        frame.header[name] = int(random.choice([0, 1, 2, 3, 8, 65535]))
    elif way == 4 and frame.spill:
        frame.spill += bytes(4)
    else:
        section = frame.sections[random.integers(len(frame.sections))]
        if section:
            section[random.integers(len(section))] ^= 1 << int(random.integers(8))


@pytest.mark.parametrize("seed", range(60))
def test_sealed_damage_has_the_same_outcome(seed):
    random = random_tensors.Random(12, seed)
    for _ in range(10):
        tensors = [random_tensors.tensor(random) for _ in range(random.integers(1, 3))]
        for tensor in tensors:
            tensor.values = tensor.values[:20]
        data = set_of(tensors)
        frame = model.build_frame(tensors, 5, bool(random.random() < 0.5))
        damage_part(random, frame)
        damaged = frame.bytes()
        theirs, ours = library.CodebookSet(data), reference.decode_codebook_set(data)
        expected = outcome(reference_values, damaged, ours)
        for way in library.ways:
            assert same(outcome(library.decode, damaged, theirs), expected), way


@pytest.mark.parametrize("seed", range(20))
def test_damaged_codebook_sets_have_the_same_outcome(seed):
    random = random_tensors.Random(13, seed)
    books = [random_tensors.codebook(random, int(random.integers(1, 7)), 5, name=f"{i}") for i in range(3)]
    whole = model.CodebookSet(books, b"abc")
    for _ in range(40):
        damaged = bytearray(damage(random, whole.bytes()))
        if len(damaged) >= 32 and random.random() < 0.8:  # sealed again
            damaged[24:32] = model.xxh64(bytes(damaged[:24] + damaged[32:])).to_bytes(8, "little")
        damaged = bytes(damaged)
        theirs = outcome(lambda data: library.CodebookSet(data).save(), damaged)
        ours = outcome(reference.decode_codebook_set, damaged)
        assert theirs == (ours if isinstance(ours, str) else damaged)
