# SPDX-License-Identifier: Apache-2.0
"""The planner from Python: the same arithmetic as in C, and the figures of the command."""

import json
import math

import pytest

from splitzip_kv import InvalidArgument, Mode
from splitzip_kv.plan import Bound, CodecSpeed, load_speeds, plan_transfer

TIERED = CodecSpeed(Mode.TIERED, 1.48, 5e9, 4e9, 1e-5, 2e-5)
FIXED4 = CodecSpeed(Mode.FIXED4, 1.33, 12e9, 12e9, 1e-5, 1e-5)


def test_the_link_chooses():
    plans = [
        plan_transfer(1 << 30, [TIERED, FIXED4], link_bytes_per_second=rate, link_seconds=1e-5)
        for rate in (1e9, 8e9, 5e10)
    ]
    assert [plan.speed for plan in plans] == [TIERED, FIXED4, None]
    assert plans[0].bound is Bound.LINK
    assert all(plan.seconds <= plan.raw_seconds for plan in plans)
    assert plans[2].exposed_seconds == 0 and plans[2].slices == 1 and plans[2].slice_bytes == 1 << 30


def test_a_plan_is_the_model():
    plan = plan_transfer(100 << 20, [TIERED], link_bytes_per_second=1e9, link_seconds=3e-5, raw_writes=40)
    assert plan.raw_seconds == pytest.approx(40 * 3e-5 + (100 << 20) / 1e9)
    assert plan.slices == -(-(100 << 20) // plan.slice_bytes)
    size = (100 << 20) / plan.slices
    encode, write, decode = 1e-5 + size / 5e9, 3e-5 + size / 1.48e9, 2e-5 + size / 4e9
    longest = max(encode, write, decode)
    assert plan.seconds == pytest.approx(encode + write + decode + (plan.slices - 1) * longest)
    assert plan.exposed_seconds == pytest.approx(plan.seconds - plan.slices * write)


def test_slices_stay_within_their_limits():
    plan = plan_transfer(
        1 << 30, [TIERED], link_bytes_per_second=1e9, smallest_slice_bytes=3 << 20, largest_slice_bytes=9 << 20
    )
    assert plan.slice_bytes in (4 << 20, 8 << 20)


@pytest.mark.parametrize("link", [0, -1, math.nan, math.inf])
def test_a_link_that_cannot_be(link):
    with pytest.raises(InvalidArgument, match="link"):
        plan_transfer(1, [TIERED], link_bytes_per_second=link)


def test_a_speed_that_cannot_be():
    with pytest.raises(InvalidArgument) as caught:
        plan_transfer(1, [TIERED, CodecSpeed(Mode.TIERED, 0, 1, 1)], link_bytes_per_second=1)
    assert caught.value.tensor == 1


def test_speeds_of_the_command(tmp_path):
    rate = {"median": 2.5, "lowest": 2.0, "highest": 3.0}
    result = {"mode": "fixed4", "ratio": 1.3, "encode_gb_per_s": rate, "decode_gb_per_s": rate}
    result |= {"encode_call_seconds": 1e-6, "decode_call_seconds": 2e-6}
    path = tmp_path / "speeds.json"
    path.write_text(json.dumps({"threads": 2, "results": [result]}))
    assert load_speeds(path) == [CodecSpeed(Mode.FIXED4, 1.3, 2.5e9, 2.5e9, 1e-6, 2e-6, 2)]
    for text in (
        "",
        b"SZCB\x80",
        "[]",
        "{}",
        '{"threads": 1, "results": [{}]}',
        '{"threads": 1, "results": [{"mode": "best"}]}',
    ):
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        with pytest.raises(ValueError, match=r"speeds.json is not what splitzip bench --json writes"):
            load_speeds(path)
