# SPDX-License-Identifier: Apache-2.0
"""Which engine the two processes have: options of the command line, and the engine made of them."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from typing import Any

from ..cuda_peer import ROUTES, CudaPeerEngine
from ..engine import Engine, Segment
from ..mooncake import MooncakeEngine, has_rdma_device
from ..nixl import NixlEngine
from .cache import gpu_for


class PacedEngine(MooncakeEngine):
    """Mooncake over a link that is not faster than `bytes_per_second`."""

    def __init__(self, host: str, protocol: str, bytes_per_second: float | None) -> None:
        super().__init__(host, protocol=protocol)
        self._bytes_per_second = bytes_per_second

    def write(self, data_address: str, segments: Sequence[Segment], timeout: float, stop: threading.Event) -> None:
        begin = time.monotonic()
        super().write(data_address, segments, timeout, stop)
        if self._bytes_per_second is not None:
            due = begin + sum(segment.length for segment in segments) / self._bytes_per_second
            stop.wait(max(due - time.monotonic(), 0.0))


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        default="mooncake",
        choices=("mooncake", "cuda_peer", "nixl"),
        help="mooncake (default), cuda_peer: memory of GPUs that the two processes share, or nixl: NIXL with UCX, from GPU "
        "to GPU where the pools are on GPUs",
    )
    parser.add_argument(
        "--link-gbit", type=float, help="mooncake: pace the link to so many Gbit/s (default: as fast as it is)"
    )
    parser.add_argument(
        "--protocol", default="tcp", choices=("tcp", "rdma"), help="Mooncake's protocol: tcp (default) or rdma"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address of this machine for the engine (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--gpus",
        type=_two_numbers,
        metavar="A,B",
        default=[0, 0],
        help="numbers of the GPUs of the prefill and the decode process (default: 0,0)",
    )
    parser.add_argument(
        "--routes",
        type=lambda text: text.split(","),
        default=list(ROUTES),
        help=f"cuda_peer: ways that frames may take, some of {','.join(ROUTES)} (default: all, the fastest is taken)",
    )
    parser.add_argument("--slot-mib", type=int, help="memory for one frame (default: 32; mooncake: 2)")


def _two_numbers(text: str) -> list[int]:
    first, second = map(int, text.split(","))
    return [first, second]


def check_engine_options(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    if given.protocol == "rdma" and not has_rdma_device():
        parser.error("this machine has no RDMA device, so Mooncake would take TCP: leave --protocol out")
    if set(given.routes) - set(ROUTES):
        parser.error(f"--routes has some of {','.join(ROUTES)}")
    if given.slot_mib is None:
        given.slot_mib = 2 if given.engine == "mooncake" else 32
    if given.slot_mib < 1 or (given.link_gbit is not None and given.link_gbit <= 0):
        parser.error("--slot-mib and --link-gbit have to be positive")
    if given.engine != "mooncake" and given.link_gbit is not None:
        parser.error("--link-gbit is for --engine mooncake")


def engine_settings(given: argparse.Namespace) -> dict[str, Any]:
    return {
        "engine": given.engine,
        "host": given.host,
        "protocol": given.protocol,
        "link_bytes": given.link_gbit * 1e9 / 8 if given.link_gbit is not None else None,
        "routes": given.routes,
        "slot_bytes": given.slot_mib << 20,
    }


def name_of_link(given: argparse.Namespace) -> str:
    if given.engine != "mooncake":
        one, other = given.gpus
        way = f"GPU {one}" + (f" to GPU {other}" if one != other else " to itself")
        return f"CUDA peer memory, {way}" if given.engine == "cuda_peer" else f"NIXL, {given.host}, {way}"
    paced = f", paced to {given.link_gbit:g} Gbit/s" if given.link_gbit is not None else ""
    return f"Mooncake, {given.protocol}, {given.host}{paced}"


def make_engine(settings: dict[str, Any], *, sends: bool) -> Engine:
    if settings["engine"] == "cuda_peer":
        return CudaPeerEngine(settings["gpu"], settings["host"], routes=settings["routes"])
    if settings["engine"] == "nixl":
        return NixlEngine(settings["host"], device=gpu_for(settings)[0])
    return PacedEngine(settings["host"], settings["protocol"], settings["link_bytes"] if sends else None)
