# SPDX-License-Identifier: Apache-2.0
"""The prefill and the decode process: commands as lines of JSON on standard input, answers on standard output."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ... import CodebookSet, SplitzipError
from .. import Options, Receiver, Segment, Sender, Span, TransferError
from ..mooncake import MooncakeEngine
from .cache import CachedTensor, Pool, calibrate, gpu_for, load_cache


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


def load(settings: dict[str, Any]) -> tuple[list[CachedTensor], CodebookSet]:
    """The part of the cache that is moved, and codebooks that have not seen it."""
    cache = load_cache(Path(settings["kv"]))
    if settings["codebook"] is not None:
        try:
            return cache, CodebookSet.load(settings["codebook"])
        except SplitzipError as error:
            raise ValueError(f"{settings['codebook']}: {error}") from error
    cut = len(cache[0].values) // 4
    if cut == 0:
        raise ValueError(f"{settings['kv']}: too few tokens to calibrate on a part of them; give --codebook")
    codebooks = calibrate([CachedTensor(tensor.name, tensor.type, tensor.values[:cut]) for tensor in cache])
    return [CachedTensor(tensor.name, tensor.type, tensor.values[cut:]) for tensor in cache], codebooks


def options(settings: dict[str, Any], device: int | None) -> Options:
    return Options(timeout=settings["timeout"], threads=settings["threads"], pinned=device is not None)


def spans(list_of: list[Span]) -> list[tuple[float, float]]:
    return [(span.begin, span.end) for span in list_of]


class Prefill:
    def __init__(self, settings: dict[str, Any]) -> None:
        cache, self.codebooks = load(settings)
        device, coder = gpu_for(settings["device"])
        self.pool = Pool(cache, settings["page_tokens"], settings["seed"], device)
        self.pool.fill()
        self.engine = PacedEngine(settings["host"], settings["protocol"], settings["link_bytes"])
        self.engine.register(self.pool.memory)
        self.sender = Sender(self.engine, self.codebooks, options(settings, device))
        self.about = {
            "pid": os.getpid(),
            "coder": coder,
            "tensors": len(cache),
            "tokens": self.pool.tokens,
            "heads": cache[0].values.shape[1],
            "dim": cache[0].values.shape[2],
            "type": cache[0].type.name,
            "pages": len(self.pool.pages),
            "first_pages": [int(page) for page in self.pool.pages[:4]],
            "raw_bytes": sum(tensor.values.nbytes for tensor in cache),
            "without_codebook": sum(self.codebooks.find(tensor.name) is None for tensor in cache),
        }

    def send(self, name: str, address: str, coded: bool) -> dict[str, Any]:
        """Layer by layer, as a model computes them."""
        request = self.sender.start(address, name)
        try:
            numbered = enumerate(self.pool.cache)
            for _, layer in itertools.groupby(numbered, key=lambda item: item[1].layer):
                request.send(
                    self.pool.part(number, self.codebooks.find(tensor.name) if coded else None)
                    for number, tensor in layer
                )
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

    def write_pages(self, data_address: str, places: list[list[int]]) -> dict[str, Any]:
        """What engines do without a codec: every page of every tensor is a write of its own, straight to its place."""
        segments = []
        for array, own, theirs in zip(self.pool.arrays, self.pool.page_places(), places, strict=True):
            segments += [Segment(local, remote, array[0].nbytes) for local, remote in zip(own, theirs, strict=True)]
        copied = self.pool.copy_pages(to_host=True)
        begin = time.monotonic()
        self.engine.write(data_address, segments, 60.0, threading.Event())
        end = time.monotonic()
        wire_bytes = sum(segment.length for segment in segments)
        return {"frames": len(segments), "wire_bytes": wire_bytes, "encode": copied, "write": [(begin, end)]}

    def close(self) -> dict[str, Any]:
        self.sender.close()
        return {}


class Decode:
    def __init__(self, settings: dict[str, Any]) -> None:
        cache, codebooks = load(settings)
        device, coder = gpu_for(settings["device"])
        self.pool = Pool(cache, settings["page_tokens"], settings["seed"], device)
        engine = PacedEngine(settings["host"], settings["protocol"], None)
        engine.register(self.pool.memory)
        self.receiver = Receiver(engine, codebooks, options(settings, device))
        self.about = {
            "pid": os.getpid(),
            "coder": coder,
            "pages": len(self.pool.pages),
            "address": self.receiver.address,
            "data_address": engine.data_address,
            "first_pages": [int(page) for page in self.pool.pages[:4]],
        }

    def expect(self, name: str) -> dict[str, Any]:
        self.pool.clear()
        self.request = self.receiver.expect(name, [self.pool.part(number) for number in range(len(self.pool.cache))])
        return {}

    def arrived(self) -> dict[str, Any]:
        report = self.request.wait()
        return {"decode": spans(report.decode), **self.check()}

    def pages(self) -> dict[str, Any]:
        self.pool.clear()
        return {"places": self.pool.page_places()}

    def pages_arrived(self) -> dict[str, Any]:
        return {"decode": self.pool.copy_pages(to_host=False), **self.check()}

    def check(self) -> dict[str, Any]:
        self.pool.look()
        return {"different_values": self.pool.different_values(), "touched_bytes": self.pool.touched_bytes()}

    def close(self) -> dict[str, Any]:
        self.receiver.close()
        return {}


def main() -> int:
    # Whatever libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker: Prefill | Decode | None = None
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if worker is None:
                worker = Prefill(command) if command.pop("role") == "prefill" else Decode(command)
                answer = worker.about
            else:
                answer = getattr(worker, command.pop("do"))(**command)
        except (TransferError, SplitzipError, ValueError, OSError, ImportError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers)
        if worker is None:
            return 1
    if worker is not None:
        worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
