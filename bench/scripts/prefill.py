#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the connector for vLLM does between prefill and decode, without vLLM: the sample cache goes from blocks as
vLLM's processor backend has them, over Mooncake on the loopback interface, into other blocks; raw and coded.

    python bench/scripts/prefill.py [--repeat N] > bench/results/prefill.json

Needs splitzip-kv, safetensors and the Mooncake wheel.
"""

import argparse
import json
import os
import pathlib
import statistics
import time

import numpy as np

from splitzip_kv import CodebookSet
from splitzip_kv.integrations.blocks import Blocks, LayerMemory
from splitzip_kv.integrations.prefill import PrefillService, fetch
from splitzip_kv.transfer import Options, Receiver, Sender
from splitzip_kv.transfer.demo.cache import load_cache
from splitzip_kv.transfer.mooncake import MooncakeEngine

DATA = pathlib.Path(__file__).parents[2] / "data" / "smollm2-135m"
TOKENS = 128  # of a block
BLOCKS = 8


def memory(heads: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """K as [block, head, dim, token] and V as [block, head, token, dim], seen as tokens of heads; BF16."""
    block = np.zeros((BLOCKS, heads, 2 * TOKENS * dim), np.int16)
    keys = block[:, :, : TOKENS * dim].reshape(BLOCKS, heads, dim, TOKENS).swapaxes(2, 3)
    return keys, block[:, :, TOKENS * dim :].reshape(BLOCKS, heads, TOKENS, dim)


def blocks_of(layers: list[tuple[np.ndarray, np.ndarray]]) -> Blocks:
    import ml_dtypes

    return Blocks(
        [
            LayerMemory([(kind, part.view(ml_dtypes.bfloat16), "page,head,token,dim") for kind, part in zip("kv", layer)])
            for layer in layers
        ],
        TOKENS,
    )


def measured(cache, codebooks: CodebookSet, raw: bool, repeat: int) -> dict:
    tokens, heads, dim = cache[0].values.shape
    here, there = ([memory(heads, dim) for _ in cache[::2]] for _ in range(2))
    source, target = [5, 2], [0, 6]
    for layer, pair in zip(here, zip(cache[::2], cache[1::2]), strict=True):
        for part, tensor in zip(layer, pair, strict=True):
            for number, block in enumerate(source):
                rows = tensor.values[number * TOKENS : (number + 1) * TOKENS]
                part[block, :, : len(rows)] = rows.swapaxes(0, 1).view(np.int16)
    blocks = blocks_of(here)
    options = Options(raw=raw)
    sender = Sender(MooncakeEngine(), codebooks, options)
    receiver = Receiver(MooncakeEngine(), codebooks, options)
    service = PrefillService(
        "127.0.0.1",
        0,
        sender,
        lambda ids, count: blocks.parts(ids, count, codebooks.find),
        blocks.raw_bytes,
        TOKENS,
        30.0,
    )
    times = []
    begin = time.perf_counter()
    for number in range(repeat + 1):
        started = time.perf_counter()
        service.hold(str(number), source, tokens)
        parts, finish = blocks_of(there).targets(target, tokens)
        report = fetch(receiver, f"127.0.0.1:{service.port}", str(number), parts, 0, 30.0)
        finish()
        times.append(time.perf_counter() - started)
        if number == 0:
            begin = time.perf_counter()  # the first one has connected and touched memory
    elapsed = time.perf_counter() - begin
    for layer, pair in zip(there, zip(cache[::2], cache[1::2]), strict=True):
        for part, tensor in zip(layer, pair, strict=True):
            got = np.concatenate([part[block].swapaxes(0, 1) for block in target])[:tokens]
            if not np.array_equal(got.view(np.uint16), tensor.values):
                raise SystemExit("what arrived is not what was sent")
    service.close()
    sender.close()
    receiver.close()
    return {
        "wire_bytes": report["wire_bytes"],
        "milliseconds_a_request": round(1000 * statistics.median(times[1:]), 1),
        "requests_a_second": round(repeat / elapsed, 1),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repeat", type=int, default=30)
    repeat = arguments.parse_args().repeat
    cache, codebooks = load_cache(DATA / "gsm8k.safetensors"), CodebookSet.load(DATA / "wikitext2.szcb")
    [processor, *_] = [line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    result = {
        "command": "python bench/scripts/prefill.py",
        "date": time.strftime("%Y-%m-%d"),
        "processor": f"{processor.partition(':')[2].strip()}, {os.cpu_count()} processors",
        "cache": "data/smollm2-135m/gsm8k.safetensors, 192 tokens in blocks of 128, both sides in one process",
        "raw_bytes": sum(tensor.values.nbytes for tensor in cache),
        "repetitions": repeat,
        "raw": measured(cache, codebooks, True, repeat),
        "coded": measured(cache, codebooks, False, repeat),
    }
    result["ratio"] = round(result["raw_bytes"] / result["coded"]["wire_bytes"], 3)
    result["added_milliseconds_a_request"] = round(result["coded"]["milliseconds_a_request"] - result["raw"]["milliseconds_a_request"], 1)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
