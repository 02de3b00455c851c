# SPDX-License-Identifier: Apache-2.0
"""The worked example of docs/format.md: its bytes, read from the document as a reader would."""

import re

import pytest
import reference_decoder as reference

import library
import make_example

DOCUMENT = make_example.DOCUMENT.read_text(encoding="utf-8")
SECTION = DOCUMENT[DOCUMENT.index(make_example.HEADING) :]


def dumps():
    """The bytes of each dump; the offsets before them must fit."""
    found = []
    for block in re.findall(r"^```\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL):
        data = b""
        for line in block.splitlines():
            offset, text = re.match(r" *(\d+)  ((?:[0-9a-f]{2} ?)+)", line).groups()
            assert int(offset) == len(data)
            data += bytes.fromhex(text)
        found.append(data)
    return found


def table_values():
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| ([0-9a-f]{4}) \|", SECTION, re.MULTILINE)
    assert [int(row[0]) for row in rows] == list(range(20))
    return [int(row[3], 16) for row in rows]


def test_section_is_what_the_generator_prints():
    assert make_example.section() == SECTION


def test_generator_gives_the_bytes():
    assert dumps() == [make_example.codebook_set().bytes(), make_example.frame().bytes()]


def test_reference_decoder_gives_the_values():
    codebook_set, frame = dumps()
    has_checksums, [(entry, values)] = reference.decode_frame(frame, reference.decode_codebook_set(codebook_set), 7)
    assert has_checksums and values.shape == (2, 1, 10) and entry.first_channel == 2
    assert values.reshape(-1).tolist() == table_values()


def test_it_shows_every_tier_and_a_spill():
    frame = make_example.frame()
    tiers = re.findall(r"\| (\d*) \| (\d*) \| (\d*) \| (\d*) \|$", SECTION, re.MULTILINE)
    assert {sum(code != "" for code in row) for row in tiers} == {1, 2, 3, 4}
    assert frame.spill and frame.records == [2]


@pytest.mark.skipif(not library.PATH, reason="SPLITZIP_LIBRARY is not set")
def test_library_gives_the_bytes_and_the_values():
    codebook_set, frame = dumps()
    codebooks = library.CodebookSet(codebook_set)
    assert library.encode([make_example.tensor()], codebooks, nonce=7) == frame
    assert library.decode(frame, codebooks, 7)[0].reshape(-1).tolist() == table_values()
