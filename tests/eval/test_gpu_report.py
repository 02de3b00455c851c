# SPDX-License-Identifier: Apache-2.0
"""Files of measurements become one result, and rows of the paper's code a table beside ours."""

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "bench" / "scripts"))
import gpu_report


def row(codec, microseconds, **more):
    timing = {"us": [microseconds - 1, microseconds, microseconds + 1], "repetitions": 9, "graph": False}
    facts = {"group": "paper", "data": "tiny", "layout": "384 B rows", "codec": codec, "bytes": 1 << 20, "ratio": 1.3}
    return facts | {"encode": timing, "decode": timing} | more


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """Imports parts, and gives the result."""
    monkeypatch.setattr(gpu_report, "RESULTS", tmp_path)
    monkeypatch.setattr(gpu_report, "ROOT", tmp_path)

    def run(*parts):
        paths = [tmp_path / f"part-{number}.json" for number in range(len(parts))]
        for path, part in zip(paths, parts):
            path.write_text(json.dumps(part))
        gpu_report.merge("tiny", paths)
        return json.loads((tmp_path / "cuda-tiny.json").read_text())

    return run


MAIN = {"device": "A", "driver": "1", "toolkit": "13.0", "copy_gbps": 10.0, "rows": [row("tiered", 5, group="main")]}
PAPER = {"device": "A", "driver": "1", "torch": "2", "triton": "3", "paper_code_sha256": "0" * 64, "copy_gbps": 20.0}


def test_parts_that_say_less_become_one_result(imported):
    result = imported(MAIN, PAPER | {"rows": [row(gpu_report.PAPER, 30), row("fixed4", 10, checksums=False)]})
    assert (result["toolkit"], result["triton"]) == ("13.0", "3")
    assert [row["copy_gbps"] for row in result["rows"]] == [10.0, 20.0, 20.0]
    text = gpu_report.render_paper(result)
    assert "| tiny | 1 MiB | fixed4 | off | 1.300 |" in text and text.rstrip().endswith("| 3.00 | 3.00 |")
    assert imported(result)["rows"] == result["rows"]


def test_other_devices_are_refused(imported):
    with pytest.raises(SystemExit, match="device is B, but A"):
        imported(MAIN, PAPER | {"device": "B", "rows": []})


def test_budgets_are_compared_with_told_sizes():
    told, budgeted = (
        row(codec, microseconds, group="budgets", tokens=256, requests=256) | {"copy_gbps": 10.0}
        for codec, microseconds in (("tiered", 10), ("tiered in budgets", 20))
    )
    text = gpu_report.render_budgets([told, budgeted])
    assert "256 tokens a frame" in text and "256 frames in a call" in text
    assert "| tiered in budgets |" in text and text.rstrip().endswith("| 0.50 | 0.50 |")
    assert gpu_report.render_budgets([]) == ""
