# SPDX-License-Identifier: Apache-2.0
"""Transfers from and to the memory of a GPU."""

import json
import subprocess
import sys

import numpy as np
import pytest

from device_cases import assert_moved, device_tensors
from splitzip_kv import cuda
from splitzip_kv.transfer.inprocess import MESSAGE_FAULTS, WRITE_FAULTS, Faults
from transfer_cases import Pair

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason=cuda.problem() or "")


@pytest.mark.parametrize("margin", [None, 0.1], ids=["", "budgets"])
@pytest.mark.parametrize("where", [("source", "target"), ("source",), ("target",), ("mixed",)], ids="-".join)
def test_moved(where, margin):
    with Pair(resend_interval=5.0, pinned=True, shadow=2, budget_margin=margin) as pair:
        for seed in range(8):
            tensors = device_tensors(seed, where)
            assert pair.move(f"request {seed}", tensors) == [None, None]
            assert_moved(tensors)
        assert not +pair.sender.counters and not +pair.receiver.counters


@pytest.mark.parametrize("margin", [None, 0.0], ids=["", "budgets"])
def test_faults_are_survived_or_reported(margin):
    """On a network that damages, drops and repeats, a transfer ends with every bit right or with errors."""
    with Pair(Faults(dict.fromkeys((*WRITE_FAULTS, *MESSAGE_FAULTS), 0.03), seed=4), budget_margin=margin) as pair:
        done = 0
        for seed in range(10):
            tensors = device_tensors(seed, ("source", "target"))
            errors = pair.move(f"request {seed}", tensors)
            if errors[1] is None:
                assert_moved(tensors)
                done += 1
        assert done > 0
        pair.works()


def test_the_main_job(tmp_path):
    """`python -m splitzip_kv.transfer.demo` takes the GPU by itself, and the processor if it is told to."""
    pytest.importorskip("mooncake.engine")
    pytest.importorskip("safetensors.numpy").save_file(
        {"k": np.random.default_rng(0).standard_normal((2, 200, 64)).astype(np.float16)}, tmp_path / "half.safetensors"
    )
    import ml_dtypes

    values = (np.random.default_rng(0).standard_normal((2, 200, 64)) * 3).astype(ml_dtypes.bfloat16)
    save_bf16(tmp_path / "kv.safetensors", {"layers.0.k": values, "layers.0.v": values * 2})
    for options, coder in (([], "GPU"), (["--device", "cuda"], "GPU"), (["--device", "cpu"], "CPU")):
        assert demo(tmp_path / "kv.safetensors", *options) == {coder}
    assert demo(tmp_path / "half.safetensors") == {"GPU"}


def save_bf16(path, arrays):
    header, data = {}, b""
    for name, array in arrays.items():
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": "BF16", "shape": array.shape, "data_offsets": offsets}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def demo(path, *options):
    command = [sys.executable, "-m", "splitzip_kv.transfer.demo", "--kv", path, "--repeat", "1", "--json", *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    return {result[side]["coder"] for side in ("prefill", "decode")}
