# SPDX-License-Identifier: Apache-2.0
"""Run by tools/test_engine.sh dynamo: two workers of Dynamo's runtime, a cache read over NIXL."""

import asyncio

import pytest

from dynamo_cases import CODEBOOKS, Decode, prefill_worker
from splitzip_kv import CodebookSet, NonceMismatch, SplitzipError


def test_prefill_and_decode_workers(tmp_path):
    async def run():
        decode = Decode(CodebookSet.load(CODEBOOKS))
        await decode.connect()
        raw_bytes = sum(tensor.values.nbytes for tensor in decode.pool.cache)

        await decode.fetch()
        assert decode.pool.different_values() == decode.pool.touched_bytes() == 0
        assert raw_bytes / decode.wire_bytes > 1.4

        # A decode worker without codebooks gets the same, raw.
        decode.pool.clear()
        await decode.fetch(coded=False)
        assert decode.pool.different_values() == decode.pool.touched_bytes() == 0
        assert raw_bytes <= decode.wire_bytes < 1.03 * raw_bytes

        # A damaged frame, and one that was made for another request, are errors; the next request is none.
        with pytest.raises(SplitzipError) as caught:
            await decode.fetch(fault="damage")
        assert not isinstance(caught.value, NonceMismatch)
        with pytest.raises(NonceMismatch):
            await decode.fetch(fault="stale")
        decode.pool.clear()
        await decode.fetch()
        assert decode.pool.different_values() == decode.pool.touched_bytes() == 0

    with prefill_worker(tmp_path):
        asyncio.run(asyncio.wait_for(run(), 120))
