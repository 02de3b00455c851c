# SPDX-License-Identifier: Apache-2.0
"""Transfers inside of one process: what is agreed, what is refused, how much is under way."""

import dataclasses
import threading
import time

import numpy as np
import pytest

import splitzip_kv
from splitzip_kv import Frame, Layout, Mode, encode
from splitzip_kv.transfer import Code, Options, Part, Receiver, Sender, TransferError, coding, messages
from splitzip_kv.transfer import sender as sender_module
from splitzip_kv.transfer.inprocess import Faults
from splitzip_kv.transfer.parts import with_slots
from transfer_cases import CHANNELS, QUICK, Pair, Tensor, make_codebooks, some_tensors, values

RNG = np.random.default_rng(7)


def tensors_of(*tokens, **arguments):
    return [Tensor(RNG, key, count, **arguments) for key, count in enumerate(tokens)]


def assert_moved(tensors):
    assert all(tensor.arrived() for tensor in tensors)
    assert all(tensor.only_there() for tensor in tensors)


def until(condition):
    deadline = time.monotonic() + 5.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_pages_of_different_sizes_and_numbers():
    with Pair(resend_interval=5.0) as pair:
        for number in range(20):
            tensors = some_tensors(RNG)
            assert pair.move(f"request {number}", tensors) == [None, None]
            assert_moved(tensors)
        assert not +pair.sender.counters and not +pair.receiver.counters


def test_reports_count_bytes_and_time():
    with Pair() as pair:
        tensors = tensors_of(256, 256)
        incoming = pair.expect("a", tensors)
        request = pair.sender.start(pair.receiver.address, "a")
        for part in pair.parts(tensors):
            request.send([part])
        sent, received = request.finish(), incoming.wait()
        raw = sum(part.raw_bytes for part in pair.parts(tensors))
        assert sent.frames == received.frames == 4  # of 49152 bytes a tensor in slots of 65536, bounds included
        assert sent.wire_bytes == received.wire_bytes < 0.75 * raw
        assert len(sent.encode) == len(sent.write) == len(received.decode) == 4
        assert all(span.end >= span.begin for span in sent.encode + sent.write + received.decode)


def test_several_parts_in_one_frame():
    with Pair() as pair:
        tensors = tensors_of(20, 30, 40)
        incoming = pair.expect("a", tensors)
        request = pair.sender.start(pair.receiver.address, "a")
        request.send(pair.parts(tensors))
        assert request.finish().frames == 1
        incoming.wait()
        assert_moved(tensors)


@pytest.mark.parametrize("mode", [Mode.TIERED, Mode.FIXED4])
def test_slots_that_are_told_are_those_that_the_library_would_choose(mode):
    book = make_codebooks().find("kv")
    rng = np.random.default_rng(4)
    for tokens, tokens_per_unit in ((1, 256), (5, 16), (33, 16), (100, 30), (700, 256)):
        layout = Layout(values(rng, tokens, CHANNELS), "token,channel")
        tensor = layout.tensor(book, mode=mode, tokens_per_unit=tokens_per_unit)
        [chosen] = Frame(encode([tensor], [layout])).tensors()
        assert with_slots(tensor).slot_words == chosen.slot_words


def test_budgets():
    """Frames of one shape have one length, whatever they hold, and another nobody is told; noise goes in mode raw."""
    with Pair(resend_interval=5.0, shadow=2, budget_margin=0.05) as pair:
        tensors = tensors_of(*[64] * 9)
        noise = tensors[4].source.pool.view(np.uint16)
        noise[:] = np.random.default_rng(1).integers(0, 1 << 16, noise.shape)
        incoming = pair.expect("a", tensors)
        request = pair.sender.start(pair.receiver.address, "a")
        lengths = []
        for part in pair.parts(tensors):
            before = request.report.wire_bytes
            request.send([part])
            lengths.append(request.report.wire_bytes - before)
        sent, received = request.finish(), incoming.wait()
        assert_moved(tensors)
        assert sent.wire_bytes == received.wire_bytes == sum(lengths)
        raw_bytes = pair.parts(tensors)[0].raw_bytes
        budget = lengths[0]
        assert lengths == [budget] * 4 + [lengths[4]] + [budget] * 4
        assert budget % 16 == 0 and budget < 0.8 * raw_bytes < raw_bytes < lengths[4]
        assert +pair.sender.counters == {"over_budget_frames": 1} and not +pair.receiver.counters


def test_budgets_of_requests_of_all_shapes():
    with Pair(resend_interval=5.0, budget_margin=0.02) as pair:
        for number in range(20):
            tensors = some_tensors(RNG)
            assert pair.move(f"request {number}", tensors) == [None, None]
            assert_moved(tensors)
        assert pair.sender.metrics.sum("frames_total", coding="coded") > 0 and not +pair.receiver.counters


def test_layers_can_be_used_before_the_last_one_is_there():
    with Pair() as pair:
        tensors = tensors_of(100, 100)
        incoming = pair.expect("a", tensors)
        request = pair.sender.start(pair.receiver.address, "a")
        request.send(pair.parts(tensors)[:1])
        incoming.wait_for(0)
        assert tensors[0].arrived() and not incoming.done
        request.send(pair.parts(tensors)[1:])
        request.finish()
        incoming.wait()
        assert_moved(tensors)


def test_empty_parts_and_empty_requests():
    with Pair() as pair:
        tensors = tensors_of(0, 10, 0)
        assert pair.move("a", tensors) == [None, None]
        assert_moved(tensors)
        assert pair.move("b", tensors_of(0)) == [None, None]


def test_the_sender_may_come_first():
    with Pair() as pair:
        tensors = tensors_of(50)
        request = pair.sender.start(pair.receiver.address, "a")
        time.sleep(0.1)
        incoming = pair.expect("a", tensors)
        request.send(pair.parts(tensors))
        request.finish()
        incoming.wait()
        assert_moved(tensors)


def test_requests_side_by_side():
    with Pair() as pair:
        jobs = [some_tensors(np.random.default_rng(seed)) for seed in range(8)]
        results = [None] * len(jobs)

        def move(number):
            results[number] = pair.move(f"request {number}", jobs[number])

        threads = [threading.Thread(target=move, args=(number,)) for number in range(len(jobs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [[None, None]] * len(jobs)
        for tensors in jobs:
            assert_moved(tensors)


def test_memory_is_capped_and_a_full_one_makes_the_sender_wait(monkeypatch):
    go_on = threading.Event()
    original = Receiver._decode

    def slow(self, *arguments):
        go_on.wait()
        return original(self, *arguments)

    monkeypatch.setattr(Receiver, "_decode", slow)
    with Pair(staging_bytes=2 << 16, slots_per_session=2) as pair:
        tensors = tensors_of(100, 100, 100, 100, 100)
        incoming = pair.expect("a", tensors)
        request = pair.sender.start(pair.receiver.address, "a")
        sender = threading.Thread(target=lambda: [request.send([part]) for part in pair.parts(tensors)])
        sender.start()
        until(lambda: pair.sender.staging.free_count == 0)
        time.sleep(0.1)
        assert sender.is_alive() and request.next_chunk == 2
        go_on.set()
        sender.join()
        request.finish()
        incoming.wait()
        assert_moved(tensors)
        assert pair.sender.staging.free_count == 2


def test_a_sender_that_never_gets_a_slot_fails_in_time(monkeypatch):
    monkeypatch.setattr(Receiver, "_decode", lambda *_: time.sleep(1.5))
    with Pair(staging_bytes=1 << 16) as pair:
        tensors = tensors_of(100, 100)
        incoming = pair.expect("a", tensors, 0.3)
        request = pair.sender.start(pair.receiver.address, "a", 0.3)
        with pytest.raises(TransferError) as caught:
            for part in pair.parts(tensors):
                request.send([part])
        assert caught.value.code is Code.TIMEOUT
        with pytest.raises(TransferError):
            incoming.wait()
        assert incoming.decoding == 0  # nothing writes any more


def test_staging_lent_out():
    with Pair(staging_bytes=2 << 16, slots_per_session=2) as pair:
        pair.works()
        other = Sender(pair.network.engine(), pair.codebooks, Options(**QUICK))
        with pytest.raises(TransferError) as caught:
            other.start(pair.receiver.address, "b")
        assert caught.value.code is Code.REFUSED and caught.value.remote
        pair.sender.close()
        until(lambda: pair.receiver.staging.free_count == 2)
        request = other.start(pair.receiver.address, "b")
        request.cancel()
        other.close()


def test_a_unit_larger_than_a_slot():
    with Pair() as pair:
        tensors = tensors_of(1000, unit=1000)
        pair.expect("a", tensors)
        request = pair.sender.start(pair.receiver.address, "a")
        with pytest.raises(ValueError, match="larger slots"):
            request.send(pair.parts(tensors))
        request.cancel()


@pytest.mark.parametrize("where", ["sender", "receiver", "environment"])
def test_kill_switch(where, monkeypatch):
    if where == "environment":
        monkeypatch.setenv("SPLITZIP_RAW", "1")
    with Pair(receiver={"raw": where != "sender"}, raw=where != "receiver") as pair:
        if where == "environment":
            assert Options().raw
        tensors = tensors_of(128)
        incoming = pair.expect("a", tensors)
        request = pair.sender.start(pair.receiver.address, "a")
        request.send(pair.parts(tensors))
        assert request.finish().wire_bytes > pair.parts(tensors)[0].raw_bytes
        incoming.wait()
        assert_moved(tensors)


def test_a_codebook_that_the_receiver_lacks_is_not_used():
    with Pair() as pair:
        pair.receiver.codebooks = make_codebooks(seed=2)
        tensors = tensors_of(128)
        incoming = pair.expect("a", tensors)
        request = pair.sender.start(pair.receiver.address, "a")
        request.send(pair.parts(tensors))
        assert request.finish().wire_bytes > pair.parts(tensors)[0].raw_bytes
        incoming.wait()
        assert_moved(tensors)


def test_breaker():
    with Pair(Faults({"corrupt": 1.0}), attempts=6, breaker=3) as pair:
        tensors = tensors_of(64)
        assert pair.move("a", tensors)[0].code is Code.CORRUPT
        assert next(iter(pair.sender._sessions.values())).usable == set()
        pair.works()


def test_shadow(monkeypatch):
    with Pair(shadow=1) as pair:
        tensors = tensors_of(64, 64)
        assert pair.move("a", tensors) == [None, None]
        assert_moved(tensors)
        assert pair.sender.counters["shadow_mismatches"] == 0

        class Wrong(Frame):
            def decode(self, tensors, layouts, **options):
                super().decode(tensors, layouts, **options)
                other = values(RNG, tensors[0].tokens, CHANNELS).reshape(-1, 3, 64)
                wrong = [Layout(other, "token,head,dim")]
                Frame(encode([tensors[0]], wrong)).decode([tensors[0]], layouts)

        monkeypatch.setattr(splitzip_kv, "Frame", Wrong)
        tensors = tensors_of(64, 64)
        incoming = pair.expect("b", tensors)
        request = pair.sender.start(pair.receiver.address, "b")
        for part in pair.parts(tensors):
            request.send([part])
        assert request.finish().wire_bytes > sum(part.raw_bytes for part in pair.parts(tensors))
        incoming.wait()
        assert_moved(tensors)
        assert pair.sender.counters["shadow_mismatches"] == 1


def test_threads():
    with Pair(threads=3) as pair:
        tensors = tensors_of(300, 300)
        assert pair.move("a", tensors) == [None, None]
        assert_moved(tensors)


@pytest.mark.parametrize("side", ["format", "protocol"])
def test_versions_that_do_not_fit(side, monkeypatch):
    with Pair() as pair:
        if side == "format":
            monkeypatch.setattr(sender_module, "FORMAT_VERSION", 999)
        else:
            hello = dataclasses.make_dataclass("Hello", [], bases=(messages.Hello,), frozen=True)
            monkeypatch.setattr(sender_module.messages, "Hello", lambda _, *rest: hello(999, *rest))
        with pytest.raises(TransferError) as caught:
            pair.sender.start(pair.receiver.address, "a")
        assert caught.value.code is Code.VERSION and caught.value.remote and "999" in caught.value.reason
        monkeypatch.undo()
        pair.works()


def change(tensor, **changes):
    """The sender's view of a tensor, not quite that of the receiver."""
    side = tensor.source
    heads, dim = changes.get("ranges", 3), changes.get("channels", 64)
    part = tensor.part(dataclasses.replace(side, pool=side.pool[:, :, :heads, :dim]))
    part.tensor = dataclasses.replace(part.tensor, **changes)
    return part


@pytest.mark.parametrize(
    "changes",
    [{"tensor_key": 5}, {"first_block": 1}, {"tokens": 60}, {"ranges": 2}, {"channels": 32}, {"tokens_per_unit": 32}],
    ids=str,
)
def test_other_geometry_than_expected(changes):
    with Pair() as pair:
        tensors = tensors_of(64)
        incoming = pair.expect("a", tensors)
        request = pair.sender.start(pair.receiver.address, "a")
        before = tensors[0].target.pool.copy()
        with pytest.raises(TransferError) as sender_error:
            request.send([change(tensors[0], **changes)])
            request.finish()
        with pytest.raises(TransferError) as receiver_error:
            incoming.wait()
        assert sender_error.value.code is receiver_error.value.code is Code.GEOMETRY
        assert np.array_equal(before.view(np.uint16), tensors[0].target.pool.view(np.uint16))
        pair.works()


def test_the_same_blocks_twice():
    with Pair() as pair:
        tensors = tensors_of(64, 64)
        incoming = pair.expect("a", tensors)
        request = pair.sender.start(pair.receiver.address, "a")
        with pytest.raises(TransferError) as caught:
            request.send(pair.parts(tensors)[:1])
            request.send(pair.parts(tensors)[:1])
            request.finish()
        assert caught.value.code is Code.GEOMETRY
        with pytest.raises(TransferError):
            incoming.wait()


def test_something_is_missing_at_the_end():
    with Pair() as pair:
        tensors = tensors_of(64, 64)
        incoming = pair.expect("a", tensors)
        request = pair.sender.start(pair.receiver.address, "a")
        request.send(pair.parts(tensors)[:1])
        with pytest.raises(TransferError) as caught:
            request.finish()
        assert caught.value.code is Code.INCOMPLETE and caught.value.remote
        with pytest.raises(TransferError) as caught:
            incoming.wait()
        assert caught.value.code is Code.INCOMPLETE and not caught.value.remote
        pair.works()


@pytest.mark.parametrize("side", ["sender", "receiver", "receiver before the sender"])
def test_cancel(side):
    with Pair() as pair:
        tensors = tensors_of(64, 64)
        incoming = pair.expect("a", tensors)
        if side == "receiver before the sender":
            incoming.cancel("not needed any more")
        request = pair.sender.start(pair.receiver.address, "a")
        if side == "sender":
            request.send(pair.parts(tensors)[:1])
            request.cancel("not needed any more")
        elif side == "receiver":
            request.send(pair.parts(tensors)[:1])
            incoming.cancel("not needed any more")
        for wait in (incoming.wait, request.finish):
            with pytest.raises(TransferError) as caught:
                wait()
            assert caught.value.code is Code.CANCELLED and "not needed" in caught.value.reason
        with pytest.raises(TransferError):
            request.send(pair.parts(tensors)[1:])
        pair.works()


def test_nobody_expects_it():
    with Pair() as pair:
        request = pair.sender.start(pair.receiver.address, "a", timeout=0.2)
        with pytest.raises(TransferError) as caught:
            request.send(pair.parts(tensors_of(10)))
        assert caught.value.code is Code.TIMEOUT


def test_nobody_sends_it():
    with Pair() as pair:
        incoming = pair.expect("a", tensors_of(10), timeout=0.2)
        with pytest.raises(TransferError) as caught:
            incoming.wait()
        assert caught.value.code is Code.TIMEOUT


def test_names_and_keys_are_unique():
    with Pair() as pair:
        tensors = tensors_of(10)
        pair.expect("a", tensors)
        with pytest.raises(ValueError, match="expected already"):
            pair.expect("a", tensors)
        for side in (lambda name: pair.expect(name, []), lambda name: pair.sender.start(pair.receiver.address, name)):
            with pytest.raises(ValueError, match="512 bytes"):
                side("ä" * 300)
        with pytest.raises(ValueError, match="two parts"):
            pair.expect("b", tensors + tensors_of(10))
        with pytest.raises(ValueError, match="room"):
            Part(np.zeros((4, 8), np.float16), "token,channel", key=0, tokens=5)


def test_whatever_goes_wrong_the_threads_go_on(monkeypatch):
    with Pair() as pair:
        tensors = tensors_of(64)

        def broken(*_):
            raise RuntimeError("out of order")

        monkeypatch.setattr(coding, "Frame", broken)
        assert [error.code for error in pair.move("a", tensors)] == [Code.CODEC] * 2
        monkeypatch.undo()
        monkeypatch.setattr(pair.sender.engine, "write", broken)
        assert [error.code for error in pair.move("b", tensors)] == [Code.TRANSPORT] * 2
        monkeypatch.undo()
        monkeypatch.setattr(pair.sender, "on_tick", broken)
        time.sleep(0.1)
        monkeypatch.undo()
        pair.works()


def test_memory_that_must_not_be_written():
    with Pair() as pair:
        tensors = tensors_of(10)
        tensors[0].target.pool.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            pair.expect("a", tensors)


def test_a_frame_of_earlier_that_replaces_the_right_one_during_decoding(monkeypatch):
    """Valid, of the same geometry, and complete: only looking at the nonce again tells."""
    with Pair() as pair:
        first, second = tensors_of(64), tensors_of(64)
        old = []
        state = {"replace": False}

        class Replaced(Frame):
            def __init__(self, data, **arguments):
                super().__init__(data, **arguments)
                self.memory = data

            def decode(self, *arguments, **options):
                if not state["replace"]:
                    old.append(self.memory.copy())
                else:
                    state["replace"] = False
                    assert self.memory.nbytes == old[0].nbytes
                    self.memory[:] = old[0]
                super().decode(*arguments, **options)

        monkeypatch.setattr(coding, "Frame", Replaced)
        assert pair.move("a", first) == [None, None]
        second[0].source = first[0].source
        state["replace"] = True
        assert pair.move("b", second) == [None, None]
        assert not state["replace"] and pair.receiver.counters["refused_frames"] == 1
        assert_moved(second)


def connect(pair):
    """A sender that says what it likes."""
    engine = pair.network.engine()
    link = engine.connect(pair.receiver.address, 1.0)

    def say(message, wait=0.3):
        engine.notify(link, messages.pack(message) if not isinstance(message, bytes) else message)
        event = engine.receive(wait)
        return None if event is None else event.message and messages.unpack(event.message)

    return engine, link, say


HELLO = messages.Hello(messages.PROTOCOL, 0, 0, 0x1234, "x", ())
RECORD = messages.TensorRecord(0, 0, 0, 64, 64, 64, 0, 3, 1, 0, 0)


@pytest.mark.parametrize(
    "message",
    [
        messages.Offer(1, "a"),
        messages.Accept(1),
        messages.Welcome(0, 1, "", "", (), ()),
        messages.Chunk(1, 0, 1, 0, 1, 100, 0, (RECORD,)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_only_the_other_side_may_say_or_not_yet(message):
    with Pair() as pair:
        _, _, say = connect(pair)
        assert say(message) is None  # the end of the link
        pair.works()


@pytest.mark.parametrize(
    "changes",
    [
        {"slot": 99},
        {"frame_bytes": 0},
        {"frame_bytes": 1 << 17},
        {"frame_bytes": 2**64 - 1},
        {"nonce": 5},
        {"tensors": (dataclasses.replace(RECORD, mode=2, codebook_hash=77),)},
        {"tensors": (dataclasses.replace(RECORD, tokens=0),)},
        {"tensors": (dataclasses.replace(RECORD, first_block=2**64 - 1),)},
        {"tensors": (dataclasses.replace(RECORD, tokens=2**32 - 1),)},
        {"tensors": (RECORD, RECORD)},
    ],
    ids=str,
)
def test_chunks_that_cannot_be(changes):
    with Pair() as pair:
        _, _, say = connect(pair)
        assert isinstance(say(HELLO), messages.Welcome)
        incoming = pair.expect("a", tensors_of(64))
        assert isinstance(say(messages.Offer(1, "a")), messages.Accept)
        chunk = messages.Chunk(1, 0, 1, 0, HELLO.session << 32 | 1, 100, 0, (RECORD,))
        assert isinstance(say(dataclasses.replace(chunk, **changes)), messages.Fail)
        with pytest.raises(TransferError) as caught:
            incoming.wait()
        assert caught.value.code in (Code.PROTOCOL, Code.GEOMETRY)
        pair.works()


def test_a_failure_of_an_unknown_kind():
    with Pair() as pair:
        _, _, say = connect(pair)
        say(HELLO)
        incoming = pair.expect("a", tensors_of(64))
        assert isinstance(say(messages.Offer(1, "a")), messages.Accept)
        say(messages.Fail(1, 99, "of a later version"))
        with pytest.raises(TransferError, match="PROTOCOL: of a later version") as caught:
            incoming.wait()
        assert caught.value.remote
        pair.works()


def test_a_welcome_without_slots():
    with Pair() as pair:
        engine = pair.network.engine()
        failed = []

        def start():
            with pytest.raises(TransferError) as caught:
                pair.sender.start(engine.address, "a")
            failed.append(caught.value)

        thread = threading.Thread(target=start)
        thread.start()
        event = engine.receive(1.0)
        engine.notify(event.link, messages.pack(messages.Welcome(0, 0, "", "", (), ())))
        thread.join()
        assert failed[0].code is Code.PROTOCOL


def test_options_are_checked():
    for wrong in (
        {"slot_bytes": 100},
        {"staging_bytes": 100},
        {"slots_per_session": 0},
        {"attempts": 0},
        {"timeout": 0},
        {"threads": -1},
    ):
        with pytest.raises(ValueError):
            Options(**wrong)
