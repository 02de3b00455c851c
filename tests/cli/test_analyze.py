# SPDX-License-Identifier: Apache-2.0
"""analyze: its figures against numpy's, its advice, its plot."""

import json
import xml.etree.ElementTree

import numpy as np
import pytest

import kv
from conftest import message, run


def analyze(*arguments, **options):
    return json.loads(run("analyze", "--json", *arguments, **options).stdout)


def entropy(counts):
    shares = counts[counts > 0] / counts.sum()
    return -(shares * np.log2(shares)).sum()


def exponents(data, dtype):
    if dtype == "BF16":
        return np.frombuffer(data, np.uint16) >> 7 & 0xFF
    if dtype == "F16":
        return np.frombuffer(data, np.uint16) >> 10 & 0x1F
    if dtype == "F32":
        return np.frombuffer(data, np.uint32) >> 23 & 0xFF
    return np.frombuffer(data, np.uint8) >> 2 & 0x1F  # F8_E5M2


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32", "F8_E5M2"])
def test_figures(work, dtype):
    size = {"BF16": 2, "F16": 2, "F32": 4, "F8_E5M2": 1}[dtype]
    data = np.random.default_rng(1).standard_normal(3 * 50 * 16).astype(np.float32)
    data = (data.view(np.uint32) >> 16).astype(np.uint16).tobytes() if size == 2 else data.tobytes()[: 3 * 50 * 16 * size]
    (work / "x").write_bytes(kv.safetensors([("layers.4.k", dtype, (3, 50, 16), data)]))
    facts = analyze("x")
    assert list(facts) == ["file", "tensors", "groups", "advice"]
    [tensor] = facts["tensors"]
    counts = np.bincount(exponents(data, dtype), minlength=256)
    assert tensor["histogram"] == counts.tolist()
    assert tensor["entropy"] == pytest.approx(entropy(counts))
    ordered = np.sort(counts)[::-1]
    assert tensor["top8_coverage"] == pytest.approx(ordered[:8].sum() / counts.sum())
    assert tensor["top16_coverage"] == pytest.approx(ordered[:16].sum() / counts.sum())
    by_channel = exponents(data, dtype).reshape(3, 50, 16).transpose(0, 2, 1).reshape(48, 50)  # heads and their channels
    conditional = np.mean([entropy(np.bincount(channel, minlength=256)) for channel in by_channel])
    assert tensor["entropy_given_channel"] == pytest.approx(conditional)
    assert (tensor["layer"], tensor["role"], tensor["values"], tensor["raw_bytes"]) == (4, "key", 2400, 2400 * size)
    assert [group["name"] for group in facts["groups"]] == ["all keys", "all"]
    assert facts["groups"][1]["entropy"] == tensor["entropy"]


def test_measured_ratios_are_those_of_frames(samples):
    """The ratio of bench, which encodes the same pieces."""
    facts = analyze("--codebook", samples / "kv.szcb", samples / "in.safetensors")
    bench = json.loads(run("bench", "--json", "--repeats", 1, "--codebook", samples / "kv.szcb", samples / "in.safetensors").stdout)
    total = facts["groups"][-1]
    for result in bench["results"]:
        # bench makes one frame of all tensors, analyze one of each: they differ by headers and padding.
        assert total[f"{result['mode']}_ratio"] == pytest.approx(result["ratio"], rel=0.02)
    assert total["raw_bytes"] == sum(tensor["raw_bytes"] for tensor in facts["tensors"]) == bench["raw_bytes"]
    assert total["values"] == sum(tensor["values"] for tensor in facts["tensors"])
    assert (np.sum([t["histogram"] for t in facts["tensors"]], axis=0) == total["histogram"]).all()


def test_the_window_changes_no_figure(samples):
    whole = analyze(samples / "in.safetensors")
    assert analyze("--window", "4KiB", samples / "in.safetensors") == whole


def test_advice(work, samples):
    book = ("--codebook", samples / "kv.szcb")
    fits = analyze(*book, samples / "in.safetensors")["advice"]
    assert any("use mode tiered" in line for line in fits)
    tensors = kv.cache()
    shifted = [
        (name, dtype, shape, (np.frombuffer(data, np.uint16) + (9 << 7)).astype(np.uint16).tobytes())
        for name, dtype, shape, data in tensors
    ]
    (work / "x").write_bytes(kv.safetensors(shifted))
    assert any(line.startswith("recalibrate: ") for line in analyze(*book, "x")["advice"])
    other = [(f"other.{name}", *rest) for name, *rest in tensors]
    (work / "x").write_bytes(kv.safetensors(other))
    facts = analyze(*book, "x")
    assert "4 of 4 tensors have no codebook" in facts["advice"][0]
    assert facts["tensors"][0]["tiered_ratio"] is None
    noise = np.random.default_rng(2).integers(0, 65536, 20000, np.uint16).tobytes()
    (work / "x").write_bytes(kv.safetensors([("noise", "BF16", (100, 200), noise)]))
    facts = analyze("x")
    assert "use mode raw: coding saves less than 5 %" in facts["advice"]
    assert any("outside of the 16 most frequent" in line for line in facts["advice"])


@pytest.mark.parametrize(
    "name, layer, role",
    [
        ("layers.3.k", 3, "key"),
        ("model.layers.12.self_attn.v_cache", 12, "value"),
        ("Key_Cache_7", 7, "key"),
        ("kv.1.VALUES", 1, "value"),
        ("vocabulary", None, "other"),
        ("layers.99999999999999999999.k", None, "key"),
    ],
)
def test_names(work, name, layer, role):
    (work / "x").write_bytes(kv.safetensors([(name, "BF16", (9, 16), kv.values((9, 16)))]))
    [tensor] = analyze("x")["tensors"]
    assert (tensor["layer"], tensor["role"]) == (layer, role)


def test_plot(work, samples):
    run("analyze", "--codebook", samples / "kv.szcb", samples / "in.safetensors", "--plot", "x.svg")
    root = xml.etree.ElementTree.parse(work / "x.svg").getroot()
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"all keys", "all values", "keys, tiered", "values, fixed4", "coverage, %", "layer"} <= texts
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 2 + 4 + 4 + 4
    assert "x.svg" in message("analyze", samples / "in.safetensors", "--plot", "x.svg")
    run("analyze", samples / "in.safetensors", "--plot", "x.svg", "-f")
    (work / "<&.safetensors").write_bytes(kv.safetensors([("one", "BF16", (9, 16), kv.values((9, 16)))]))
    plot = run("analyze", "<&.safetensors", "--plot", "-", "-q").stdout
    assert b"&lt;&amp;.safetensors" in plot


def test_for_people(samples):
    lines = run("analyze", samples / "in.safetensors").stdout.decode().splitlines()
    assert lines[0].split()[:3] == ["tensor", "values", "top8"]
    assert [line.split()[0:2] for line in lines[5:7]] == [["all", "keys"], ["all", "values"]]


def test_nothing_to_analyze(work):
    (work / "x").write_bytes(kv.safetensors([("whole", "I64", (4,), bytes(32))]))
    assert "no tensor of a type that has a codec" in message("analyze", "x")
