# SPDX-License-Identifier: Apache-2.0
"""--device cuda: the same bytes as from the CPU, and a clear message where there is no GPU or no CUDA backend."""

import json
import subprocess

import pytest

import kv
from conftest import COMMAND, message, run


@pytest.fixture(scope="session")
def refusal(samples):
    """Exit code and message of a command that asks for a GPU; None where it gets one."""
    command = [COMMAND, "bench", "--device", "cuda", "--repeats", "1", "-q", samples / "in.safetensors"]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    error = done.stderr.decode()
    return (done.returncode, error) if "--device cuda" in error else None


@pytest.fixture
def gpu(refusal):
    if refusal is not None:
        pytest.skip(refusal[1])


def test_without_a_gpu(work, samples, refusal):
    if refusal is None:
        pytest.skip("there is a GPU")
    code, error = refusal
    assert (code, "built without CUDA" in error) == (2, True) or (code, "no GPU" in error) == (1, True)
    for command in (
        ("compress", "--codebook", samples / "kv.szcb", samples / "in.safetensors", "-o", "x.szkv"),
        ("decompress", "--codebook", samples / "kv.szcb", samples / "out.szkv", "-o", "x"),
        ("test", "--codebook", samples / "kv.szcb", samples / "out.szkv"),
    ):
        # A second line may name the help of the command.
        assert message(*command, "--device", "cuda", code=code).splitlines()[0] == error.splitlines()[0]
    assert not any(work.iterdir())


def test_devices_that_are_none(samples):
    assert "tpu" in message("test", "--device", "tpu", samples / "out.szkv", code=2)


@pytest.mark.parametrize("mode", ["tiered", "fixed4", "raw"])
@pytest.mark.parametrize("options", [(), ("--unit-tokens", 16), ("--window", "8192")])
def test_same_bytes(work, gpu, mode, options):
    tensors = kv.cache(layers=3, tokens=1003) + kv.cache(dtype="F16", seed=7)[:1] + [("other", "I16", (5,), bytes(10))]
    tensors += [("noise", "BF16", (64, 1000), kv.values((64, 1000), "U8") * 2), ("odd", "BF16", (7, 13), kv.values((7, 13)))]
    tensors = [(f"{number}.{name}", *rest) for number, (name, *rest) in enumerate(tensors)]
    (work / "x").write_bytes(kv.safetensors(tensors))
    run("calibrate", "x", "-o", "x.szcb", "-q")
    for device in ("cpu", "cuda"):
        run("compress", "--codebook", "x.szcb", "--mode", mode, *options, "--device", device, "x", "-o", f"{device}.szkv", "-q")
    assert (work / "cuda.szkv").read_bytes() == (work / "cpu.szkv").read_bytes()
    run("decompress", "--codebook", "x.szcb", "--device", "cuda", "cpu.szkv", "-o", "back", "-q")
    assert (work / "back").read_bytes() == (work / "x").read_bytes()


def test_damage_has_the_same_message(work, gpu, samples):
    packed = bytearray((samples / "out.szkv").read_bytes())
    packed[len(packed) // 2] ^= 0x10
    (work / "x.szkv").write_bytes(packed)
    errors = [message("test", "--codebook", samples / "kv.szcb", "--device", device, "x.szkv") for device in ("cpu", "cuda")]
    assert errors[0] == errors[1] != ""


def test_bench(gpu, samples):
    measured = {}
    for device in ("cpu", "cuda"):
        done = run("bench", "--json", "--device", device, "--repeats", 3, "--codebook", samples / "kv.szcb", samples / "in.safetensors")
        measured[device] = json.loads(done.stdout)
        assert measured[device]["device"] == device
    for cpu, cuda in zip(measured["cpu"]["results"], measured["cuda"]["results"], strict=True):
        assert (cpu["mode"], cpu["frame_bytes"]) == (cuda["mode"], cuda["frame_bytes"])
        assert cuda["encode_gb_per_s"]["median"] > 0
