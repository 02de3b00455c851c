# SPDX-License-Identifier: Apache-2.0
"""The evaluation runs on a small cache, its page shows what it found, and wrong input is refused."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("splitzip_kv")
pytest.importorskip("ml_dtypes")
from eval import caches, generator, library, measure, plans, published, report

ROOT = pathlib.Path(__file__).parent.parent.parent
SAMPLE = ROOT / "data" / "smollm2-135m" / "gsm8k.safetensors"


@pytest.fixture(scope="module")
def command():
    return library.Command(os.environ["SPLITZIP_COMMAND"])


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Sixteen tokens of four layers."""
    path = tmp_path_factory.mktemp("cache") / "small-sample.safetensors"
    kept = [name for name in caches.read(SAMPLE) if name.split(".")[1] in ("0", "1", "5", "29")]
    caches.write(path, {name: np.ascontiguousarray(values[:16]) for name, values in caches.read(SAMPLE).items() if name in kept})
    return path


@pytest.fixture(scope="module")
def result(small, command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluation")
    model = caches.load_model("small", [small], folder)
    found, codebook = measure.evaluate(model, command, folder)
    hosts = plans.host_speeds(command, model.test, codebook)
    return {"model": found, "hosts": hosts, "plans": plans.all_plans(command, hosts, ROOT / "bench" / "results")}


def test_written_caches_are_read_again(small):
    tensors = caches.read(small)
    assert len(tensors) == 8 and all(values.shape == (16, 3, 64) for values in tensors.values())
    for name, values in caches.read(SAMPLE).items():
        if name in tensors:
            assert np.array_equal(tensors[name].view(np.uint16), values[:16].view(np.uint16))


def test_halves_are_the_whole(small, tmp_path):
    model = caches.load_model("small", [small], tmp_path)
    for name, values in caches.read(small).items():
        joined = np.concatenate([cache.tensors[name] for cache in model.caches])
        assert joined.tobytes() == values.tobytes()
    assert model.halved and [cache.tokens for cache in model.caches] == [8, 8]


def test_figures_are_plausible(result):
    model = result["model"]
    top8, top16 = (row["coverage"] for row in model["table3"])
    assert 0.5 < top8 < top16 <= 1
    by_part = {row["part"]: row for row in model["table5"]}
    assert by_part["token"]["coverage"] >= by_part["all tensors"]["coverage"]
    assert model["table6"]["sentinel"]["coverage"] <= model["table6"]["explicit"]["coverage"]
    ratios = [row["ratio"] for row in model["pages"] if row["heads"]]
    assert ratios[0] == min(ratios), "the smallest units cost most"
    amounts = [row["tokens"] for row in model["calibration"]]
    assert amounts == [1, 2, 4, 8]
    assert {row["way"] for made in result["plans"] for row in made["plans"]} <= {"plain", "tiered", "fixed4"}


def test_page_shows_what_was_found(result, tmp_path, monkeypatch):
    arrangement = {
        "ratios": {"splitzip tiered": 1.2, "the paper's code": 1.3},
        "entropy": 3.0,
        "entropy_given_channel": 2.5,
    }
    generated = [
        {"model": model, "fitted": [0.9, 0.99, 3], "arrangements": {"by channel": arrangement, "by value": arrangement}}
        for model in published.EXPONENTS
    ]
    names = ("splitzip", "command", "python", "numpy", "machine", "date")
    whole = dict.fromkeys(names, "some") | {
        "processors": 1,
        "models": {"small": result["model"]},
        "generated": generated,
    }
    whole |= {"hosts": result["hosts"], "plans": result["plans"]}
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps(measure.rounded(whole)))
    monkeypatch.setattr(report, "RESULTS", path)
    made = report.documents()
    page = made[report.DOCUMENT]
    assert f"{result['model']['table3'][1]['ratio']:.3f}" in page
    assert "nan" not in page and "None" not in page and "inf " not in page
    for name in (file.name for file in made if file.suffix == ".svg"):
        assert f"({name})" in page


@pytest.mark.parametrize("model", ["Qwen3-32B", "Phi-2"])
def test_fit_reaches_the_published_statistics(model):
    top8, top16, entropy, _ = published.EXPONENTS[model]
    found = generator.statistics(generator.scale_weights(*generator.fit((top8 / 100, top16 / 100, entropy))))
    assert found == pytest.approx((top8 / 100, top16 / 100, entropy), abs=0.01)


def run(*arguments):
    return subprocess.run([sys.executable, "-B", "-m", "eval", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)


def test_wrong_input_is_named(small, tmp_path, command):
    output = ("--output", tmp_path / "x.json", "--command", command.path)
    for arguments, message in (
        (("--kv", "nofile"), "NAME=FILE"),
        (("--kv", f"a={tmp_path / 'missing'}"), "missing"),
        (("--kv", f"a={small},{SAMPLE}"), "other tensors"),
    ):
        done = run("measure", *arguments, *output)
        assert done.returncode != 0 and message in done.stderr
    done = run("measure", "--kv", f"a={small}", "--command", tmp_path / "nothing", "--output", tmp_path / "x.json")
    assert done.returncode != 0 and "--command" in done.stderr and not (tmp_path / "x.json").exists()
