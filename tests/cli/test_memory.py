# SPDX-License-Identifier: Apache-2.0
"""Memory is a stated window, whatever the length of the file, and whatever a file claims."""

import os
import pathlib
import subprocess

import pytest

import kv
from conftest import COMMAND, run

MIB = 1 << 20

pytestmark = pytest.mark.skipif(b"__asan_init" in pathlib.Path(COMMAND).read_bytes(), reason="a sanitizer's own memory is measured")


def start(*arguments, **streams):
    return subprocess.Popen([COMMAND, *map(str, arguments)], **streams)


def peak(process):
    """Waits for the process; returns its exit code and the most memory that it held."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * 1024


def peak_of(*arguments, **streams):
    return peak(start(*arguments, **streams))


def floor():
    """What the program holds before it does anything."""
    return peak_of("--version", stdout=subprocess.DEVNULL)[1]


@pytest.fixture
def gigabyte(work):
    """A safetensors file of one tensor of 1 GiB, without a byte of it on the disk."""
    shape = (8, 524288, 128)
    header = kv.file_of('{"layers.0.k":{"dtype":"BF16","shape":[8,524288,128],"data_offsets":[0,1073741824]}}')
    path = work / "big.safetensors"
    with open(path, "wb") as file:
        file.write(header)
        file.truncate(len(header) + 2 * shape[0] * shape[1] * shape[2])
    return path


def test_window_of_compress_and_decompress(work, gigabyte):
    packer = start("compress", "--mode", "raw", "--window", "8MiB", gigabyte, "-o", "-", "-q", "-T1", stdout=subprocess.PIPE)
    unpacker = start("decompress", "-", "-o", "/dev/null", "-q", "-T1", stdin=packer.stdout)
    packer.stdout.close()
    code, held = peak(packer)
    assert code == 0 and held - floor() < 4.3 * 8 * MIB
    code, held = peak(unpacker)
    assert code == 0 and held - floor() < 4.3 * 8 * MIB


def test_window_of_calibrate_and_coded_frames(work):
    small = work / "small.safetensors"
    shape = (8, 65536, 64)
    header = kv.file_of('{"t":{"dtype":"BF16","shape":[8,65536,64],"data_offsets":[0,67108864]}}')
    with open(small, "wb") as file:
        file.write(header + kv.values((4096, 64)))
        file.truncate(len(header) + 2 * shape[0] * shape[1] * shape[2])
    code, held = peak_of("calibrate", small, "-o", "x.szcb", "--window", "4MiB", "-q")
    assert code == 0 and held - floor() < 4 * MIB + 512 * 2048 + 2 * MIB
    code, held = peak_of("compress", "--codebook", "x.szcb", "--window", "4MiB", small, "-o", "x.szkv", "-q", "-T1")
    assert code == 0 and held - floor() < 4.5 * 4 * MIB
    code, held = peak_of("decompress", "--codebook", "x.szcb", "x.szkv", "-o", "back", "-q", "-T1")
    assert code == 0 and held - floor() < 4.5 * 4 * MIB
    run("inspect", "x.szkv")
    assert pathlib.Path("back").stat().st_size == small.stat().st_size
    subprocess.run(["cmp", small, "back"], check=True)


def test_declared_sizes_cost_nothing(work):
    """A safetensors header that claims far more than there is, from a file and from a pipe."""
    pathlib.Path("x").write_bytes((99_999_999).to_bytes(8, "little") + b"{" + bytes(100))
    code, held = peak_of("compress", "--mode", "raw", "x", "-o", "y", stderr=subprocess.DEVNULL)
    assert code == 1 and held - floor() < 8 * MIB
    feeder = subprocess.Popen(["cat", "x"], stdout=subprocess.PIPE)
    code, held = peak_of("compress", "--mode", "raw", "-", "-o", "y", stdin=feeder.stdout, stderr=subprocess.DEVNULL)
    assert code == 1 and held - floor() < 8 * MIB
    feeder.stdout.close()
    assert feeder.wait(60) == 0
