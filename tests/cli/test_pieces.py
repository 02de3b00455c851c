# SPDX-License-Identifier: Apache-2.0
"""How tensors become frames: axes, units, and the memory window."""

import json

import pytest

import kv
from conftest import message, round_trip, run


def frames_of(packed):
    """The frames, after a check that they cover the original without holes."""
    facts = json.loads(run("inspect", "--json", packed).stdout)
    offset = 0
    for frame in facts["frames"]:
        assert frame["original_offset"] == offset
        offset += frame["original_bytes"]
    assert offset == facts["original_bytes"]
    return facts["frames"]


def compress_array(work, shape, *options, calibrate_axes=(), dtype="bf16"):
    path = work / "x.bin"
    path.write_bytes(kv.values(shape))
    array = ["--dtype", dtype, "--shape", ",".join(map(str, shape)), *calibrate_axes]
    run("calibrate", path, "-o", "x.szcb", "-q", "-f", *array)
    return frames_of(round_trip(path, *array, *options, codebook="x.szcb"))


GEOMETRY = ["order", "tokens", "tokens_per_unit", "channels", "first_channel", "ranges", "first_block"]


@pytest.mark.parametrize(
    "shape, axes, expected",
    [
        ((3, 17, 16), (), [["range_major", 17, 17, 16, 0, 3, 0]]),
        ((17, 3, 16), ("--axes", "token,head,dim"), [["token_major", 17, 17, 16, 0, 3, 0]]),
        ((1, 17, 16), (), [["token_major", 17, 17, 16, 0, 1, 0]]),
        ((3, 1, 160), (), [["token_major", 1, 1, 160, 0, 3, 0]]),
        ((40, 16), (), [["token_major", 40, 40, 16, 0, 1, 0]]),
        ((200,), (), [["token_major", 200, 200, 1, 0, 1, 0]]),
        ((200,), ("--axes", "dim"), [["token_major", 1, 1, 200, 0, 1, 0]]),
        # Sequences one after the other: a frame each if heads come first, else a block each.
        ((2, 3, 17, 16), (), [["range_major", 17, 17, 16, 0, 3, 0], ["range_major", 17, 17, 16, 0, 3, 1]]),
        ((2, 17, 3, 16), ("--axes", "batch,token,head,dim"), [["token_major", 34, 17, 16, 0, 3, 0]]),
        ((2, 2, 1, 17, 16), (), [["token_major", 68, 17, 16, 0, 1, 0]]),
    ],
)
def test_axes(work, shape, axes, expected):
    frames = compress_array(work, shape, calibrate_axes=axes)
    assert [[frame[key] for key in GEOMETRY] for frame in frames] == expected


def test_units(work):
    frames = compress_array(work, (3, 100, 16), "--unit-tokens", "16")
    assert [[frame[key] for key in GEOMETRY] for frame in frames] == [["range_major", 100, 16, 16, 0, 3, 0]]


def test_window_cuts_between_heads(work):
    # A head is 64 tokens of 64 bytes: two of them fit in 8 KiB.
    frames = compress_array(work, (5, 64, 32), "--window", "8KiB")
    assert [(frame["first_channel"], frame["ranges"], frame["tokens"]) for frame in frames] == [(0, 2, 64), (64, 2, 64), (128, 1, 64)]


def test_window_cuts_heads_between_tokens(work):
    # A head is 100 tokens of 64 bytes: 64 of them fit in 4 KiB.
    frames = compress_array(work, (2, 100, 32), "--window", "4KiB")
    assert [(f["first_channel"], f["tokens"], f["tokens_per_unit"], f["first_block"]) for f in frames] == [
        (0, 64, 64, 0), (0, 36, 64, 1), (32, 64, 64, 0), (32, 36, 64, 1)]  # fmt: skip


def test_window_cuts_rows(work):
    # A row is 128 bytes: 32 of them fit in 4 KiB, in units of 12 there are 24.
    options = ("--axes", "token,head,dim")
    frames = compress_array(work, (70, 2, 32), "--window", "4096", "--unit-tokens", "12", calibrate_axes=options)
    assert [(frame["tokens"], frame["tokens_per_unit"], frame["first_block"]) for frame in frames] == [
        (24, 12, 0),
        (24, 12, 2),
        (22, 12, 4),
    ]


def test_sequences_that_are_no_whole_units(work):
    options = ("--axes", "batch,token,dim")
    frames = compress_array(work, (2, 20, 32), "--unit-tokens", "16", calibrate_axes=options)
    assert [(frame["tokens"], frame["tokens_per_unit"], frame["first_block"]) for frame in frames] == [(20, 16, 0), (20, 16, 2)]


def test_unit_beyond_the_window(work):
    path = work / "x.bin"
    path.write_bytes(kv.values((1000, 32)))
    array = ("--dtype", "bf16", "--shape", "1000,32")
    run("calibrate", path, "-o", "x.szcb", *array)
    text = message("compress", "--codebook", "x.szcb", path, "-o", "y", "--unit-tokens", 100, "--window", "4KiB", *array, code=2)
    assert "unit of 100 tokens" in text and "--window" in text
    assert not (work / "y").exists()


def test_row_beyond_the_window_is_raw(work):
    path = work / "x.bin"
    path.write_bytes(kv.values((4, 4000)))
    array = ("--dtype", "bf16", "--shape", "4,4000")
    run("calibrate", path, "-o", "x.szcb", *array)
    frames = frames_of(round_trip(path, "--window", "4KiB", *array, codebook="x.szcb"))
    assert {frame["mode"] for frame in frames} == {"raw"}
    assert max(frame["original_bytes"] for frame in frames) == 4096


def test_window_cuts_raw_data_and_long_headers(work):
    path = work / "x.safetensors"
    tensors = [(f"{i:0300}", "U8", (1,), b"x") for i in range(30)] + [("big", "I64", (2000,), bytes(16000))]
    path.write_bytes(kv.safetensors(tensors))
    frames = frames_of(round_trip(path, "--mode", "raw", "--window", "4KiB"))
    assert max(frame["original_bytes"] for frame in frames) == 4096
    assert [frame["tensor"] for frame in frames[:4]] == ["(header)"] * 3 + ["0" * 300]


def test_codebook_that_does_not_fit(work, samples):
    tensors = [
        ("layers.0.k", "F16", (3, 40, 32), kv.values((3, 40, 32), "F16")),
        ("layers.0.v", "BF16", (4, 40, 32), kv.values((4, 40, 32))),
        ("layers.1.k", "BF16", (3, 40, 32), kv.values((3, 40, 32))),
        ("other", "BF16", (3, 40, 32), kv.values((3, 40, 32))),
    ]
    path = work / "x.safetensors"
    path.write_bytes(kv.safetensors(tensors))
    done = run("compress", "-v", "--codebook", samples / "kv.szcb", path, "-o", "x.szkv")
    notes = done.stderr.decode()
    assert 'tensor "layers.0.k": raw, its codebook is for bf16' in notes
    assert 'tensor "layers.0.v": raw, its codebook has 96 channels, the tensor 128 (--axes says which axes these are)' in notes
    assert 'tensor "other": raw, no codebook of its name' in notes
    assert "layers.1.k" not in notes
    modes = {t["name"]: t["mode"] for t in json.loads(run("inspect", "--json", "x.szkv").stdout)["tensors"]}
    assert modes == {"(header)": "raw", "layers.0.k": "raw", "layers.0.v": "raw", "layers.1.k": "tiered", "other": "raw"}


def test_nothing_coded_is_a_warning(work, samples):
    path = work / "x.safetensors"
    path.write_bytes(kv.safetensors([("other", "BF16", (3, 40, 32), kv.values((3, 40, 32)))]))
    assert "no tensor was coded" in run("compress", "--codebook", samples / "kv.szcb", path).stderr.decode()


def test_missing_codebooks_are_a_warning(work, samples):
    path = work / "x.safetensors"
    extra = [("other", "BF16", (3, 40, 32), kv.values((3, 40, 32))), ("ids", "U8", (64,), bytes(64)), ("whole", "I64", (4,), bytes(32))]
    path.write_bytes(kv.safetensors(kv.cache() + extra))
    count = len(kv.cache()) + len(extra)
    notes = run("compress", "--codebook", samples / "kv.szcb", path).stderr.decode()
    assert f"1 of {count} tensors are stored raw, since no codebook fits them; -v says which" in notes
    assert "warning" not in run("compress", "--codebook", samples / "kv.szcb", samples / "in.safetensors", "-o", "y").stderr.decode()


def test_the_same_tensor_elsewhere_keeps_its_key(work, samples):
    tensors = kv.cache()
    path = work / "x.safetensors"
    path.write_bytes(kv.safetensors(tensors[2:]))
    keys = lambda packed: {f["tensor"]: f["tensor_key"] for f in frames_of(packed)}
    all_keys = keys(samples / "out.szkv")
    assert len(set(all_keys.values())) == len(all_keys)
    some = keys(round_trip(path, codebook=samples / "kv.szcb"))
    assert some == {name: all_keys[name] for name in some}
