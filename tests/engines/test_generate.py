# SPDX-License-Identifier: Apache-2.0
"""Run by tools/test_engine.sh generate: SmolLM2 served by two processes, over TCP and, where there is one, over a GPU."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from splitzip_kv import cuda

ROOT = pathlib.Path(__file__).parents[2]
ON_GPU = ["--engine", "cuda_peer", "--prompt-tokens", "512,2048,7936"]
needs_gpu = pytest.mark.skipif(not cuda.is_available(), reason=cuda.problem() or "")


@pytest.mark.parametrize(
    "options",
    [["--device", "cpu", "--prompt-tokens", "100,300"], pytest.param(ON_GPU, marks=needs_gpu)],
    ids=["cpu", "gpu"],
)
def test_the_tokens_are_those_of_one_process(options):
    command = [sys.executable, "-m", "splitzip_kv.transfer.demo.generate", os.environ["SPLITZIP_MODEL"]]
    if cuda.is_available() and cuda.device_count() > 1:
        options = [*options, "--gpus", "0,1"]
    done = subprocess.run(
        [*command, "docs/format.md", "--new-tokens", "16", "--repeat", "2", "--json", *options],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=900,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr  # it fails where a token differs
    result = json.loads(done.stdout)
    for row in result["rows"]:
        assert len(row["alone"]["tokens"]) == 17
        assert row["answers"]["raw"]["tokens"] == row["answers"]["coded"]["tokens"] == row["alone"]["tokens"]
        raw, coded = (row["runs"][kind]["wire_bytes"] for kind in ("raw", "coded"))
        assert raw > row["raw_bytes"] > 1.4 * coded
