# SPDX-License-Identifier: Apache-2.0
"""Damaged, truncated and foreign *.szkv and *.szcb files are errors and leave nothing behind."""

import json
import random

import pytest

import kv
from conftest import message, round_trip, run


@pytest.fixture
def small(work):
    """A file of every kind of block and mode of frame, as small as can be, with its original."""
    tensors = [("a", "BF16", (2, 9, 8), kv.values((2, 9, 8))), ("b", "I16", (5,), bytes(range(10)))]
    path = work / "x.safetensors"
    path.write_bytes(kv.safetensors(tensors))
    run("calibrate", path, "-o", "x.szcb", "-q")
    packed = round_trip(path, "--embed-codebook", codebook="x.szcb").read_bytes()
    for name in work.iterdir():
        name.unlink()
    return packed


def outcomes(work, variants):
    """Tests all variants in one run; returns how many of them were found good."""
    names = []
    for number, data in enumerate(variants):
        names.append(f"{number}.szkv")
        (work / names[-1]).write_bytes(data)
    done = run("test", "--json", *names, code=1)
    errors = done.stderr.decode().splitlines()
    good = done.stdout.decode().count('"input"')
    assert len(errors) == len(names) and all(line.startswith("splitzip: ") or ": ok, " in line for line in errors)
    for name in names:
        (work / name).unlink()
    return good


def test_every_single_bit(work, small):
    flips = []
    for bit in range(8 * len(small)):
        data = bytearray(small)
        data[bit // 8] ^= 1 << bit % 8
        flips.append(bytes(data))
    for start in range(0, len(flips), 4000):
        assert outcomes(work, flips[start : start + 4000]) == 0


def test_every_length(work, small):
    assert outcomes(work, [small[:length] for length in range(len(small))]) == 0
    assert outcomes(work, [small + b"\0", small + bytes(16), small + small, small[16:]]) == 0
    run("test", "-", input=small)


def test_every_length_from_a_pipe_in_steps(small):
    for length in range(0, len(small), 37):
        run("test", "-", input=small[:length], code=1)


def test_damage_leaves_no_output(work, samples):
    packed = (samples / "out.szkv").read_bytes()
    rng = random.Random(2)
    for _ in range(20):
        data = bytearray(packed)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (work / "x.szkv").write_bytes(data)
        message("decompress", "--codebook", samples / "kv.szcb", "x.szkv", "-o", "y")
        assert [path.name for path in work.iterdir()] == ["x.szkv"]
    (work / "x.szkv").write_bytes(packed[:-20])
    assert "ends at byte" in message("decompress", "--codebook", samples / "kv.szcb", "x.szkv", "-o", "y")
    assert [path.name for path in work.iterdir()] == ["x.szkv"]


def test_frames_in_another_order(work, samples):
    """Every frame is intact, but not where it belongs."""
    packed = (samples / "out.szkv").read_bytes()
    frames = json.loads(run("inspect", "--json", samples / "out.szkv").stdout)["frames"]
    start, middle = frames[1]["file_offset"] - 16, frames[2]["file_offset"] - 16
    end = frames[3]["file_offset"] - 16
    swapped = packed[:start] + packed[middle:end] + packed[start:middle] + packed[end:]
    text = message("test", "--codebook", samples / "kv.szcb", "-", input=swapped)
    assert "block header does not match" in text


def test_frame_of_another_file(work, samples):
    """A frame with a right block header, but of other tensors: its nonce is the place in the original, its size is not."""
    path = work / "x.safetensors"
    path.write_bytes(kv.safetensors(kv.cache(seed=7), {"other": "and a much longer header than the one before " * 3}))
    run("compress", "--codebook", samples / "kv.szcb", path, "-o", "x.szkv")
    other = json.loads(run("inspect", "--json", "x.szkv").stdout)["frames"]
    mine = json.loads(run("inspect", "--json", samples / "out.szkv").stdout)["frames"]
    packed = (samples / "out.szkv").read_bytes()
    foreign = (work / "x.szkv").read_bytes()
    spliced = packed[: mine[1]["file_offset"] - 16] + foreign[other[1]["file_offset"] - 16 :]
    assert "NONCE_MISMATCH" in message("test", "--codebook", samples / "kv.szcb", "-", input=spliced)


def test_declared_size_is_not_allocated(work, samples):
    """A frame block that claims an exbibyte, with a right checksum, from a file and from a pipe."""
    packed = bytearray((samples / "out.szkv").read_bytes()[:32])
    packed[16 + 4 : 16 + 12] = (1 << 60).to_bytes(8, "little")
    packed[16 + 12 : 16 + 16] = block_hash(0, packed[16:28]).to_bytes(4, "little")
    (work / "x.szkv").write_bytes(packed + bytes(5000))
    assert "ends at byte" in message("test", "x.szkv")
    assert "ends at byte" in message("test", "-", input=bytes(packed) + bytes(5000))


def test_empty_frame_block(work, samples):
    """The block of a frame whose content is no bytes at all."""
    packed = bytearray((samples / "out.szkv").read_bytes()[:32])
    packed[16 + 4 : 16 + 12] = bytes(8)
    packed[16 + 12 : 16 + 16] = block_hash(0, packed[16:28]).to_bytes(4, "little")
    (work / "x.szkv").write_bytes(packed + bytes(64))
    assert "frame 0: " in message("test", "x.szkv")
    assert "SPLITZIP_ERROR_TRUNCATED" in message("test", "-", input=bytes(packed) + bytes(64))


def block_hash(number, words):
    """docs/format.md, 6.1, of a block header."""
    mask = 0xFFFFFFFF
    h = 8
    for word in [number, *(int.from_bytes(words[i : i + 4], "little") for i in (0, 4, 8))]:
        h = (h ^ word) * 0x9E3779B1 & mask
        h ^= h >> 15
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    return h ^ h >> 16


@pytest.mark.parametrize("data", [b"", b"SZKV", b"hello, world, this is text", bytes(64), b"SZKF" + bytes(60)])
def test_foreign_files(work, data):
    (work / "x.szkv").write_bytes(data)
    for command in ("test", "inspect", "decompress"):
        message(command, "x.szkv")
        assert [path.name for path in work.iterdir()] == ["x.szkv"]


def test_another_version(work, samples):
    packed = bytearray((samples / "out.szkv").read_bytes())
    packed[4] = 1
    assert "SPLITZIP_ERROR_UNSUPPORTED_VERSION" in message("test", "-", input=bytes(packed))


def test_damaged_codebooks(work, samples):
    good = (samples / "kv.szcb").read_bytes()
    flipped = good[:100] + bytes([good[100] ^ 1]) + good[101:]
    for data in (b"", good[:50], good[:-1], good + b"\0", flipped):
        (work / "x.szcb").write_bytes(data)
        message("compress", "--codebook", "x.szcb", samples / "in.safetensors", "-o", "y")
        message("decompress", "--codebook", "x.szcb", samples / "out.szkv", "-o", "y")
        assert [path.name for path in work.iterdir()] == ["x.szcb"]


def test_missing_codebook(work, samples):
    assert "name its set with --codebook" in message("decompress", samples / "out.szkv", "-o", "y")
    (work / "x.safetensors").write_bytes(kv.safetensors(kv.cache(seed=50, dim=16)))
    run("calibrate", "x.safetensors", "-o", "x.szcb", "-q")
    assert "which is in no set" in message("decompress", "--codebook", "x.szcb", samples / "out.szkv", "-o", "y")
    run("decompress", "--codebook", "x.szcb", "--codebook", samples / "kv.szcb", samples / "out.szkv", "-o", "y")
    assert (work / "y").read_bytes() == (samples / "in.safetensors").read_bytes()
