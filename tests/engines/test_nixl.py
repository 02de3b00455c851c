# SPDX-License-Identifier: Apache-2.0
"""Run by tools/test_engine.sh nixl: two processes over NIXL's UCX backend on the loopback interface."""

import pathlib
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from nixl_cases import LONG, codebooks, request_of
from splitzip_kv import cuda
from splitzip_kv.transfer import Code, Options, Segment, Sender, TransferError
from splitzip_kv.transfer.engine import address_of
from splitzip_kv.transfer.nixl import NixlEngine

GPUS = cuda.device_count() if cuda.is_available() else 0


class Decode:
    def __init__(self, device: int | None = None) -> None:
        command = [sys.executable, str(pathlib.Path(__file__).with_name("nixl_decode.py"))]
        command += [] if device is None else [str(device)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.read()

    def __enter__(self) -> "Decode":
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.communicate()

    def read(self) -> str:
        # NIXL writes to standard output, too.
        while True:
            line = self.process.stdout.readline()
            assert line, "the decode process has ended"
            word = line.strip()
            if " " not in word:
                return word

    def expect(self, number: int) -> None:
        print(number, file=self.process.stdin, flush=True)
        assert self.read() == "expected"


@pytest.fixture
def sender():
    end = Sender(NixlEngine(), codebooks(), Options(timeout=10.0))
    yield end
    end.close()


def send(sender, address, number, device=None):
    codebook = sender.codebooks.find("kv")
    request = sender.start(address, f"request {number}")
    for tensor in request_of(number, device):
        request.send([tensor.part(tensor.source, codebook)])
    return request.finish()


def test_many_requests(sender):
    with Decode() as decode:
        for number in range(20):
            decode.expect(number)
            report = send(sender, decode.address, number)
            assert decode.read() == "exact"
            raw = sum(tensor.part(tensor.source).raw_bytes for tensor in request_of(number))
            assert report.wire_bytes < 0.8 * raw + 1000


@pytest.mark.skipif(not GPUS, reason=cuda.problem() or "")
@pytest.mark.parametrize("here, there", [(0, 0), (0, 1), (0, None), (None, 0)], ids=str)
def test_frames_in_the_memory_of_a_gpu(here, there):
    """On the side where they are the pools are there, too."""
    if there == 1 and GPUS < 2:
        pytest.skip("there is one GPU")
    sender = Sender(NixlEngine(device=here), codebooks(), Options(timeout=10.0))
    try:
        with Decode(there) as decode:
            for number in range(10):
                decode.expect(number)
                send(sender, decode.address, number, here)
                assert decode.read() == "exact"
        assert sender.metrics.sum("frames_total", coding="coded") > 0
    finally:
        sender.close()


@pytest.mark.skipif(cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_why():
    with pytest.raises(TransferError) as caught:
        NixlEngine(device=0)
    assert caught.value.reason == cuda.problem()


def test_a_decode_process_that_dies_and_one_that_follows(sender):
    tensors, codebook = request_of(LONG), sender.codebooks.find("kv")
    with Decode() as decode:
        decode.expect(LONG)
        request = sender.start(decode.address, f"request {LONG}")
        request.send([tensors[0].part(tensors[0].source, codebook)])
        decode.process.kill()
        begin = time.monotonic()
        with pytest.raises(TransferError) as caught:
            for tensor in tensors[1:]:
                request.send([tensor.part(tensor.source, codebook)])
            request.finish()
        assert caught.value.code in (Code.PEER_CLOSED, Code.TRANSPORT)
        assert time.monotonic() - begin < 12.0
    with Decode() as decode:
        decode.expect(1)
        send(sender, decode.address, 1)
        assert decode.read() == "exact"


def test_memory_that_is_not_registered_and_memory_that_is():
    one, other = NixlEngine(), NixlEngine()
    source, target, never = (np.full(4096, value, np.uint8) for value in (1, 2, 3))
    one.register(source)
    segment = Segment(address_of(source), address_of(target), 4096)
    with pytest.raises(TransferError) as caught:
        one.write(other.data_address, [segment], 5.0, threading.Event())
    assert caught.value.code is Code.TRANSPORT
    other.register(target)  # after the first metadata went out
    half = Segment(address_of(source), address_of(target), 2048)
    one.write(other.data_address, [half, Segment(half.local, half.remote + 2048, 2048)], 5.0, threading.Event())
    deadline = time.monotonic() + 5.0
    while not (target == 1).all() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (target == 1).all()
    for wrong in (Segment(address_of(source), address_of(never), 4096), Segment(address_of(never), address_of(target), 4096)):
        with pytest.raises(TransferError):
            one.write(other.data_address, [wrong], 5.0, threading.Event())
    assert (never == 3).all()
    with pytest.raises(TransferError):
        one.write("127.0.0.1:1", [segment], 5.0, threading.Event())
    one.close()
    other.close()


def test_a_backend_that_is_not_there():
    with pytest.raises(TransferError, match="PIGEON"):
        NixlEngine(backend="PIGEON")


def test_the_command():
    """The main job over NIXL; from GPU to GPU where there are two."""
    command = [sys.executable, "-m", "splitzip_kv.transfer.demo", "--engine", "nixl", "--repeat", "1"]
    command += ["--gpus", f"0,{max(GPUS - 1, 0)}"]
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert "Every bit arrived as it was" in done.stdout and "NIXL" in done.stdout
