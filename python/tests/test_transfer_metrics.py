# SPDX-License-Identifier: Apache-2.0
"""What operators read: sums of bytes, frames and time, errors, fallbacks, memory, as Prometheus text."""

import contextlib
import re

import numpy as np
import pytest

from splitzip_kv.transfer import Code, TransferError, metrics
from splitzip_kv.transfer.inprocess import Faults
from transfer_cases import Pair, Tensor, some_tensors

SAMPLE = re.compile(r'splitzip_transfer_([a-z_]+)\{role="(sender|receiver)"(?:,([a-z]+)="([a-z_ ]+)")?\} ([0-9.e+-]+)')


def read(text):
    """{(name, label value): number}; fails where it is not Prometheus' text format."""
    found, typed = {}, set()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert kind == ("counter" if name.endswith("_total") else "gauge")
            typed.add(name)
        elif not line.startswith("# HELP "):
            name, _, _, label, number = SAMPLE.fullmatch(line).groups()
            assert f"splitzip_transfer_{name}" in typed
            found[name, label] = float(number)
    return found


def test_a_transfer_is_counted_on_both_sides():
    with Pair() as pair:
        tensors = some_tensors(np.random.default_rng(1))
        raw = sum(part.raw_bytes for part in pair.parts(tensors))
        assert pair.move("a", tensors) == [None, None]
        sent, received = read(pair.sender.metrics_text()), read(pair.receiver.metrics_text())
        for side in (sent, received):
            assert side["raw_bytes_total", "coded"] == raw
            assert side["ratio", None] == pytest.approx(raw / side["wire_bytes_total", "coded"])
            assert side["requests_total", "done"] == 1
            assert side["sessions", "coded"] == 1 and side["sessions", "raw"] == 0
            assert side["staging_bytes", "used"] + side["staging_bytes", "free"] == 1 << 20
        assert sent["wire_bytes_total", "coded"] == received["wire_bytes_total", "coded"]
        assert sent["staging_bytes", "used"] == 0
        assert sent["seconds_total", "encode"] > 0 and received["seconds_total", "decode"] > 0
        assert sent["seconds_total", "write"] > 0


def test_errors_and_events():
    with Pair(Faults({"corrupt": 1.0}), attempts=3) as pair:
        pair.move("a", [Tensor(np.random.default_rng(2), 0, 100)])
        sent = read(pair.sender.metrics_text())
        assert sent["requests_total", "corrupt"] == read(pair.receiver.metrics_text())["requests_total", "corrupt"] == 1
        assert sent["events_total", "rewritten_frames"] == 2


def test_breaker_and_kill_switch_are_seen():
    with Pair(Faults({"corrupt": 1.0}), attempts=4, breaker=2) as pair:
        with contextlib.suppress(TransferError):
            pair.move("a", [Tensor(np.random.default_rng(3), 0, 100)])
        sent = read(pair.sender.metrics_text())
        assert sent["fallbacks_total", "breaker"] == 1
        assert sent["sessions", "raw"] == 1 and sent["sessions", "coded"] == 0
    with Pair(raw=True) as pair:
        assert pair.move("a", [Tensor(np.random.default_rng(3), 0, 100)]) == [None, None]
        for side in (pair.sender, pair.receiver):
            found = read(side.metrics_text())
            assert found["frames_total", "raw"] > 0 and ("frames_total", "coded") not in found
            assert found["sessions", "raw"] == 1
        assert read(pair.sender.metrics_text())["fallbacks_total", "kill switch"] == 1


def test_a_failed_request_says_why():
    with Pair(timeout=0.3) as pair:
        incoming = pair.expect("a", [Tensor(np.random.default_rng(4), 0, 10)])
        with pytest.raises(TransferError) as caught:
            incoming.wait()
        assert caught.value.code is Code.TIMEOUT
        assert read(pair.receiver.metrics_text())["requests_total", "timeout"] == 1


def test_ranges_are_optional(monkeypatch):
    seen = []

    class Fake:
        @staticmethod
        @contextlib.contextmanager
        def annotate(name, domain):
            seen.append((name, domain))
            yield

    monkeypatch.setattr(metrics, "nvtx", Fake)
    with Pair() as pair:
        pair.works()
    assert {name for name, _ in seen} == {"encode", "write", "decode"}
    monkeypatch.setattr(metrics, "nvtx", None)
    with metrics.trace("encode"):
        pass
