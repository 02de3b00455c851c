# SPDX-License-Identifier: Apache-2.0
"""The part of the evaluation for GPUs, with stand-ins for the benchmark programs, and the tables as CSV."""

import csv
import json
import pathlib
import sys

import pytest

pytest.importorskip("ml_dtypes")
from eval import gpu, gpu_page, report, tables

ROOT = pathlib.Path(__file__).parent.parent.parent
SAMPLE = ROOT / "data" / "smollm2-135m" / "gsm8k.safetensors"
CODECS = {"device": "A", "splitzip": "0", "copy_gbps": 1.0, "rows": [{"group": "copy", "codec": "device copy"}]}
STAND_IN = """#!{python}
import json, pathlib, sys
arguments = sys.argv[1:]
for kv in (arguments[i + 1] for i, name in enumerate(arguments) if name == "--kv"):
    name, _, files = kv.partition("=")
    assert name == "small" and len({{pathlib.Path(file).read_bytes() for file in files.split(",")}}) == 2
{write}
sys.exit({status})
"""


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Makes stand-ins; results go to a folder of their own. No other project's codec is there."""
    for module in (gpu.gpu_report, gpu.link_report):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(gpu, "missing", lambda *modules: "there is none")
    monkeypatch.setenv("SPLITZIP_LIBRARY", "")

    def program(name, found, status=0):
        path = tmp_path / "bench" / {"cuda_bench": "cuda"}.get(name, name.removesuffix("_bench")) / name
        path.parent.mkdir(parents=True)
        write = f"pathlib.Path(arguments[-1]).write_text({json.dumps(found)!r})" if found is not None else ""
        path.write_text(STAND_IN.format(python=sys.executable, write=write, status=status))
        path.chmod(0o755)
        return tmp_path

    return program


def test_one_gpu(build, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "gpu_count", lambda: 1)
    gpu.measure([f"small={SAMPLE}"], build("cuda_bench", CODECS), "tiny")
    found = json.loads((tmp_path / "cuda-tiny.json").read_text())
    assert found["device"] == "A" and list(found["seconds"]) == ["codecs on one GPU"]
    assert gpu_page.took(tmp_path).startswith("`python -m eval gpu` took ")
    said = capsys.readouterr().out
    assert "DFloat11: left out, there is none" in said and "SPLITZIP_PAPER_CODE" in said
    assert "transfers between GPUs: left out, there is 1" in said and not (tmp_path / "links-tiny.json").exists()


def test_gpus_are_counted_without_a_driver():
    assert gpu.gpu_count("libno-such-driver.so.1") == 0


def test_two_gpus(build, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "gpu_count", lambda: 2)
    build("cuda_bench", CODECS, status=4)  # a row took too long; those before it count
    build("two_gpu_bench", {"device": "A", "rows": [1]})
    gpu.measure([f"small={SAMPLE}"], build("planner_bench", {"speeds": 1}), "tiny")
    links = json.loads((tmp_path / "links-tiny.json").read_text())
    assert links["two_gpu"]["rows"] == [1] and links["planner"] == {"speeds": 1}


@pytest.mark.parametrize("status, found", [(77, CODECS), (3, None)])
def test_nothing_measured(build, tmp_path, status, found):
    with pytest.raises(SystemExit, match="nothing was measured"):
        gpu.measure([f"small={SAMPLE}"], build("cuda_bench", found, status), "tiny")
    assert not (tmp_path / "cuda-tiny.json").exists()


def test_tables(tmp_path):
    tables.write(tmp_path)
    document = report.documents()[report.DOCUMENT]
    files = sorted(tmp_path.glob("*.csv"))
    assert len(files) == document.count("|---|\n") > 20
    rows = [list(csv.DictReader(file.open(newline=""))) for file in files]
    assert all(set(tables.ORIGIN) <= row.keys() and row["machine"] for table in rows for row in table)
    codecs = {row["where"]: row for row in next(table for file, table in zip(files, rows) if "codecs" in file.name)}
    for path in sorted((ROOT / "bench" / "results").glob("cuda-*.json")):
        measured = json.loads(path.read_text())
        row = next(row for where, row in codecs.items() if path.name in where)
        assert row["machine"] == measured["device"] and row["date"] == measured["date"]
    assert any(row["machine"] == "cited" for row in codecs.values())
