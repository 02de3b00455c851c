# SPDX-License-Identifier: Apache-2.0
"""The prefill and the decode process: commands as lines of JSON on standard input, answers on standard output."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ... import CodebookSet, SplitzipError
from .. import Receiver, Segment, Sender, TransferError
from .cache import CachedTensor, Pool, calibrate, gpu_for, load_cache
from .engines import make_engine
from .sending import options, routes_of, send_all, spans


def load(settings: dict[str, Any]) -> tuple[list[CachedTensor], CodebookSet]:
    """The part of the cache that is moved, and codebooks that have not seen it."""
    cache = load_cache(Path(settings["kv"]))
    if settings["codebook"] is not None:
        return cache, CodebookSet.load(settings["codebook"])
    cut = len(cache[0].values) // 4
    if cut == 0:
        raise ValueError(f"{settings['kv']}: too few tokens to calibrate on a part of them; give --codebook")
    codebooks = calibrate([CachedTensor(tensor.name, tensor.type, tensor.values[:cut]) for tensor in cache])
    return [CachedTensor(tensor.name, tensor.type, tensor.values[cut:]) for tensor in cache], codebooks


class Prefill:
    def __init__(self, settings: dict[str, Any]) -> None:
        cache, self.codebooks = load(settings)
        device, coder = gpu_for(settings)
        self.pool = Pool(cache, settings["page_tokens"], settings["seed"], device)
        self.pool.fill()
        self.engine = make_engine(settings, sends=True)
        self.engine.register(self.pool.memory)
        self.sender = Sender(self.engine, self.codebooks, options(settings, device is not None))
        self.by_layer = settings["engine"] == "mooncake"  # between GPUs a frame is to be longer than a layer
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
        """Layer by layer, as a model computes them, or all in one."""
        numbered = enumerate(self.pool.cache)
        layers = itertools.groupby(numbered, key=lambda item: self.by_layer and item[1].layer)
        return send_all(
            self.sender,
            address,
            name,
            (
                [
                    self.pool.part(number, self.codebooks.find(tensor.name) if coded else None)
                    for number, tensor in layer
                ]
                for _, layer in layers
            ),
        )

    def routes(self) -> dict[str, Any]:
        return routes_of(self.sender)

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
        device, coder = gpu_for(settings)
        self.pool = Pool(cache, settings["page_tokens"], settings["seed"], device)
        engine = make_engine(settings, sends=False)
        engine.register(self.pool.memory)
        self.receiver = Receiver(engine, codebooks, options(settings, device is not None))
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


def worker_class(role: str) -> Any:
    if role in ("prefill", "decode"):
        return Prefill if role == "prefill" else Decode
    from . import model  # which needs torch and transformers

    return model.Prefill if role == "model_prefill" else model.Decode


def main() -> int:
    # Whatever libraries print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker: Any = None
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if worker is None:
                worker = worker_class(command.pop("role"))(command)
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
