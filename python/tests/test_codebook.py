# SPDX-License-Identifier: Apache-2.0
"""Calibration and codebook sets."""

import pathlib

import numpy as np
import pytest

import splitzip_kv
from conftest import NUMPY_TYPES, values
from splitzip_kv import BadMagic, Calibration, CodebookSet, ElementType, Layout, Mode, encode


def test_a_set_and_its_file(books, tmp_path):
    path = tmp_path / "test.szcb"
    books.save(path)
    loaded = CodebookSet.load(str(path))
    assert loaded.to_bytes() == books.to_bytes() == path.read_bytes()
    assert loaded.provenance == "test data"
    assert len(loaded) == 7 and [book.name for book in loaded] == sorted([t.name for t in NUMPY_TYPES] + ["channels"])
    assert loaded[0] == books[0] and loaded[-1] == books[6]
    for book in loaded:
        assert loaded.find(book.name).hash == book.hash and books.find_hash(book.hash) == book
    with pytest.raises(IndexError):
        loaded[7]
    assert loaded.find("nothing") is None and loaded.find("channels\0") is None and loaded.find_hash(1) is None
    with pytest.raises(FileNotFoundError):
        CodebookSet.load(pathlib.Path(tmp_path / "none"))
    path.write_bytes(b"no codebooks at all")
    with pytest.raises(BadMagic, match=r"test\.szcb: not a splitzip codebook set \(byte 0\)") as caught:
        CodebookSet.load(path)
    assert caught.value.offset == 0


def test_what_a_codebook_tells(books):
    book = books.find("channels")
    assert book.type == ElementType.BF16 and isinstance(book.type, ElementType)
    assert len(book.bases) == 64 and len(books.find("BF16").bases) == 1
    assert len(set(book.ranks)) == 9 and max(book.ranks) < 15
    assert book.sample_values == 50 * 64
    assert 0 < book.top8_coverage <= book.top16_coverage <= 1
    assert 0 < book.entropy_given_channel <= book.entropy < 8
    assert 8 + book.entropy_given_channel < book.tiered_bits < 16 and book.fixed4_bits >= 12
    assert 0 <= book.fixed4_escapes < 1 and 0 <= book.tiered_escapes < 1
    assert 0 < book.tiered_slot_words <= 1536 and 0 <= book.fixed4_slot_words <= 1536
    assert f"{book.hash:016x}" in repr(book) and "'channels'" in repr(book)


def test_the_codebook_for_all_others():
    calibration = Calibration()
    calibration.add("", Layout(values((9, 8)), "token,dim"), base_count=1)
    books = calibration.finish()
    assert books.find("whatever") == books[0] and books.provenance == ""


def test_counts_come_piece_by_piece():
    data = values((60, 2, 16))
    whole = Calibration()
    whole.add("k", Layout(data, "token,head,dim"))

    pieces = Calibration()
    for head in range(2):
        pieces.add("k", Layout(data[:20, head], "token,dim"), base_count=32, first_channel=16 * head)
    rest = Calibration()
    rest.add("k", Layout(data.transpose(1, 0, 2), "head,token,dim", first_token=20))
    pieces.merge(Calibration.from_bytes(rest.to_bytes()))
    assert pieces.to_bytes() == whole.to_bytes()
    assert pieces.finish("x").to_bytes() == whole.finish("x").to_bytes()

    rest.merge(rest)
    assert rest.finish()[0].sample_values == 2 * 40 * 32


def test_calibration_refuses():
    calibration = Calibration()
    calibration.add("k", Layout(values((9, 8)), "token,dim"))
    with pytest.raises(splitzip_kv.CodebookMismatch):
        calibration.add("k", Layout(values((9, 16)), "token,dim"))
    with pytest.raises(splitzip_kv.CodebookMismatch):
        calibration.add("k", Layout(values((9, 8), ElementType.FP16), "token,dim"))
    with pytest.raises(splitzip_kv.CodebookMismatch):
        calibration.add("new", Layout(values((9, 8)), "token,dim"), first_channel=1, base_count=8)
    with pytest.raises(splitzip_kv.InvalidLayout, match="type="):
        calibration.add("new", Layout(np.zeros((9, 8), np.uint16), "token,dim"))
    for name in ("a\0b", "x" * 5000):
        with pytest.raises(splitzip_kv.InvalidArgument):
            calibration.add(name, Layout(values((9, 8)), "token,dim"))
    other = Calibration()
    other.add("k", Layout(values((9, 16)), "token,dim"))
    with pytest.raises(splitzip_kv.CodebookMismatch):
        calibration.merge(other)
    for data in (b"", b"x" * 100, calibration.to_bytes()[:-1]):
        with pytest.raises(splitzip_kv.SplitzipError):
            Calibration.from_bytes(data)
    with pytest.raises(splitzip_kv.InvalidArgument):
        calibration.finish("x" * 70000)
    assert calibration.finish()[0].sample_values == 72


def test_a_bad_codebook_costs_ratio_only(books):
    noise = np.random.default_rng(0).integers(0, 2**16, (100, 64), np.uint16)
    layout = Layout(noise, "token,dim", type=ElementType.BF16)
    for mode in (Mode.FIXED4, Mode.TIERED):
        tensor = layout.tensor(books.find("channels"), mode=mode)
        frame = encode([tensor], [layout])
        target = np.zeros_like(noise)
        splitzip_kv.Frame(frame).decode([tensor], [Layout(target, "token,dim")])
        assert np.array_equal(noise, target) and len(frame) < 1.02 * noise.nbytes + 200
