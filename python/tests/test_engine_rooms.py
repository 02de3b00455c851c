# SPDX-License-Identifier: Apache-2.0
"""Pieces of a room, offered by a prefill side, taken by a decode side into its own pages, or not taken."""

import contextlib
import threading

import numpy as np
import pytest

from splitzip_kv import Calibration
from splitzip_kv.integrations.blocks import Blocks, LayerMemory
from splitzip_kv.integrations.rooms import DecodeRooms, NotTaken, Piece, PrefillRooms
from splitzip_kv.integrations.sglang_settings import Settings
from splitzip_kv.transfer import Code, Options, TransferError
from splitzip_kv.transfer.inprocess import Faults, Network
from transfer_cases import QUICK, values

PAGE, PAGES, LAYERS = 4, 64, 2


def pool(seed):
    rng = np.random.default_rng(seed)
    return [
        LayerMemory(
            [(kind, values(rng, PAGES * PAGE, 192).reshape(PAGES, PAGE, 3, 64), "page,token,head,dim") for kind in "kv"]
        )
        for _ in range(LAYERS)
    ]


def rows(layers, pages, tokens):
    return [
        array.view(np.uint16)[list(pages)].reshape(-1, 192)[:tokens].copy()
        for layer in layers
        for _, array, _ in layer.tensors
    ]


class Sides:
    def __init__(self, faults=None, **options):
        self.source, self.target = pool(1), pool(2)
        calibration = Calibration()
        for name, layout in Blocks(self.source, PAGE).layouts(range(PAGES)):
            calibration.add(name, layout)
        books = calibration.finish()
        self.network = Network(faults)
        chosen = Options(**(QUICK | options))
        self.decode = DecodeRooms(self.network.engine(), Blocks(self.target, PAGE), books, chosen)
        self.prefill = PrefillRooms(self.network.engine(), Blocks(self.source, PAGE), books, chosen)

    def send(self, piece, pages):
        self.prefill.send(self.decode.address, piece, pages)


@contextlib.contextmanager
def sides(*arguments, **options):
    made = Sides(*arguments, **options)
    try:
        yield made
    finally:
        made.prefill.shut_down()
        made.decode.shut_down()
        made.network.close()


def test_pieces_arrive_in_the_pages_of_the_room_and_nowhere_else():
    with sides() as both:
        there = [9, 3, 60, 5, 11, 1, 2]
        before = [array.copy() for layer in both.target for _, array, _ in layer.tensors]
        both.decode.open(7, there)
        both.decode.open(7, [0] * 7)  # opened again: nothing changes
        both.send(Piece(7, 0, 4, 16), [30, 31, 8, 2])
        both.send(Piece(7, 4, 3, 9), [40, 13, 12])
        both.decode.close(7)
        expected = [
            np.concatenate(two)
            for two in zip(rows(both.source, [30, 31, 8, 2], 16), rows(both.source, [40, 13, 12], 9))
        ]
        assert all(np.array_equal(a, b) for a, b in zip(rows(both.target, there, 25), expected, strict=True))
        # Three rows of the last page belong to nobody, and the other pages to others.
        for old, new in zip(before, [array for layer in both.target for _, array, _ in layer.tensors], strict=True):
            rest = sorted(set(range(PAGES)) - set(there))
            assert np.array_equal(old.view(np.uint16)[rest], new.view(np.uint16)[rest])
            assert np.array_equal(old.view(np.uint16)[2, 1:], new.view(np.uint16)[2, 1:])
        assert both.prefill.counters["sent_pieces"] == both.decode.counters["received_pieces"] == 2
        assert both.prefill.counters["sent_bytes"] == both.decode.counters["received_bytes"]
        raw = both.prefill.counters["sent_raw_bytes"]
        assert raw == both.decode.counters["received_raw_bytes"] == 25 * 192 * 2 * 2 * LAYERS
        assert raw / both.prefill.counters["sent_bytes"] > 1.2


@pytest.mark.parametrize(
    "piece",
    [Piece(8, 0, 1, 4), Piece(7, 1, 2, 8), Piece(7, -1, 1, 4), Piece(7, 0, 1, 5), Piece(7, 0, 1, 0), Piece(7, 1, 0, 0)],
)
def test_what_is_no_piece_of_an_open_room_is_not_taken(piece):
    with sides() as both:
        both.decode.open(7, [4, 5])
        before = rows(both.target, range(PAGES), PAGES * PAGE)
        with pytest.raises(NotTaken):
            both.send(piece, list(range(max(piece.count, 1))))
        assert both.prefill.counters["untaken_pieces"] == 1
        after = rows(both.target, range(PAGES), PAGES * PAGE)
        assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
        both.send(Piece(7, 0, 2, 8), [1, 2])  # the next one is


def test_a_name_that_is_no_piece_is_refused():
    with sides() as both:
        outgoing = both.prefill._sender.start(both.decode.address, "some request")
        with pytest.raises(TransferError) as caught:
            outgoing.send([])
        assert caught.value.code is Code.REFUSED


def test_nobody_there():
    with sides(connect_timeout=0.2) as both, pytest.raises(NotTaken):
        both.prefill.send("nowhere", Piece(7, 0, 1, 4), [0])


def test_a_closed_room_is_not_written_to():
    with sides(Faults({"slow": 1.0}, delay=0.3), timeout=3.0) as both:
        both.decode.open(7, [4])
        failure = []

        def send():
            try:
                both.send(Piece(7, 0, 1, 4), [1])
            except TransferError as error:
                failure.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        while not both.decode._rooms[7].incoming:
            pass
        both.decode.close(7)
        state = rows(both.target, [4], 4)
        thread.join()
        assert [error.code for error in failure] == [Code.CANCELLED]
        assert all(np.array_equal(a, b) for a, b in zip(state, rows(both.target, [4], 4), strict=True))
        assert both.decode.counters["failed_pieces"] == both.prefill.counters["failed_pieces"] == 1


def test_a_link_that_damages_everything_fails_the_piece_only():
    with sides(Faults({"corrupt": 1.0}), attempts=2) as both:
        both.decode.open(7, [4])
        with pytest.raises(TransferError) as caught:
            both.send(Piece(7, 0, 1, 4), [1])
        assert caught.value.code is Code.CORRUPT
        both.network.faults = Faults()
        both.decode.open(8, [5])
        both.send(Piece(8, 0, 1, 4), [1])
        assert all(
            np.array_equal(a, b) for a, b in zip(rows(both.target, [5], 4), rows(both.source, [1], 4), strict=True)
        )


def test_settings_of_the_plugin():
    settings = Settings.parse('{"codebooks": "a.szcb", "shadow": 5, "host": "127.0.0.1"}')
    assert (settings.codebooks, settings.host, settings.protocol, settings.options.shadow) == (
        "a.szcb",
        "127.0.0.1",
        None,
        5,
    )
    for wrong in (
        "",
        "[]",
        "{}",
        '{"codebooks": 3}',
        '{"codebooks": "a", "shadows": 1}',
        '{"codebooks": "a", "attempts": 0}',
    ):
        with pytest.raises(ValueError):
            Settings.parse(wrong)
