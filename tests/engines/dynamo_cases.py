# SPDX-License-Identifier: Apache-2.0
"""A prefill worker of Dynamo in a process of its own, and a decode worker that reads its cache over NIXL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from dynamo.nixl_connect import Connector, Descriptor, RdmaMetadata
from dynamo.runtime import DistributedRuntime

from splitzip_kv import CodebookSet, Frame
from splitzip_kv.transfer import Part
from splitzip_kv.transfer.demo.cache import Pool, load_cache
from splitzip_kv.transfer.incoming import ExpectedPart
from splitzip_kv.transfer.messages import TensorRecord

DATA = Path(__file__).parents[2] / "data" / "smollm2-135m"
CODEBOOKS = DATA / "wikitext2.szcb"
ENDPOINT = "splitzip.prefill.fetch"


def cache_pool(seed: int) -> Pool:
    return Pool(load_cache(DATA / "gsm8k.safetensors"), 16, seed)


def parts_of(pool: Pool, codebooks: CodebookSet | None = None) -> Iterator[list[Part]]:
    """K and V of each layer."""
    for number in range(0, len(pool.cache), 2):
        yield [pool.part(number + half, codebooks and codebooks.find(pool.cache[number + half].name)) for half in range(2)]


@contextlib.contextmanager
def prefill_worker(folder: Path):
    environment = {"DYN_FILE_KV": str(folder), "DYN_TCP_RPC_HOST": "127.0.0.1", "UCX_TLS": "tcp,self"}
    environment |= {"UCX_NET_DEVICES": "lo", "DYN_LOG": "error"}
    os.environ.update(environment)
    command = [sys.executable, "-B", str(Path(__file__).parent / "dynamo_prefill.py"), str(CODEBOOKS)]
    worker = subprocess.Popen(command, env=os.environ | environment)
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


class Decode:
    def __init__(self, codebooks: CodebookSet) -> None:
        self.codebooks = codebooks
        self.pool = cache_pool(seed=2)
        self.connector = Connector()
        self.wire_bytes = 0
        self.seconds = 0.0

    async def connect(self) -> None:
        runtime = DistributedRuntime(asyncio.get_running_loop(), "file", "tcp")
        self._client = await runtime.endpoint(ENDPOINT).client()
        await self._client.wait_for_instances()

    async def fetch(self, coded: bool = True, fault: str = "") -> None:
        """The whole cache into this side's pages. Raises TransferError or SplitzipError: then they hold anything."""
        begin = time.perf_counter()
        nonce = secrets.randbits(48)
        hashes = [f"{codebook.hash:016x}" for codebook in self.codebooks] if coded else []
        request = {"codebooks": hashes, "nonce": nonce + (fault == "stale"), "fault": fault}
        answers = await self._client.round_robin(request)
        answer = await anext(aiter(answers))
        answer = answer.data() if callable(getattr(answer, "data", None)) else answer
        # No size is believed beyond what such a cache can need.
        most = 2 * self.pool.memory.nbytes
        if not 0 < sum(frame["bytes"] for frame in answer["frames"]) <= most:
            raise ValueError("frames of an impossible size")
        frames = [torch.empty(frame["bytes"], dtype=torch.uint8) for frame in answer["frames"]]
        read = await self.connector.begin_read(RdmaMetadata.model_validate(answer["metadata"]), [Descriptor(frame) for frame in frames])
        with read:
            await read.wait_for_completion()
        for number, (parts, told, frame) in enumerate(zip(parts_of(self.pool), answer["frames"], frames, strict=True)):
            records = [TensorRecord(**record) for record in told["tensors"]]
            taken = [
                # What is announced has to be what is expected; only then are the codebooks looked up.
                ExpectedPart(part).take(record, self.codebooks.find_hash(record.codebook_hash))
                for part, record in zip(parts, records, strict=True)
            ]
            Frame(frame.numpy(), expected_nonce=nonce + number).decode(*map(list, zip(*taken, strict=True)))
        self.wire_bytes = sum(len(frame) for frame in frames)
        self.seconds = time.perf_counter() - begin
