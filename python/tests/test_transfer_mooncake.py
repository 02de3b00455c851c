# SPDX-License-Identifier: Apache-2.0
"""Two real processes over the Mooncake Transfer Engine on the loopback interface, and the death of one of them."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from splitzip_kv import Calibration, Layout, cuda
from splitzip_kv.transfer import Code, Options, Segment, Sender, TransferError
from splitzip_kv.transfer.demo.cache import load_cache
from splitzip_kv.transfer.demo.processes import Worker, WorkerFailed
from splitzip_kv.transfer.engine import address_of
from splitzip_kv.transfer.mooncake import MooncakeEngine, has_rdma_device
from transfer_cases import values

pytest.importorskip("safetensors")


@pytest.fixture(scope="module", autouse=True)
def mooncake():
    try:
        engine = MooncakeEngine()
    except TransferError as error:
        pytest.skip(str(error))
    engine.close()


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    header, data = {}, b""
    for name, array in tensors.items():
        bits = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": "BF16", "shape": array.shape, "data_offsets": [len(data), len(data) + len(bits)]}
        data += bits
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A cache of 10 layers, 3.8 MB, and codebooks for it."""
    folder = tmp_path_factory.mktemp("cache")
    rng = np.random.default_rng(5)
    tensors = {
        f"layers.{layer}.{kind}": values(rng, 500, 192).reshape(500, 3, 64).transpose(1, 0, 2)
        for layer in range(10)
        for kind in "kv"
    }
    write_safetensors(folder / "kv.safetensors", tensors)
    calibration = Calibration()
    for tensor in load_cache(folder / "kv.safetensors"):
        calibration.add(tensor.name, Layout(tensor.values, "token,head,dim", type=tensor.type))
    calibration.finish().save(folder / "kv.szcb")
    return folder


def worker(role, files, **changes):
    settings = {
        "kv": str(files / "kv.safetensors"),
        "codebook": str(files / "kv.szcb"),
        "page_tokens": 16,
        "seed": 1 if role == "prefill" else 2,
        "engine": "mooncake",
        "host": "127.0.0.1",
        "protocol": "tcp",
        "routes": [],
        "slot_bytes": 2 << 20,
        "gpu": 0,
        "timeout": 20.0,
        "threads": 1,
        "device": "cpu",
        "link_bytes": None,
    }
    return Worker(role, **(settings | changes))


def move(prefill, decode, address, name):
    decode.ask("expect", name=name)
    decode.begin("arrived")
    sent = prefill.ask("send", name=name, address=address, coded=True)
    arrived = decode.answer()
    assert arrived["different_values"] == 0 and arrived["touched_bytes"] == 0
    return sent


def test_two_processes_many_times(files):
    with worker("decode", files) as decode, worker("prefill", files) as prefill:
        about, address = prefill.answer(), decode.answer()["address"]
        for number in range(10):
            sent = move(prefill, decode, address, f"request {number}")
        assert sent["wire_bytes"] < 0.75 * about["raw_bytes"] and sent["frames"] == 10


SLOW = 500_000  # bytes a second: a transfer takes some five seconds


@pytest.mark.parametrize("victim", ["prefill", "decode"])
def test_kill_one_side_in_the_middle(files, victim):
    with worker("decode", files) as decode, worker("prefill", files, link_bytes=SLOW) as prefill:
        prefill.answer()
        address = decode.answer()["address"]
        decode.ask("expect", name="a")
        decode.begin("arrived")
        prefill.begin("send", name="a", address=address, coded=True)
        time.sleep(1.0)
        killed, alive = (prefill, decode) if victim == "prefill" else (decode, prefill)
        os.kill(killed.process.pid, signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(WorkerFailed, match=r"PEER_CLOSED|TRANSPORT"):
            alive.answer()
        assert time.monotonic() - begin < 5.0
        with pytest.raises(WorkerFailed, match="ended with status -9"):
            killed.answer()
        with worker(victim, files) as new:
            about = new.answer()
            if victim == "prefill":
                move(new, alive, address, "b")
            else:
                # What is left of the slow link makes this take its five seconds.
                move(alive, new, about["address"], "b")


def test_a_decode_process_that_hangs(files):
    with worker("decode", files) as decode, worker("prefill", files, timeout=2.0) as prefill:
        prefill.answer()
        address = decode.answer()["address"]
        move(prefill, decode, address, "a")
        decode.ask("expect", name="b")
        os.kill(decode.process.pid, signal.SIGSTOP)
        begin = time.monotonic()
        with pytest.raises(WorkerFailed, match="TIMEOUT"):
            prefill.ask("send", name="b", address=address, coded=True)
        assert time.monotonic() - begin < 8.0
        os.kill(decode.process.pid, signal.SIGCONT)
        with pytest.raises(WorkerFailed, match=r"TIMEOUT|CANCELLED"):
            decode.ask("arrived")
        move(prefill, decode, address, "c")


@pytest.fixture
def own_sender(files):
    """A sender in this process, so that its engine can be tampered with."""
    from splitzip_kv import CodebookSet
    from splitzip_kv.transfer.demo.cache import Pool

    pool = Pool(load_cache(files / "kv.safetensors"), 16, seed=3)
    pool.fill()
    sender = Sender(MooncakeEngine(), CodebookSet.load(files / "kv.szcb"), Options(timeout=10.0))

    def send(name, address):
        request = sender.start(address, name)
        request.send(pool.part(number, sender.codebooks.find(tensor.name)) for number, tensor in enumerate(pool.cache))
        return request.finish()

    yield sender, send
    sender.close()


@pytest.mark.parametrize("heals", [True, False])
def test_a_frame_corrupted_on_the_way(files, own_sender, heals):
    sender, send = own_sender
    real = sender.engine.write
    damaged = []

    def write(data_address, segments, timeout, stop):
        position = segments[0].local - address_of(sender.staging.pieces[0]) + segments[0].length // 2
        spoil = not (heals and damaged)
        sender.staging.pieces[0][position] ^= 0x10 * spoil
        real(data_address, segments, timeout, stop)
        sender.staging.pieces[0][position] ^= 0x10 * spoil
        damaged.append(spoil)

    with worker("decode", files) as decode:
        address = decode.answer()["address"]
        decode.ask("expect", name="a")
        decode.begin("arrived")
        sender.engine.write = write
        if heals:
            send("a", address)
            assert decode.answer()["different_values"] == 0 and sender.counters["refused_frames"] == 1
        else:
            with pytest.raises(TransferError) as caught:
                send("a", address)
            assert caught.value.code is Code.CORRUPT
            with pytest.raises(WorkerFailed, match=r"CORRUPT.*failed 5 times"):
                decode.answer()
        sender.engine.write = real
        decode.ask("expect", name="b")
        decode.begin("arrived")
        send("b", address)
        assert decode.answer()["different_values"] == 0


def test_writes_to_where_nothing_is_registered(own_sender):
    sender, _ = own_sender
    other = MooncakeEngine()
    memory = np.zeros(4096, np.uint8)
    segment = Segment(sender.staging.address(0), address_of(memory), 4096)
    with pytest.raises(TransferError) as caught:
        sender.engine.write(other.data_address, [segment], 5.0, threading.Event())
    assert caught.value.code is Code.TRANSPORT
    other.register(memory)
    sender.staging.view(0, 4096)[:] = 7
    sender.engine.write(other.data_address, [segment], 5.0, threading.Event())
    assert (memory == 7).all()
    other.close()
    with pytest.raises(TransferError):
        sender.engine.write("127.0.0.1:1", [segment], 5.0, threading.Event())


SINK = """
import numpy as np
from splitzip_kv.transfer.engine import address_of
from splitzip_kv.transfer.mooncake import MooncakeEngine
engine, memory = MooncakeEngine(), np.zeros(512 << 20, np.uint8)
engine.register(memory)
print(engine.data_address, address_of(memory), flush=True)
input()
"""


def test_kill_in_the_middle_of_one_write(own_sender):
    sender, _ = own_sender
    source = np.zeros(512 << 20, np.uint8)
    sender.engine.register(source)
    sink = subprocess.Popen([sys.executable, "-c", SINK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    data_address, remote = sink.stdout.readline().split()
    killer = threading.Timer(0.02, sink.kill)
    begin = time.monotonic()
    killer.start()
    with pytest.raises(TransferError) as caught:
        segment = Segment(address_of(source), int(remote), len(source))
        sender.engine.write(data_address, [segment], 20.0, threading.Event())
    assert caught.value.code is Code.TRANSPORT and time.monotonic() - begin < 12.0
    sink.communicate()
    sender.engine.unregister(source)


def run_demo(*arguments):
    command = [sys.executable, "-m", "splitzip_kv.transfer.demo", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_command(files):
    done = run_demo("--kv", files / "kv.safetensors", "--codebook", files / "kv.szcb", "--repeat", 1, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    raw = result["prefill"]["raw_bytes"]
    pages, packed, coded = (result["runs"][name] for name in ("page_by_page", "packed_raw", "splitzip"))
    assert raw == 20 * 500 * 192 * 2
    assert pages["frames"] == 20 * 32 and pages["wire_bytes"] == 20 * 32 * 16 * 192 * 2
    assert raw < packed["wire_bytes"] < 1.01 * raw and coded["wire_bytes"] < 0.75 * raw
    assert all(run["different_values"] == run["touched_bytes"] == 0 for run in result["runs"].values())


def test_the_command_makes_a_codebook_itself(files):
    done = run_demo("--kv", files / "kv.safetensors", "--repeat", 1)
    assert done.returncode == 0, done.stderr
    assert "375 tokens" in done.stdout and "Every bit arrived" in done.stdout


def test_the_command_says_what_is_wrong(files, tmp_path):
    assert run_demo("--kv", tmp_path / "none").returncode == 2
    (tmp_path / "broken").write_bytes(bytes(10))
    done = run_demo("--kv", tmp_path / "broken", "--codebook", files / "kv.szcb")
    assert done.returncode == 1 and done.stderr.startswith("error: ") and "Traceback" not in done.stderr
    assert f"{tmp_path / 'broken'} is no complete safetensors file" in done.stderr
    done = run_demo("--kv", files / "kv.safetensors", "--codebook", tmp_path / "broken")
    assert done.returncode == 1 and f"{tmp_path / 'broken'}: " in done.stderr
    done = run_demo("--kv", files / "kv.safetensors", "--protocol", "carrier pigeon")
    assert done.returncode == 2 and "carrier pigeon" in done.stderr
    if not cuda.is_available():
        done = run_demo("--kv", files / "kv.safetensors", "--device", "cuda")
        assert done.returncode == 1 and f"--device cuda: {cuda.problem()}" in done.stderr


@pytest.mark.skipif(has_rdma_device(), reason="there is an RDMA device")
def test_tcp_is_not_called_rdma(files):
    done = run_demo("--kv", files / "kv.safetensors", "--protocol", "rdma")
    assert done.returncode == 2 and "no RDMA device" in done.stderr
    with pytest.raises(TransferError, match="no RDMA device"):
        MooncakeEngine(protocol="rdma")


def test_another_protocol():
    with pytest.raises(ValueError, match="neither"):
        MooncakeEngine(protocol="carrier pigeon")


def test_a_tensor_that_is_no_cache(tmp_path):
    write_safetensors(tmp_path / "four", {"k": np.zeros((1, 2, 4, 8), np.uint16)})
    with pytest.raises(ValueError, match=r"tensor k has shape \(1, 2, 4, 8\), not \[head, token, dim\]"):
        load_cache(tmp_path / "four")
    text = b'{"k":{"dtype":"I64","shape":[1,1,1],"data_offsets":[0,8]}}'
    (tmp_path / "long").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(ValueError, match="tensor k is I64, which is none of BF16, "):
        load_cache(tmp_path / "long")
