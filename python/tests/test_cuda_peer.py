# SPDX-License-Identifier: Apache-2.0
"""CUDA peer memory: slots in the memory of a receiver's GPU. Two processes share one GPU, or have one each where there
are two."""

import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

from device_cases import assert_moved, device_tensors
from peer_process import LONG, OPTIONS, request_of, send
from splitzip_kv import Frame, NonceMismatch, SplitzipError, cuda
from splitzip_kv.transfer import Code, Options, Receiver, Segment, Sender, TransferError
from splitzip_kv.transfer.cuda_peer import GRANULE, ROUTES, CudaPeerEngine
from splitzip_kv.transfer.engine import address_of
from splitzip_kv.transfer.shared_host import SharedHost
from transfer_cases import QUICK, Pair, make_codebooks

needs_gpu = pytest.mark.skipif(not cuda.is_available(), reason=cuda.problem() or "")


@pytest.mark.skipif(cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_why():
    with pytest.raises(TransferError) as caught:
        CudaPeerEngine()
    assert caught.value.code is Code.TRANSPORT and caught.value.reason == cuda.problem()


def test_wrong_arguments():
    for routes in ((), ("pigeon",)):
        with pytest.raises(ValueError, match="copy, direct, host"):
            CudaPeerEngine(routes=routes)


@needs_gpu
def test_wrong_devices_and_slots():
    with pytest.raises(TransferError, match="no GPU 99"):
        CudaPeerEngine(99)
    with pytest.raises(ValueError, match="multiple of 256"):
        Receiver(CudaPeerEngine(), None, Options(slot_bytes=5000))


# Both sides in one process.


class PeerPair(Pair):
    def __init__(self, routes=ROUTES, **options):
        self.codebooks = make_codebooks()
        self.options = QUICK | {"resend_interval": 5.0} | options
        self.receiver = Receiver(CudaPeerEngine(routes=routes), self.codebooks, Options(**self.options))
        self.sender = Sender(CudaPeerEngine(routes=routes), self.codebooks, Options(**self.options))

    def __exit__(self, *_):
        self.sender.close()
        self.receiver.close()

    def routed(self):
        return {name for name in ROUTES if self.sender.metrics.sum("routed_frames_total", route=name)}


@needs_gpu
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("where", [("source", "target"), ("source",), ("target",), ("mixed",)], ids="-".join)
def test_moved(route, where):
    with PeerPair((route,), shadow=2) as pair:
        for seed in range(4):
            tensors = device_tensors(seed, where)
            assert pair.move(f"request {seed}", tensors) == [None, None]
            assert_moved(tensors)
        assert pair.routed() == {route}
        assert not +pair.sender.counters and not +pair.receiver.counters


@needs_gpu
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "change", [{"raw": True}, {"checksums": False}, {"budget_margin": 0.01}], ids=lambda change: next(iter(change))
)
def test_raw_and_without_checksums_and_with_budgets(change, route):
    with PeerPair((route,), **change) as pair:
        for seed in range(4):
            tensors = device_tensors(seed)
            assert pair.move(f"request {seed}", tensors) == [None, None]
            assert_moved(tensors)
        assert not +pair.receiver.counters


@needs_gpu
def test_a_route_is_chosen():
    with PeerPair() as pair:
        for seed in range(12):
            tensors = device_tensors(seed)
            assert pair.move(f"request {seed}", tensors) == [None, None]
            assert_moved(tensors)
        assert pair.routed() == set(ROUTES)
        assert sum(pair.sender.metrics.sum("routes_total", route=name) for name in ROUTES) == 1


@needs_gpu
@pytest.mark.parametrize("route", ["copy", "host"])
def test_a_damaged_frame_is_written_again(monkeypatch, route):
    with PeerPair((route,)) as pair:
        write = pair.sender.engine.write
        damaged = []

        def damage(data_address, segments, timeout, stop):
            write(data_address, segments, timeout, stop)
            if len(damaged) < 3:
                [segment] = segments
                damaged.append(segment)
                noise = np.full(8, 0x55 + len(damaged), np.uint8)
                wrong = Segment(address_of(noise), segment.remote + segment.length // 2, 8)
                write(data_address, [wrong], timeout, stop)

        monkeypatch.setattr(pair.sender.engine, "write", damage)
        for seed in range(4):
            tensors = device_tensors(seed)
            assert pair.move(f"request {seed}", tensors) == [None, None]
            assert_moved(tensors)
        assert pair.sender.counters["rewritten_frames"] == 3


@needs_gpu
def test_a_frame_that_is_not_the_one_or_is_replaced_while_it_is_decoded():
    tensors = device_tensors(5, most_parts=1)
    [tensor] = tensors
    parts = [tensor.part(side, make_codebooks().find("kv")) for side in (tensor.source, tensor.target)]
    source, target = (([part.tensor], [part.layout]) for part in parts)
    coder = cuda.Coder()
    memory = cuda.Array(cuda.Memory(1 << 20), 0, (1 << 20,), "|u1")
    for checksums in (True, False, True):
        size = coder.encode_to(memory, *source, nonce=7, checksums=checksums)
        frame = cuda.Array(memory.memory, 0, (size,), "|u1")
        copied = np.empty(size, np.uint8)
        coder.copy(copied, frame)
        assert Frame(copied).nonce == 7 and Frame(copied).has_checksums == checksums
        coder.decode_from(frame, 7, *target)
        assert_moved(tensors)
        with pytest.raises(NonceMismatch):
            coder.decode_from(frame, 8, *target)
    coder.copy(frame, copied ^ (np.arange(size) == size - 40))
    with pytest.raises(SplitzipError):
        coder.decode_from(frame, 7, *target)

    earlier = coder.encode(*source, nonce=6)
    assert len(earlier) == size

    class Late(cuda.Coder):
        def _launch(self, *arguments, then=None):
            done = super()._launch(*arguments)
            coder.copy(frame, earlier)
            return done if then is None else (self._copy(*then), done)[1]

    coder.copy(frame, copied)
    with pytest.raises(NonceMismatch):
        Late().decode_from(frame, 7, *target)


@needs_gpu
def test_addresses_that_are_not_the_receivers():
    engine, other = CudaPeerEngine(), CudaPeerEngine()
    pieces = other.allocate(4096, 6, pinned=False, lent=True)
    assert [piece.nbytes for piece in pieces] == [4 * 4096, 2 * 4096]
    data = np.arange(4096, dtype=np.uint8)
    for piece in pieces:
        start = address_of(piece)
        engine.write(other.data_address, [Segment(address_of(data), start + 4096, 4096)], 5.0, threading.Event())
        for remote in (start - 1, start + GRANULE if piece is pieces[0] else start + 4097):
            with pytest.raises(TransferError, match="not the receiver's to lend"):
                engine.write(other.data_address, [Segment(address_of(data), remote, 4096)], 5.0, threading.Event())
    for nonsense in ("", "127.0.0.1:80", "[]", "{}", '{"token": 1, "gpu": ["zz", 1, 2]}'):
        with pytest.raises(TransferError):
            engine.routes(nonsense, [0], 4096)
    stop = threading.Event()
    stop.set()
    with pytest.raises(TransferError) as caught:
        engine.write(other.data_address, [], 5.0, stop)
    assert caught.value.code is Code.TIMEOUT
    engine.close()
    other.close()


@needs_gpu
def test_files_of_others_are_not_opened():
    with open("/proc/self/maps", "rb") as file, pytest.raises(FileNotFoundError, match="no shared memory"):
        SharedHost.open(os.getpid(), file.fileno(), 1)


# Two processes.

DECODE_DEVICE = 1 if cuda.is_available() and cuda.device_count() > 1 else 0


class Process:
    def __init__(self, role, routes=ROUTES, *arguments):
        script = str(pathlib.Path(__file__).with_name("peer_process.py"))
        device = DECODE_DEVICE if role == "decode" else 0
        command = [sys.executable, "-B", script, role, str(device), ",".join(routes), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.read() if role == "decode" else ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def read(self):
        line = self.process.stdout.readline()
        assert line, "the process has ended"
        return line.strip()

    def ask(self, number):
        print(number, file=self.process.stdin, flush=True)
        return self.read()


@pytest.fixture
def sender():
    end = Sender(CudaPeerEngine(), make_codebooks(), Options(**OPTIONS))
    yield end
    end.close()


@needs_gpu
@pytest.mark.parametrize("routes", [ROUTES, ("host",)], ids=",".join)
def test_two_processes(sender, routes):
    with Process("decode", routes) as decode:
        for number in range(10):
            assert decode.ask(number) == "expected"
            report = send(sender, decode.address, number)
            assert decode.read() == "exact"
            raw = sum(tensor.part(tensor.source).raw_bytes for tensor in request_of(number, "source"))
            assert report.wire_bytes < 0.8 * raw + 2000
        assert {name for name in ROUTES if sender.metrics.sum("routed_frames_total", route=name)} == set(routes)
        decode.process.stdin.close()
        assert decode.process.wait(20) == 0


@needs_gpu
@pytest.mark.parametrize("route", ROUTES)
def test_a_decode_process_that_is_killed_and_one_that_follows(route):
    sender = Sender(CudaPeerEngine(routes=(route,)), make_codebooks(), Options(**OPTIONS))
    codebook = sender.codebooks.find("kv")
    with Process("decode") as decode:
        assert decode.ask(LONG) == "expected"
        tensors = request_of(LONG, "source")
        request = sender.start(decode.address, f"request {LONG}")
        request.send([tensors[0].part(tensors[0].source, codebook)])
        decode.process.kill()
        with pytest.raises(TransferError) as caught:
            for tensor in tensors[1:]:
                request.send([tensor.part(tensor.source, codebook)])
            request.finish()
        assert caught.value.code in (Code.PEER_CLOSED, Code.TRANSPORT)
    with Process("decode") as decode:
        assert decode.ask(1) == "expected"
        send(sender, decode.address, 1)
        assert decode.read() == "exact"
    sender.close()


@needs_gpu
@pytest.mark.parametrize("route", ROUTES)
def test_a_prefill_process_that_is_killed_and_one_that_follows(route):
    with Process("decode") as decode:
        for number in (1, 2):
            with Process("prefill", (route,), decode.address) as prefill:
                assert decode.ask(number) == "expected" and prefill.ask(number) == "done"
                assert decode.read() == "exact"
                assert decode.ask(LONG) == "expected" and prefill.ask(LONG) == "begun"
                prefill.process.kill()
                assert decode.read() == "PEER_CLOSED"
