# SPDX-License-Identifier: Apache-2.0
"""Transfers over an engine that misbehaves: the bits arrive, or both sides say in time what went wrong."""

import gc
import os
import random
import threading
import time

import numpy as np
import pytest

from splitzip_kv.transfer import Code, TransferError
from splitzip_kv.transfer.inprocess import MESSAGE_FAULTS, WRITE_FAULTS, Faults, Network
from transfer_cases import Pair, some_tensors


def run(faults, seed=3, transfers=6, **options):
    """Several transfers; gives how many arrived and the codes of those that did not."""
    arrived, codes = 0, []
    rng = np.random.default_rng(seed)
    with Pair(faults, **options) as pair:
        for number in range(transfers):
            tensors = some_tensors(rng)
            begin = time.monotonic()
            sender, receiver = pair.move(f"request {number}", tensors)
            assert time.monotonic() - begin < pair.options["timeout"] + pair.options["connect_timeout"] + 1
            assert all(tensor.only_there() for tensor in tensors)
            if receiver is None:
                assert all(tensor.arrived() for tensor in tensors)
                arrived += 1
            else:
                assert sender is not None
            codes += [error.code for error in (sender, receiver) if error is not None]
        counters = pair.sender.counters + pair.receiver.counters
        pair.works()
    return arrived, codes, counters


@pytest.mark.parametrize("margin", [None, 0.02], ids=["", "budgets"])
@pytest.mark.parametrize("fault", WRITE_FAULTS)
def test_writes_that_go_wrong_sometimes(fault, margin):
    faults = Faults({fault: 0.4}, seed=5)
    arrived, codes, counters = run(faults, attempts=20, budget_margin=margin)
    assert faults.struck[fault] > 0
    assert arrived == 6 and not codes
    if fault in ("drop", "fail", "corrupt", "cut", "stale"):
        assert counters["rewritten_frames"] > 0
    if fault == "early":
        assert counters["late_frames"] > 0


@pytest.mark.parametrize("fault", ["drop", "fail", "corrupt", "cut"])
def test_writes_that_always_go_wrong(fault):
    arrived, codes, _ = run(Faults({fault: 1.0}), transfers=2, attempts=3)
    expected = Code.TRANSPORT if fault == "fail" else Code.CORRUPT
    assert arrived == 0 and codes == [expected] * 4


@pytest.mark.parametrize("fault", ["early", "late_copy", "slow"])
def test_writes_that_always_come_late(fault):
    arrived, codes, _ = run(Faults({fault: 1.0}))
    assert arrived == 6 and not codes


@pytest.mark.parametrize("fault", MESSAGE_FAULTS)
def test_messages_that_go_wrong_sometimes(fault):
    faults = Faults({fault: 0.3}, seed=6)
    arrived, codes, counters = run(faults)
    assert faults.struck[fault] > 0
    assert arrived == 6 and not codes
    if fault in ("lose", "damage", "shorten"):
        assert counters["resent_messages"] > 0
    if fault in ("damage", "shorten"):
        assert counters["damaged_messages"] > 0
    if fault == "twice":
        assert counters["refused_frames"] == counters["late_frames"] == 0


def test_messages_that_always_vanish():
    arrived, codes, _ = run(Faults({"lose": 1.0}), transfers=1, timeout=0.5, connect_timeout=0.3)
    assert arrived == 0 and codes == [Code.TIMEOUT] * 2


@pytest.mark.parametrize("ends", ["sender", "receiver"])
@pytest.mark.parametrize("how", ["dies", "hangs"])
def test_a_side_that_dies_or_hangs_in_the_middle(ends, how):
    with Pair(timeout=1.0 if how == "hangs" else 10.0) as pair:
        tensors = some_tensors(np.random.default_rng(8), most_parts=8)
        incoming = pair.expect("a", tensors)
        request = pair.sender.start(pair.receiver.address, "a")
        request.send(pair.parts(tensors)[:1])
        engine = (pair.sender if ends == "sender" else pair.receiver).engine
        if how == "hangs":
            engine.silent = True
        else:
            engine.close()
        begin = time.monotonic()
        with pytest.raises(TransferError) as of_sender:
            for part in pair.parts(tensors)[1:]:
                request.send([part])
            request.finish()
        with pytest.raises(TransferError) as of_receiver:
            incoming.wait()
        took = time.monotonic() - begin
        if how == "dies":
            assert took < 5 and of_sender.value.code is of_receiver.value.code is Code.PEER_CLOSED
        else:
            assert took < 5 and of_sender.value.code is of_receiver.value.code is Code.TIMEOUT
            engine.silent = False
            pair.works()


def test_the_receiver_comes_back_under_the_same_address():
    with Pair() as pair:
        pair.works()
        address = pair.receiver.address
        pair.receiver.close()
        with pytest.raises(TransferError) as caught:
            pair.sender.start(address, "while it is away").finish()
        assert caught.value.code is Code.PEER_CLOSED
        pair.receiver = type(pair.receiver)(pair.network.engine(), pair.codebooks, pair.receiver.options)
        pair.network.engines[address] = pair.network.engines.pop(pair.receiver.address)
        pair.receiver.engine.address = pair.receiver.engine.data_address = address
        pair.works()


def test_unknown_faults_are_refused():
    with pytest.raises(ValueError, match="unknown"):
        Faults({"explode": 1.0})


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_thousand_transfers_with_faults():
    """Random sizes and page lists, every fault, callers who give up, links that break: bit-exact or visibly failed."""
    faults = Faults(dict.fromkeys(WRITE_FAULTS + MESSAGE_FAULTS, 0.02), seed=11, delay=0.03)
    outcomes = {"arrived": 0, "failed": 0, "unconfirmed": 0}
    problems = []
    resident = []
    numbers = iter(range(1000))
    lock = threading.Lock()

    def one(pair: Pair, number: int) -> None:
        dice = random.Random(number)
        tensors = some_tensors(np.random.default_rng(number), most_parts=3, most_tokens=300)
        trouble = []
        if number % 25 == 0:
            trouble.append(threading.Timer(dice.random() * 0.02, break_link, (pair, dice)))
        for timer in trouble:
            timer.start()
        sender, receiver = pair.move(f"request {number}", tensors, 10.0)
        for timer in trouble:
            timer.join()
        with lock:
            if not all(tensor.only_there() for tensor in tensors):
                problems.append((number, "memory of others was written"))
            if receiver is None and not all(tensor.arrived() for tensor in tensors):
                problems.append((number, "wrong bits were exposed"))
            if sender is None and receiver is not None:
                problems.append((number, "the sender reports success, the receiver does not"))
            name = "arrived" if sender is None else "unconfirmed" if receiver is None else "failed"
            outcomes[name] += 1
            if number % 100 == 99:
                gc.collect()
                resident.append(resident_bytes())

    def break_link(pair: Pair, dice: random.Random) -> None:
        for session in list(pair.sender._sessions.values()):
            session.link.close()

    def work(pair: Pair) -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                one(pair, number)
            except Exception as error:
                problems.append((number, repr(error)))

    with Pair(faults, attempts=6, staging_bytes=1 << 20) as pair:
        threads = [threading.Thread(target=work, args=(pair,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pair.works()
        struck = faults.struck
        counters = pair.sender.counters + pair.receiver.counters
        assert pair.sender.staging.free_count == 16
    print(outcomes, dict(struck), dict(counters), [f"{size >> 20} MiB" for size in resident])
    assert not problems
    assert sum(outcomes.values()) == 1000
    assert outcomes["arrived"] > 900 and outcomes["failed"] > 0
    assert all(struck[name] > 10 for name in WRITE_FAULTS + MESSAGE_FAULTS)
    assert max(resident[3:]) - resident[2] < 16 << 20


def test_deliveries_end_with_their_network():
    network = Network()
    ran = threading.Event()
    network.later(0.01, ran.set)
    assert ran.wait(1.0)
    network.close()
