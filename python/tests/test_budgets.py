# SPDX-License-Identifier: Apache-2.0
"""Budgets: a fixed place for each frame, and a mark where one does not fit."""

import numpy as np
import pytest

from conftest import same
from splitzip_kv import (
    Frame,
    InvalidArgument,
    Layout,
    NonceMismatch,
    OutputTooSmall,
    OverBudget,
    encode,
    frame_sizes,
    propose_budget,
)

NONCE = 77


@pytest.fixture(scope="module")
def frame(layout, tensor):
    return bytes(encode([tensor], [layout], nonce=NONCE))


@pytest.mark.parametrize("more", [0, 1, 1000])
def test_a_frame_that_fits(source, layout, tensor, frame, more):
    place = bytearray(b"\xa5") * (len(frame) + more)
    encoded = encode([tensor], [layout], out=place, nonce=NONCE, budget=True)
    assert bytes(encoded) == frame and bytes(place) == frame + bytes(more)
    target = np.zeros_like(source)
    opened = Frame(place, expected_nonce=NONCE, budget=True)
    assert opened.size == len(frame)
    opened.decode([tensor], [Layout(target, "token,head,dim")])
    assert same(target, source)


def test_a_frame_that_does_not(layout, tensor, frame):
    sizes = frame_sizes([tensor])
    for budget in (len(frame) - 1, sizes.known_bytes - 1, 48):
        place = bytearray(b"\xa5") * budget
        with pytest.raises(OverBudget):
            encode([tensor], [layout], out=place, nonce=NONCE, budget=True)
        assert not any(place[48:])
        with pytest.raises(OverBudget):
            Frame(place, expected_nonce=NONCE, budget=True)
        with pytest.raises(NonceMismatch):  # of another transfer
            Frame(place, expected_nonce=NONCE + 1, budget=True)
    place = bytearray(b"\xa5") * 47
    with pytest.raises(OutputTooSmall):
        encode([tensor], [layout], out=place, nonce=NONCE, budget=True)
    assert bytes(place) == b"\xa5" * 47


def test_what_has_to_be_said(layout, tensor, frame):
    with pytest.raises(InvalidArgument, match="out"):
        encode([tensor], [layout], budget=True)
    with pytest.raises(InvalidArgument, match="nonce"):
        Frame(frame, budget=True)


def test_proposed_budgets():
    lengths = np.random.default_rng(3).exponential(100, 200_000).astype(int) + 5000
    for rate in (0.1, 0.01, 0.001):
        budget = propose_budget(lengths.tolist(), rate)
        assert 0.9 * rate <= np.mean(lengths > budget) <= 1.1 * rate
    assert propose_budget([700], 1e-6) == 700
    for wrong in (([], 0.1), ([1], 0.0), ([1], 1.0)):
        with pytest.raises(InvalidArgument):
            propose_budget(*wrong)
