#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A prefill worker of Dynamo that has the sample cache, and lets decode workers read it over NIXL, coded or raw.

A decode worker says which codebooks it has and chooses the frames' generation numbers ("nonce"). The answer
has what NIXL needs to read the frames, one a layer, and what they hold; the decode worker believes none of it before
the frame has been verified. "fault" is for the test.
"""

import asyncio
import dataclasses
import sys

import torch
from dynamo.nixl_connect import Connector, Descriptor
from dynamo.runtime import DistributedRuntime

from dynamo_cases import ENDPOINT, cache_pool, parts_of
from splitzip_kv import CodebookSet, encode, frame_sizes
from splitzip_kv.transfer.parts import raw, record_of


class Prefill:
    def __init__(self, codebooks: CodebookSet) -> None:
        self.codebooks = codebooks
        self.pool = cache_pool(seed=1)
        self.pool.fill()
        self.connector = Connector()

    async def fetch(self, request: dict):
        known = set(request["codebooks"])
        frames, records = [], []
        for number, parts in enumerate(parts_of(self.pool, self.codebooks)):
            tensors = [
                part.tensor if part.tensor.codebook and f"{part.tensor.codebook.hash:016x}" in known else raw(part.tensor) for part in parts
            ]
            memory = torch.empty(frame_sizes(tensors).bound_bytes, dtype=torch.uint8)
            layouts = [part.layout for part in parts]
            frame = encode(tensors, layouts, out=memory.numpy(), nonce=request["nonce"] + number)
            if request.get("fault") == "damage":
                memory[len(frame) // 2] ^= 16
            frames.append(memory[: len(frame)])
            records.append({"bytes": len(frame), "tensors": [dataclasses.asdict(record_of(tensor)) for tensor in tensors]})
        readable = await self.connector.create_readable([Descriptor(frame) for frame in frames])
        yield {"metadata": readable.metadata().model_dump(), "frames": records}
        # The memory stays until it was read, or until the decode worker gave up.
        with readable:
            await asyncio.wait_for(readable.wait_for_completion(), 20)


async def main() -> None:
    prefill = Prefill(CodebookSet.load(sys.argv[1]))
    runtime = DistributedRuntime(asyncio.get_running_loop(), "file", "tcp")
    await runtime.endpoint(ENDPOINT).serve_endpoint(prefill.fetch)


if __name__ == "__main__":
    asyncio.run(main())
