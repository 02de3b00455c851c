# SPDX-License-Identifier: Apache-2.0
"""Requests that the planner decides about: mode by link, and raw where coding would not gain."""

import numpy as np
import pytest

from splitzip_kv import Mode
from splitzip_kv.plan import CodecSpeed
from splitzip_kv.transfer import Options
from splitzip_kv.transfer.inprocess import Faults
from transfer_cases import Pair, Tensor

SPEEDS = (CodecSpeed(Mode.TIERED, 1.48, 5e8, 6e8, 1e-5, 1e-5), CodecSpeed(Mode.FIXED4, 1.33, 2e9, 2e9, 1e-5, 1e-5))


def move(pair, name, raw_bytes=None):
    tensors = [Tensor(np.random.default_rng(1), key, 256) for key in range(2)]
    incoming = pair.expect(name, tensors)
    parts = pair.parts(tensors)
    request = pair.sender.start(
        pair.receiver.address, name, raw_bytes=raw_bytes or sum(part.raw_bytes for part in parts)
    )
    for part in parts:
        request.send([part])
    report = request.finish()
    incoming.wait()
    assert all(tensor.arrived() and tensor.only_there() for tensor in tensors)
    return request.plan, sum(part.raw_bytes for part in parts) / report.wire_bytes


@pytest.mark.parametrize("rate, mode, ratio", [(1e7, Mode.TIERED, 1.4), (2.5e8, Mode.FIXED4, 1.28), (1e11, None, 0.95)])
def test_the_link_chooses_the_mode(rate, mode, ratio):
    with Pair(speeds=SPEEDS, link_bytes_per_second=rate) as pair:
        plan, reached = move(pair, "a", raw_bytes=1 << 30)
        assert (plan.speed.mode if plan.speed else None) is mode
        assert ratio < reached < ratio + 0.15
        assert pair.sender.metrics.sum("plans_total", mode="raw" if mode is None else mode.name.lower()) == 1


def test_a_short_request_goes_raw_where_a_long_one_is_coded():
    slow = (CodecSpeed(Mode.TIERED, 1.48, 5e9, 6e9, 4e-4, 4e-4),)
    with Pair(speeds=slow, link_bytes_per_second=1e8, slot_bytes=1 << 18) as pair:
        assert move(pair, "a")[0].speed is None
        assert move(pair, "b", raw_bytes=1 << 30)[0].speed is not None


def test_the_link_is_measured():
    with Pair(Faults({"slow": 1.0}, delay=0.02), speeds=SPEEDS) as pair:
        assert move(pair, "a")[0] is None  # nothing is known yet, so the parts' own mode holds
        plan, reached = move(pair, "b", raw_bytes=1 << 30)
        assert plan.speed.mode is Mode.TIERED and reached > 1.4


def test_without_speeds_or_codebooks_nothing_is_planned():
    with Pair(link_bytes_per_second=1e7) as pair:
        assert move(pair, "a")[0] is None
    with Pair(speeds=SPEEDS, link_bytes_per_second=1e7, raw=True) as pair:
        assert move(pair, "a")[0] is None


def test_a_link_without_speed():
    with pytest.raises(ValueError, match="link"):
        Options(link_bytes_per_second=0.0)
