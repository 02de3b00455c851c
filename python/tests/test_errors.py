# SPDX-License-Identifier: Apache-2.0
"""Failures of the C interface as exceptions: names, statuses, places."""

import dataclasses
import re

import numpy as np
import pytest

import splitzip_kv
from conftest import same, values
from splitzip_kv import Codebook, Frame, Layout, Mode, SplitzipError, _core, _errors, encode, frame_size, frame_sizes


@pytest.fixture(scope="module")
def frame(layout, tensor):
    return bytes(encode([tensor], [layout], nonce=41))


def test_every_status_has_its_exception():
    names = {status: _core.status_name(status) for status in range(1, 256)}
    known = {status: name for status, name in names.items() if name != "SPLITZIP_ERROR_UNKNOWN"}
    assert set(known) == set(_errors.BY_STATUS)
    for status, name in known.items():
        error = _errors.BY_STATUS[status]
        words = re.sub(r"(?<!^)(?=[A-Z])", "_", error.__name__.removesuffix("Error")).upper()
        assert name == "SPLITZIP_ERROR_" + words
        assert getattr(splitzip_kv, error.__name__) is error and error.__name__ in splitzip_kv.__all__
        assert issubclass(error, SplitzipError) and error("x").status == status


def test_where_it_went_wrong(frame, layout, tensor):
    damaged = bytearray(frame)
    damaged[-len(frame) // 2] ^= 1
    target = np.zeros((100, 2, 32), np.uint16)
    with pytest.raises((splitzip_kv.CorruptPayload, splitzip_kv.ChecksumMismatch)) as failure:
        Frame(damaged).decode([tensor], [Layout(target, "token,head,dim")])
    assert failure.value.tensor == 0 and failure.value.chunk is not None
    assert f"chunk {failure.value.chunk}" in str(failure.value)


def test_every_damage_is_reported_or_harmless(source, frame, tensor):
    random = np.random.default_rng(3)
    for place in random.integers(0, len(frame), 1500):
        damaged = bytearray(frame)
        damaged[place] ^= 1 << random.integers(8)
        target = np.zeros_like(source)
        try:
            Frame(damaged).decode([tensor], [Layout(target, "token,head,dim")])
        except SplitzipError:
            continue
        assert same(target, source)
    for length in range(0, len(frame), 7):
        with pytest.raises((splitzip_kv.Truncated, splitzip_kv.BadMagic)):
            Frame(frame[:length])
    for _ in range(300):
        with pytest.raises(SplitzipError):
            Frame(random.bytes(200))


def test_statuses_by_cause(source, frame, layout, tensor, books):
    target = Layout(np.zeros_like(source), "token,head,dim")

    def decode(changed):
        Frame(frame).decode([changed], [target])

    causes = {
        "BadMagic": lambda: Frame(b"none" + frame[4:]),
        "UnsupportedVersion": lambda: Frame(frame[:4] + b"\x01" + frame[5:]),
        "UnsupportedFlag": lambda: Frame(frame[:7] + b"\x80" + frame[8:]),
        "Truncated": lambda: Frame(frame[:-1]),
        "TrailingBytes": lambda: Frame(frame + b"\0"),
        "CorruptHeader": lambda: Frame(frame[:50] + b"\xff" + frame[51:]),
        "NonceMismatch": lambda: Frame(frame, expected_nonce=42),
        "GeometryMismatch": lambda: decode(dataclasses.replace(tensor, tensor_key=78)),
        "CodebookRequired": lambda: decode(dataclasses.replace(tensor, codebook=None)),
        "CodebookMismatch": lambda: decode(dataclasses.replace(tensor, codebook=books.find("BF16"))),
        "CodebookNotFound": lambda: Frame(frame).tensors(splitzip_kv.CodebookSet(other_books())),
        "InvalidTensor": lambda: frame_sizes([dataclasses.replace(tensor, slot_words=1537)]),
        "TooLarge": lambda: frame_sizes([dataclasses.replace(tensor, codebook=None, mode=Mode.RAW, tokens=2**32 - 1)]),
        "OutputTooSmall": lambda: encode([tensor], [layout], out=bytearray(len(frame) - 1)),
        "OverBudget": lambda: encode([tensor], [layout], out=bytearray(len(frame) - 1), budget=True),
        "NoSamples": lambda: splitzip_kv.Calibration().finish(),
        "CodebookCorrupt": lambda: splitzip_kv.CodebookSet(books.to_bytes()[:-1]),
        "InvalidArgument": lambda: Frame(frame)._tensor(1),
    }
    for name, cause in causes.items():
        with pytest.raises(SplitzipError) as failure:
            cause()
        assert type(failure.value).__name__ == name
    Frame(frame, expected_nonce=41).decode([tensor], [target])
    with pytest.raises(ValueError):
        Layout(source, "token")
    with pytest.raises(splitzip_kv.BadMagic):
        frame_size(b"x" * 48)
    with pytest.raises(splitzip_kv.Truncated):
        frame_size(frame[:47])
    with pytest.raises(splitzip_kv.GeometryMismatch, match=r"Frame\.decode"):
        splitzip_kv.decompress(encode([], []), "token,dim")


def other_books() -> bytes:
    calibration = splitzip_kv.Calibration()
    calibration.add("", Layout(values((9, 8), seed=5), "token,dim"))
    return calibration.finish().to_bytes()


def test_codebook_hash_is_the_identity(books, tensor):
    assert isinstance(tensor.codebook, Codebook)
    assert {tensor.codebook: 1}[books.find("channels")] == 1
    assert tensor.codebook != books.find("BF16") and tensor.codebook != 3 and tensor.codebook != None  # noqa: E711
