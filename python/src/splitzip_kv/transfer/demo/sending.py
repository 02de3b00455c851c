# SPDX-License-Identifier: Apache-2.0
"""What the processes of both demonstrations do alike: how they transfer, and what they tell of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import Options, Part, Sender, Span
from ..cuda_peer import ROUTES


def options(settings: dict[str, Any], on_gpu: bool) -> Options:
    slot = settings["slot_bytes"]
    return Options(
        timeout=settings["timeout"],
        threads=settings["threads"],
        pinned=on_gpu,
        slot_bytes=slot,
        staging_bytes=max(256 << 20, 12 * slot),
        slots_per_session=max(min(16, (256 << 20) // slot), 4),
    )


def spans(list_of: list[Span]) -> list[tuple[float, float]]:
    return [(span.begin, span.end) for span in list_of]


def send_all(sender: Sender, address: str, name: str, layers: Iterable[list[Part]]) -> dict[str, Any]:
    request = sender.start(address, name)
    try:
        for parts in layers:
            request.send(parts)
        report = request.finish()
    except BaseException:
        request.cancel()
        raise
    return {
        "frames": report.frames,
        "wire_bytes": report.wire_bytes,
        "encode": spans(report.encode),
        "write": spans(report.write),
    }


def routes_of(sender: Sender) -> dict[str, Any]:
    """How many frames took each route, and which one was chosen."""
    metrics = sender.metrics
    names = ("write", *ROUTES)
    frames = {name: int(metrics.sum("routed_frames_total", route=name)) for name in names}
    return {
        "frames": {name: count for name, count in frames.items() if count},
        "chosen": [name for name in names if metrics.sum("routes_total", route=name)],
    }
