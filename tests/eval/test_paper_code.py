# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of the paper's code, against an encoder that really writes its bytes."""

import math

import numpy as np
import pytest
from eval import paper_code as paper

CHUNK = 1024


def encode(words, exponents):
    """The paper's streams: sign and mantissa, two codes a byte, positions in the chunk, exponents of the escapes."""
    codes = {exponent: code for code, exponent in enumerate(exponents)}
    verbatim, nibbles, escapes = bytearray(), [], []
    for index, word in enumerate(words.tolist()):
        exponent = (word >> 7) & 0xFF
        verbatim.append((word >> 8) & 0x80 | word & 0x7F)
        nibbles.append(codes.get(exponent, 0))
        if exponent not in codes:
            escapes.append((index // CHUNK, index % CHUNK, exponent))
    packed = bytes(low | high << 4 for low, high in zip(nibbles[::2], nibbles[1::2]))
    positions = b"".join(position.to_bytes(2, "little") for _, position, _ in escapes)
    return (
        bytes(verbatim),
        packed,
        positions,
        bytes(exponent for *_, exponent in escapes),
        [chunk for chunk, *_ in escapes],
    )


def decode(verbatim, packed, positions, raw, chunks, exponents):
    nibbles = [nibble for byte in packed for nibble in (byte & 15, byte >> 4)]
    found = [exponents[nibble] for nibble in nibbles]
    for number, (chunk, exponent) in enumerate(zip(chunks, raw)):
        found[chunk * CHUNK + int.from_bytes(positions[2 * number : 2 * number + 2], "little")] = exponent
    return np.array([(a & 0x80) << 8 | e << 7 | a & 0x7F for a, e in zip(verbatim, found)], np.uint16)


@pytest.fixture
def words():
    random = np.random.default_rng(3)
    values = (random.normal(size=8 * CHUNK) * np.exp(random.normal(size=8 * CHUNK))).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def test_size_is_that_of_real_bytes(words):
    symbols = ((words >> 7) & 0xFF).astype(np.uint8)
    counts = paper.histogram(symbols)
    chosen = paper.most_frequent(counts, 16)
    exponents = np.flatnonzero(chosen).tolist()
    streams = encode(words, exponents)
    assert np.array_equal(decode(*streams, exponents), words)
    assert len(streams[3]) > 0, "there must be escapes, or nothing is tested"
    size = sum(map(len, streams[:4]))
    assert paper.top_k_bits(paper.coverage(counts, chosen)) == pytest.approx(8 * size / words.size)
    assert paper.chunked_bits(len(streams[3]), words.size, CHUNK) == pytest.approx(8 * (size + 2 * 8) / words.size)


def test_published_ratios_follow_from_published_coverage():
    assert 16 / paper.top_k_bits(0.9211, 8) == pytest.approx(1.241, abs=0.0005)
    assert 16 / paper.top_k_bits(0.9984, 16) == pytest.approx(2 / (1.5 + 3 * 0.0016))


def test_entropy():
    assert paper.entropy(np.array([4, 4, 4, 4, 0])) == 2
    assert paper.entropy(np.array([3, 1])) == pytest.approx(0.25 * 2 + 0.75 * math.log2(4 / 3))


def test_ties_go_to_the_lower_exponent():
    assert np.flatnonzero(paper.most_frequent(np.full(256, 5), 3)).tolist() == [0, 1, 2]
