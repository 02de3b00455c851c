# SPDX-License-Identifier: Apache-2.0
"""Several ways to a receiver's memory: which one is taken, and frames that are encoded straight into it. All in one
process."""

import time

import numpy as np
import pytest

from splitzip_kv.transfer import Code, Options, Receiver, Sender, TransferError
from splitzip_kv.transfer.engine import Route, address_of
from splitzip_kv.transfer.inprocess import Faults, InProcessEngine, Network
from splitzip_kv.transfer.routes import TRIALS, RouteChoice
from transfer_cases import QUICK, Pair, Tensor, make_codebooks, some_tensors


class TwoPieces(InProcessEngine):
    """Lends two pieces of memory: "copy" and "direct" lead to one of them, "host" to the other."""

    names = ("copy", "direct", "host")
    slow: dict[str, float] = {}

    def allocate(self, slot_bytes, slots, *, pinned, lent):
        if not lent:
            return super().allocate(slot_bytes, slots, pinned=pinned, lent=lent)
        return [
            super(TwoPieces, self).allocate(slot_bytes, part, pinned=pinned, lent=lent)[0] for part in (slots // 2, 2)
        ]

    def routes(self, data_address, slots, slot_bytes):
        peer = self.network.engines[data_address]
        first, second = (address_of(memory) for memory in peer._memory)
        own = {
            i: peer.find(slot, slot_bytes) for i, slot in enumerate(slots) if 0 <= slot - first < peer._memory[0].nbytes
        }
        rest = frozenset(range(len(slots))) - own.keys()
        assert own and len(rest) == 2 and all(slots[i] - second < peer._memory[1].nbytes for i in rest)
        found = {
            "copy": Route("copy", frozenset(own)),
            "direct": Route("direct", frozenset(own), own),
            "host": Route("host", rest),
        }
        return [found[name] for name in self.names]

    def write(self, data_address, segments, timeout, stop):
        [segment] = segments
        pieces = self.network.engines[data_address]._memory
        name = "host" if 0 <= segment.remote - address_of(pieces[1]) < pieces[1].nbytes else "copy"
        time.sleep(self.slow.get(name, 0.0))
        super().write(data_address, segments, timeout, stop)


class RoutedPair(Pair):
    def __init__(self, faults=None, names=TwoPieces.names, slow=None, **options):
        self.codebooks = make_codebooks()
        self.network = Network(faults)
        self.options = QUICK | options
        ends = []
        for _ in range(2):
            engine = TwoPieces(self.network, f"two pieces {len(ends)}")
            engine.names, engine.slow = names, slow or {}
            self.network.engines[engine.address] = engine
            ends.append(engine)
        self.receiver = Receiver(ends[0], self.codebooks, Options(**self.options))
        self.sender = Sender(ends[1], self.codebooks, Options(**self.options))

    def routed(self, name):
        return self.sender.metrics.sum("routed_frames_total", route=name)

    def chosen(self):
        return [name for name in TwoPieces.names if self.sender.metrics.sum("routes_total", route=name)]


def move_many(pair, count, same=False):
    for number in range(count):
        rng = np.random.default_rng(number)
        tensors = [Tensor(rng, 0, 200)] if same else some_tensors(rng)
        assert pair.move(f"request {number}", tensors) == [None, None]
        assert all(tensor.arrived() and tensor.only_there() for tensor in tensors)


@pytest.mark.parametrize("slow, best", [({"copy": 0.3, "host": 0.3}, "direct"), ({"copy": 0.3, "direct": 0.3}, "host")])
def test_the_fastest_route_is_taken(monkeypatch, slow, best):
    with RoutedPair(slow=slow) as pair:
        if "direct" in slow:
            encode = pair.sender.coding.encode_to
            lent = pair.receiver.engine._memory[0]

            def encode_slowly(place, *arguments, **options):
                if 0 <= address_of(place) - address_of(lent) < lent.nbytes:
                    time.sleep(slow["direct"])
                return encode(place, *arguments, **options)

            monkeypatch.setattr(pair.sender.coding, "encode_to", encode_slowly)
        move_many(pair, 3 * TRIALS, same=True)
        assert pair.chosen() == [best]
        before = {name: pair.routed(name) for name in pair.sender.engine.names}
        assert all(count >= TRIALS for count in before.values())
        move_many(pair, 3)
        assert {name for name, count in before.items() if pair.routed(name) > count} == {best}
        assert f'splitzip_transfer_routed_frames_total{{role="sender",route="{best}"}}' in pair.sender.metrics_text()
        used = pair.receiver.staging.states()["used"]
        assert used == (QUICK["slots_per_session"] + 2) * QUICK["slot_bytes"]


@pytest.mark.parametrize("names", [("direct",), ("copy",), ("host",), ("direct", "host")], ids="-".join)
def test_only_what_both_sides_offer(names):
    with RoutedPair(names=names, shadow=3, resend_interval=5.0) as pair:
        move_many(pair, 8)
        assert {name for name in TwoPieces.names if pair.routed(name)} == set(names)
        assert not +pair.sender.counters and not +pair.receiver.counters
        assert pair.sender.staging.states()["used"] == 0


def test_a_frame_that_was_encoded_into_damaged_memory(monkeypatch):
    """It fails its request alone, on both sides, and what comes next goes another way."""
    with RoutedPair(names=("direct", "host")) as pair:
        [tensor] = tensors = some_tensors(np.random.default_rng(3), most_parts=1)
        encode = pair.sender.coding.encode_to

        def damaged(place, *arguments, **options):
            size = encode(place, *arguments, **options)
            place[size // 2] ^= 4
            return size

        monkeypatch.setattr(pair.sender.coding, "encode_to", damaged)
        assert [error.code for error in pair.move("a", tensors)] == [Code.CORRUPT] * 2
        monkeypatch.undo()
        assert pair.receiver.counters["refused_frames"] == 1 and not tensor.arrived()
        before = pair.routed("direct")
        move_many(pair, 4)
        assert pair.routed("direct") == before and pair.routed("host") >= 4


def test_faults_on_all_routes():
    with RoutedPair(
        Faults({"early": 0.05, "fail": 0.05, "corrupt": 0.05, "lose": 0.05, "twice": 0.05}, seed=8)
    ) as pair:
        done = 0
        for number in range(20):
            tensors = some_tensors(np.random.default_rng(number))
            errors = pair.move(f"request {number}", tensors)
            assert all(tensor.only_there() for tensor in tensors)
            if errors[1] is None:
                assert all(tensor.arrived() for tensor in tensors)
                done += 1
        assert done >= 15
        pair.works()


def test_no_route():
    with RoutedPair() as pair:

        def none(*_):
            raise TransferError(Code.TRANSPORT, "out of reach")

        pair.sender.engine.routes = none
        with pytest.raises(TransferError, match="out of reach"):
            pair.sender.start(pair.receiver.address, "a")


def routes(*names):
    return [Route(name, frozenset({0})) for name in names]


def test_a_choice_waits_for_all_and_forgets_the_first_frame():
    choice = RouteChoice(routes("a", "b"))
    cost = {"a": [9.0, 1.0, 1.0, 1.0], "b": [0.1, 2.0, 2.0, 2.0]}
    order = []
    for number in range(2 * TRIALS):
        route = choice.next()
        choice.begin(route)
        order.append(route.name)
        assert choice.chosen is None
        decided = choice.add(route, 100, 0.5, cost[route.name][number // 2])
        assert decided == (number == 2 * TRIALS - 1)
    assert order == ["a", "b"] * TRIALS
    assert choice.chosen.name == choice.next().name == "a"
    assert not choice.add(choice.next(), 100, 1.0, 1.0)


def test_a_choice_counts_the_slower_stage_by_the_byte():
    choice = RouteChoice(routes("a", "b"))
    for _ in range(TRIALS):
        for route, raw_bytes, encode, write in zip(choice._all, (100, 1000), (1.0, 8.0), (0.2, 1.0), strict=True):
            choice.add(route, raw_bytes, encode, write)
    assert choice.chosen.name == "b"


def test_a_choice_counts_what_the_receiver_copies():
    one, two = Route("a", frozenset({0}), hops=2), Route("b", frozenset({0}))
    choice = RouteChoice([one, two])
    for _ in range(TRIALS):
        choice.add(one, 100, 0.1, 0.6)
        choice.add(two, 100, 0.1, 1.0)
    assert choice.chosen is two


def test_a_route_to_avoid():
    one, two, three = all_three = routes("a", "b", "c")
    choice = RouteChoice(all_three)
    choice.avoid(two)
    for _ in range(TRIALS):
        choice.add(one, 1, 1.0, 0.0)
        choice.add(two, 1, 0.1, 0.0)
        choice.add(three, 1, 2.0, 0.0)
    assert choice.chosen is one
    choice.avoid(one)
    assert choice.chosen is three
    choice.avoid(three)
    assert choice.next() is three
