# SPDX-License-Identifier: Apache-2.0
"""calibrate --budget-tokens: what it proposes, and what it says of other data."""

import json

import numpy as np
import pytest

import kv
from conftest import message, run


def with_outliers(tensors, seed):
    """A tenth of the tokens has exponents that no codebook of the others codes, so frames differ in length."""
    random = np.random.default_rng(seed)
    for name, dtype, shape, data in tensors:
        values = np.frombuffer(data, "<u2").reshape(shape).copy()
        values[:, random.random(shape[1]) < 0.1] ^= 0x2000
        yield name, dtype, shape, values.tobytes()


@pytest.fixture
def files(work):
    for name, seed in (("sample", 1), ("other", 50)):
        tensors = list(with_outliers(kv.cache(layers=2, heads=3, tokens=640, seed=seed), seed))
        (work / f"{name}.safetensors").write_bytes(kv.safetensors(tensors))
    return work


def calibrate(*arguments, sample="sample.safetensors"):
    done = run("calibrate", sample, "-o", "kv.szcb", "-f", "--json", *arguments)
    return json.loads(done.stdout)


def test_budgets_hold_what_they_promise(files):
    result = calibrate("--budget-tokens", "16,64", "--overflow", "0.1,0.01,0.001", "--held-out", "other.safetensors")
    budgets = result["budgets"]
    assert {(b["tensor"], b["tokens"]) for b in budgets} == {(book["name"], tokens) for book in result["codebooks"] for tokens in (16, 64)}
    frames, over = dict.fromkeys((0.1, 0.01, 0.001), 0), dict.fromkeys((0.1, 0.01, 0.001), 0)
    for budget in budgets:
        assert budget["raw_bytes"] == budget["tokens"] * 3 * 32 * 2
        assert budget["samples"] == 640 // budget["tokens"]
        assert [p["overflow"] for p in budget["proposals"]] == [0.1, 0.01, 0.001]
        sizes = [p["budget_bytes"] for p in budget["proposals"]]
        assert sizes == sorted(sizes) and sizes[0] >= budget["mean_bytes"] and not any(size % 32 for size in sizes)
        for p in budget["proposals"]:
            assert p["ratio"] == pytest.approx(budget["raw_bytes"] / (p["budget_bytes"] + p["overflow"] * budget["raw_bytes"]))
            share = p["held_out_over_budget"] / p["held_out_frames"]
            assert p["held_out_ratio"] == pytest.approx(budget["raw_bytes"] / (p["budget_bytes"] + share * budget["raw_bytes"]))
            frames[p["overflow"]] += p["held_out_frames"]
            over[p["overflow"]] += p["held_out_over_budget"]
    assert frames[0.1] == 4 * (40 + 10)
    assert 0 < over[0.1] <= 0.25 * frames[0.1] and over[0.001] <= over[0.01] <= over[0.1]


def test_table(files):
    text = run("calibrate", "sample.safetensors", "-o", "kv.szcb", "--budget-tokens", "16,64").stdout.decode()
    lines = text.split("\n\n")[1].strip().splitlines()
    assert lines[0].split()[:2] == ["tokens", "overflow"]
    assert [line.split()[:2] for line in lines[1:]] == [[t, o] for t in ("16", "64") for o in ("0.01", "0.001", "0.0001")]


def test_axes_and_modes(files):
    raw = calibrate("--budget-tokens", "64", "--mode", "raw")["budgets"]
    fixed4 = calibrate("--budget-tokens", "64", "--mode", "fixed4")["budgets"]
    tiered = calibrate("--budget-tokens", "64")["budgets"]
    for r, f, t in zip(raw, fixed4, tiered):
        assert r["mean_bytes"] > f["mean_bytes"] > t["mean_bytes"]
        assert r["proposals"][0]["budget_bytes"] - r["mean_bytes"] < 32  # the length never differs
    (files / "short.safetensors").write_bytes(kv.safetensors(kv.cache(layers=1, heads=3, tokens=20, seed=1)))
    swapped = calibrate("--budget-tokens", "1", "--axes", "token,head,dim", sample="short.safetensors")["budgets"]
    assert swapped[0]["raw_bytes"] == 20 * 32 * 2


def test_what_cannot_be(files):
    data = (files / "sample.safetensors").read_bytes()
    assert "twice" in message("calibrate", "-", "-o", "x.szcb", "--budget-tokens", "16", input=data, code=2)
    assert "--budget-tokens" in message("calibrate", "sample.safetensors", "-o", "x.szcb", "--held-out", "other.safetensors", code=2)
    assert "as many tokens" in message("calibrate", "sample.safetensors", "-o", "x.szcb", "--budget-tokens", "641")
    assert "too few tokens" in message("calibrate", "sample.safetensors", "-o", "x.szcb", "--budget-tokens", "400")
    message("calibrate", "sample.safetensors", "-o", "x.szcb", "--budget-tokens", "0", code=2)
    message("calibrate", "sample.safetensors", "-o", "x.szcb", "--budget-tokens", "16", "--overflow", "0.9", code=2)
    assert not (files / "x.szcb").exists()
