# SPDX-License-Identifier: Apache-2.0
"""calibrate: what it counts, how counts are merged, and what it says about them."""

import json

import ml_dtypes
import numpy as np
import pytest

import kv
from conftest import message, round_trip, run


def codebooks(path):
    return {book["name"]: book for book in json.loads(run("inspect", "--json", path).stdout)["codebooks"]}


def test_codebook_for_each_tensor(work, samples):
    books = codebooks(samples / "kv.szcb")
    assert list(books) == ["layers.0.k", "layers.0.v", "layers.1.k", "layers.1.v"]
    for book in books.values():
        assert (book["type"], book["base_count"], book["sample_values"]) == ("bf16", 96, 3 * 40 * 32)


def entropy(counts):
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log2(p)).sum())


def test_statistics(work, samples):
    """Against the same figures from the data, by numpy."""
    data = np.frombuffer(kv.cache(seed=100)[0][3], np.uint16).reshape(3, 40, 32)
    exponents = (data >> 7 & 0xFF).astype(int)
    counts = np.sort(np.bincount(exponents.ravel(), minlength=256))[::-1]
    book = codebooks(samples / "kv.szcb")["layers.0.k"]
    assert book["top8_coverage"] == pytest.approx(counts[:8].sum() / counts.sum())
    assert book["top16_coverage"] == pytest.approx(counts[:16].sum() / counts.sum())
    assert book["entropy"] == pytest.approx(entropy(counts))
    channels = exponents.transpose(0, 2, 1).reshape(96, 40)
    given = np.mean([entropy(np.bincount(channel)) for channel in channels])
    assert book["entropy_given_channel"] == pytest.approx(given)
    assert book["tiered_ratio"] == pytest.approx(16 / book["tiered_bits"])


def test_merged_counts_are_one_run(work):
    """Counts of two runs, merged, give the codebooks of one run over both; so does a mixture of counts and data."""
    for number in (0, 1):
        (work / f"{number}.safetensors").write_bytes(kv.safetensors(kv.cache(seed=10 * number)))
        run("calibrate", f"{number}.safetensors", "--save-counts", f"{number}.counts", "-q")
    fixed = ("--provenance", "p", "-q")
    run("calibrate", "0.safetensors", "1.safetensors", "-o", "both.szcb", "--save-counts", "both.counts", *fixed)
    run("calibrate", "0.counts", "1.counts", "-o", "merged.szcb", "--save-counts", "merged.counts", *fixed)
    run("calibrate", "1.safetensors", "0.counts", "-o", "mixed.szcb", *fixed)
    assert (work / "both.szcb").read_bytes() == (work / "merged.szcb").read_bytes() == (work / "mixed.szcb").read_bytes()
    assert (work / "both.counts").read_bytes() == (work / "merged.counts").read_bytes()
    assert "counts" in message("calibrate", "-", "-o", "x", input=(work / "0.counts").read_bytes()[:-1])


def test_provenance(work, samples):
    facts = json.loads(run("inspect", "--json", samples / "kv.szcb").stdout)
    assert facts["provenance"].startswith("splitzip ") and facts["provenance"].endswith(" calibrate sample.safetensors")
    run("calibrate", samples / "sample.safetensors", "-o", "x.szcb", "--provenance", "made of \u00e4")
    assert json.loads(run("inspect", "--json", "x.szcb").stdout)["provenance"] == "made of \u00e4"


def test_windows_do_not_matter(work, samples):
    for window in ("4KiB", "1GiB"):
        run("calibrate", samples / "sample.safetensors", "-o", f"{window}.szcb", "--window", window, "-q")
        assert (work / f"{window}.szcb").read_bytes() == (samples / "kv.szcb").read_bytes()


def test_shared(work, samples):
    run("calibrate", samples / "sample.safetensors", "-o", "x.szcb", "--shared", "-q")
    books = codebooks("x.szcb")
    assert list(books) == [""] and books[""]["base_count"] == 96 and books[""]["sample_values"] == 4 * 3 * 40 * 32
    packed = round_trip(samples / "in.safetensors", codebook="x.szcb")
    assert {t["mode"] for t in json.loads(run("inspect", "--json", packed).stdout)["tensors"][1:]} == {"tiered"}
    assert "(all)" in run("inspect", "x.szcb").stdout.decode()


def test_shared_by_different_shapes(work):
    tensors = [
        ("a", "BF16", (2, 30, 16), kv.values((2, 30, 16))),
        ("b", "BF16", (50, 24), kv.values((50, 24))),
        ("c", "BF16", (64,), kv.values((64,))),
    ]
    (work / "x.safetensors").write_bytes(kv.safetensors(tensors))
    text = message("calibrate", "x.safetensors", "-o", "x.szcb", "--shared")
    assert 'tensor "b"' in text and "--one-base" in text
    run("calibrate", "x.safetensors", "-o", "x.szcb", "--shared", "--one-base", "-q")
    packed = round_trip(work / "x.safetensors", codebook="x.szcb")
    modes = {t["name"]: t["mode"] for t in json.loads(run("inspect", "--json", packed).stdout)["tensors"]}
    assert modes["a"] == modes["b"] == "tiered"


def test_types_cannot_be_shared(work):
    tensors = [("a", "BF16", (9, 16), kv.values((9, 16))), ("b", "F16", (9, 16), kv.values((9, 16), "F16"))]
    (work / "x.safetensors").write_bytes(kv.safetensors(tensors))
    assert "another type" in message("calibrate", "x.safetensors", "-o", "x.szcb", "--shared", "--one-base")


def test_the_same_name_with_another_shape(work):
    for number, heads in enumerate((2, 3)):
        (work / str(number)).write_bytes(kv.safetensors(kv.cache(layers=1, heads=heads)))
    assert 'tensor "layers.0.k"' in message("calibrate", "0", "1", "-o", "x.szcb")
    assert sorted(path.name for path in work.iterdir()) == ["0", "1"]


def test_what_is_left_out(work):
    tensors = [
        ("kept", "BF16", (9, 16), kv.values((9, 16))),
        ("whole", "I64", (4,), bytes(32)),
        ("empty", "BF16", (0, 16), b""),
        ("", "BF16", (9, 16), kv.values((9, 16))),
        ("zero\0", "BF16", (9, 16), kv.values((9, 16))),
        ("n" * 4097, "BF16", (9, 16), kv.values((9, 16))),
        ("wide", "BF16", (1, 5000), kv.values((1, 5000))),
    ]
    (work / "x").write_bytes(kv.safetensors(tensors))
    notes = run("calibrate", "x", "-o", "x.szcb", "-v", "--window", "4KiB").stderr.decode()
    assert list(codebooks("x.szcb")) == ["kept"]
    assert 'tensor "whole": left out, I64 has no codec' in notes
    assert notes.count("left out") == 5


def test_nothing_to_count(work):
    (work / "x").write_bytes(kv.safetensors([("whole", "I64", (4,), bytes(32))]))
    assert "no input has a tensor of a type that has a codec" in message("calibrate", "x", "-o", "x.szcb")
    assert [path.name for path in work.iterdir()] == ["x"]


def test_table_and_json(work, samples):
    table = run("calibrate", samples / "sample.safetensors", "-o", "x.szcb").stdout.decode().splitlines()
    assert table[0].split()[:4] == ["tensor", "type", "channels", "values"]
    assert [line.split()[0] for line in table[1:]] == list(codebooks("x.szcb"))
    made = json.loads(run("calibrate", samples / "sample.safetensors", "-o", "y.szcb", "--json").stdout)
    assert made["codebooks"] == list(codebooks("y.szcb").values())
    assert run("calibrate", samples / "sample.safetensors", "-o", "z.szcb", "-q").stdout == b""


def test_existing_outputs_are_kept(work, samples):
    (work / "x.szcb").write_bytes(b"old")
    assert "already exists" in message("calibrate", samples / "sample.safetensors", "-o", "x.szcb")
    assert (work / "x.szcb").read_bytes() == b"old"
    run("calibrate", samples / "sample.safetensors", "-o", "x.szcb", "-f", "-q")
    assert (work / "x.szcb").read_bytes() == (samples / "kv.szcb").read_bytes()


def test_calibrated_data_compress_as_expected(work):
    """The expected bits a value are those that the frames have, but for the directory."""
    shape = (4, 512, 64)
    data = np.random.default_rng(4).standard_normal(shape).astype(ml_dtypes.bfloat16).tobytes()
    (work / "x").write_bytes(kv.safetensors([("t", "BF16", shape, data)]))
    run("calibrate", "x", "-o", "x.szcb", "-q")
    book = codebooks("x.szcb")["t"]
    for mode in ("tiered", "fixed4"):
        packed = round_trip(work / "x", "--mode", mode, codebook="x.szcb")
        frame = json.loads(run("inspect", "--json", packed).stdout)["frames"][-1]
        assert frame["ratio"] == pytest.approx(book[f"{mode}_ratio"], rel=0.015)
