# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode with other tensor-parallel sizes: every rank gets its heads, once, and coded."""

import numpy as np
import pytest

from splitzip_kv.transfer import Options, Part, Receiver, Sender, head_ranges, heads_of, part_of_heads
from splitzip_kv.transfer.inprocess import Network
from transfer_cases import CHANNELS, QUICK, make_codebooks, values

HEADS = 12  # of 16 channels
SIZES = [(1, 1), (1, 4), (4, 1), (2, 3), (3, 2), (4, 6), (12, 2), (2, 12), (24, 4), (3, 36), (48, 24)]


@pytest.mark.parametrize("senders, receivers", SIZES)
def test_every_head_once(senders, receivers):
    ranges = head_ranges(HEADS, senders, receivers)
    for rank in range(receivers):
        got = [
            head for entry in ranges if entry.receiver == rank for head in range(entry.first, entry.first + entry.count)
        ]
        assert sorted(got) == list(heads_of(rank, receivers, HEADS))
    for entry in ranges:
        assert set(range(entry.first, entry.first + entry.count)) <= set(heads_of(entry.sender, senders, HEADS))
    assert len({(entry.sender, entry.receiver) for entry in ranges}) == len(ranges)


def test_ranks_with_the_same_heads_share_the_work():
    ranges = head_ranges(2, 8, 4)
    assert len({entry.sender for entry in ranges}) == 4


@pytest.mark.parametrize("senders, receivers", [(5, 1), (1, 8), (0, 1), (1, 18)])
def test_sizes_that_do_not_divide(senders, receivers):
    with pytest.raises(ValueError, match="KV heads"):
        head_ranges(HEADS, senders, receivers)


@pytest.mark.parametrize("senders, receivers", [(1, 4), (4, 1), (2, 3), (4, 6), (24, 2)])
@pytest.mark.parametrize("axes", ["page,token,head,dim", "page,head,token,dim"])
def test_moving(senders, receivers, axes):
    rng = np.random.default_rng(senders * 100 + receivers)
    tokens, page = 200, 16
    pages = -(-tokens // page)
    model = values(rng, pages * page, CHANNELS).reshape(pages, page, HEADS, CHANNELS // HEADS)
    codebooks = make_codebooks()
    network = Network()

    def part_of(rank, size, pool, order, codebook=None):
        held = heads_of(rank, size, HEADS)
        shown = pool.swapaxes(1, 2) if axes == "page,head,token,dim" else pool
        first = held.start * (CHANNELS // HEADS)
        return held, Part(
            shown, axes, key=7, pages=order, tokens=tokens, codebook=codebook, first_channel=first, tokens_per_unit=64
        )

    sending, expected, targets = [], [], []
    options = Options(**(QUICK | {"slots_per_session": 2}))  # up to eight senders for a receiver
    receiver_ends = [Receiver(network.engine(), codebooks, options) for _ in range(receivers)]
    sender_ends = [Sender(network.engine(), codebooks, options) for _ in range(senders)]
    ranges = head_ranges(HEADS, senders, receivers)
    try:
        for rank, end in enumerate(receiver_ends):
            held = heads_of(rank, receivers, HEADS)
            order = rng.permutation(pages)
            pool = np.zeros((pages, page, len(held), CHANNELS // HEADS), model.dtype)
            held, part = part_of(rank, receivers, pool, order)
            targets.append((held, order, pool))
            for entry in (entry for entry in ranges if entry.receiver == rank):
                expected.append(end.expect(f"a from {entry.sender}", [part_of_heads(part, held, entry)]))
        for rank, end in enumerate(sender_ends):
            held = heads_of(rank, senders, HEADS)
            pool = np.ascontiguousarray(model[:, :, held.start : held.stop])
            held, part = part_of(rank, senders, pool, np.arange(pages), codebooks.find("kv"))
            for entry in (entry for entry in ranges if entry.sender == rank):
                request = end.start(receiver_ends[entry.receiver].address, f"a from {rank}")
                request.send([part_of_heads(part, held, entry)])
                sending.append(request)
        reports = [request.finish() for request in sending]
        for incoming in expected:
            incoming.wait()
        rows = model.reshape(-1, HEADS, CHANNELS // HEADS)[:tokens].view(np.uint16)
        for held, order, pool in targets:
            found = pool[order].reshape(-1, len(held), CHANNELS // HEADS)[:tokens].view(np.uint16)
            assert np.array_equal(found, rows[:, held.start : held.stop])
        wire = sum(report.wire_bytes for report in reports)
        assert wire < 0.8 * tokens * CHANNELS * 2 * max(1, receivers // HEADS)
        assert sum(end.metrics.sum("frames_total", coding="coded") for end in sender_ends) == len(reports)
    finally:
        for end in (*sender_ends, *receiver_ends):
            end.close()
        network.close()


def test_heads_that_are_not_there():
    pool = np.zeros((2, 16, 4, 8), np.float16)
    part = Part(pool, "page,token,head,dim", key=1, pages=[0, 1])
    with pytest.raises(ValueError, match="heads 3 to 5"):
        part.heads(3, 2, key=2)
    with pytest.raises(ValueError, match="axes"):
        Part(pool[:, :, 0], "page,token,channel", key=1, pages=[0, 1]).heads(0, 1, key=2)
