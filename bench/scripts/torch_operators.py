#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operators for PyTorch: bytes/s of a large paged cache beside torch's copy of it, and what a call costs.

    python bench/scripts/torch_operators.py [--mebibytes N] [--json FILE]

Needs splitzip-kv with CUDA, torch and a GPU; without one, only the cost of a call on the CPU is measured. The values
are those of the sample in data/, repeated until the cache is full.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import time

import numpy as np
import torch

import kv_files
import splitzip_kv
from splitzip_kv import CodebookSet, cuda
from splitzip_kv.torch import Entry, Table

DATA = pathlib.Path(__file__).parents[2] / "data" / "smollm2-135m"
PAGE_TOKENS = 16
HEADS_APART = "page,token,head,dim"
ROWS = "page,token,dim"  # all heads of a token in one range


class Case:
    """`requests` of equal length in pages at random numbers; K and V of each layer are caches of their own."""

    def __init__(self, total_bytes: int, requests: int, device: str, axes: str = ROWS) -> None:
        books = CodebookSet.load(DATA / "wikitext2.szcb")
        sample = kv_files.load(DATA / "gsm8k.safetensors")
        names = sorted(sample, key=lambda name: (int(name.split(".")[1]), name))
        row_bytes = sum(values[0].nbytes for values in sample.values())
        self.pages_each = max(total_bytes // row_bytes // PAGE_TOKENS // requests, 1)
        pages = self.pages_each * requests
        self.raw_bytes = pages * PAGE_TOKENS * row_bytes
        self.pools, entries = [], []
        for key, name in enumerate(names):
            values = sample[name]
            whole = np.resize(values, (pages * PAGE_TOKENS, *values.shape[1:])).reshape(pages, PAGE_TOKENS, *values.shape[1:])
            pool = torch.from_numpy(whole.view(np.int16)).view(torch.bfloat16).to(device)
            self.pools.append(pool)
            view = pool.flatten(2) if axes == ROWS else pool
            entries.append(Entry(view, axes, books.find(name), tensor_key=key))
        self.table = Table(self.pools, entries, max_tokens=self.pages_each * PAGE_TOKENS)
        numbers = np.random.default_rng(0).permutation(pages).astype(np.int32).reshape(requests, -1)
        self.page_table = torch.from_numpy(numbers).to(device)
        self.counts = torch.full((requests,), self.pages_each * PAGE_TOKENS, device=device)
        self.buffers, self.written = self.table.buffers(requests), self.table.buffers(requests, frame_bytes=16)

    def encode(self) -> None:
        self.table.encode(self.page_table, self.counts, self.buffers)

    def decode(self) -> None:
        # What is written is what is there: the values stay right for the next encoding.
        frames = self.buffers
        self.table.decode(self.page_table, self.counts, frames.frames, frames.frame_bytes, self.written)


def gpu_seconds(work, repeat: int) -> float:
    times = []
    for _ in range(repeat + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return statistics.median(times[2:])


def throughput(mebibytes: int, repeat: int, axes: str) -> dict:
    case = Case(mebibytes << 20, 8, "cuda", axes)
    before = [pool.clone() for pool in case.pools]
    case.encode()
    for pool in case.pools:
        pool.zero_()
    case.decode()
    case.buffers.check()
    case.written.check()
    if not all(torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in zip(case.pools, before, strict=True)):
        raise SystemExit("the cache did not come back as it was")
    frame_bytes = int(case.buffers.frame_bytes.sum())
    del before
    flat = torch.cat([pool.reshape(-1) for pool in case.pools])
    other = torch.empty_like(flat)

    def rate(work) -> float:
        return round(case.raw_bytes / gpu_seconds(work, repeat) / 1e9, 1)

    return {
        "raw_bytes": case.raw_bytes,
        "ratio": round(case.raw_bytes / frame_bytes, 4),
        "torch_copy_gb_per_second": rate(lambda: other.copy_(flat)),
        "encode_gb_per_second": rate(case.encode),
        "decode_gb_per_second": rate(case.decode),
    }


def host_microseconds(work, calls: int = 100, rounds: int = 9) -> float:
    """Of the calling thread, while the GPU is behind: what a call costs before it returns."""
    times = []
    for _ in range(rounds):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            work()
        times.append((time.perf_counter() - begin) / calls)
    return round(statistics.median(times) * 1e6, 1)


def calls_on_gpu() -> dict:
    case = Case(0, 1, "cuda")
    small = Case(0, 1, "cuda")
    small.table = Table(case.pools[:1], [Entry(case.pools[0], HEADS_APART)], max_tokens=PAGE_TOKENS)
    small.buffers = small.table.buffers(1)
    one = torch.zeros(1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    case.encode()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        case.encode()
    return {
        "call_microseconds_60_caches": host_microseconds(case.encode),
        "call_microseconds_1_cache": host_microseconds(small.encode),
        "torch_add_microseconds": host_microseconds(lambda: one.add_(1)),
        "gpu_microseconds_of_a_graph": round(gpu_seconds(graph.replay, 50) * 1e6, 1),
    }


def calls_on_cpu() -> dict:
    """Nothing to encode, so that only the way through torch and the checks is measured."""
    case = Case(0, 1, "cpu")
    case.counts.fill_(-1)
    small = Table(case.pools[:1], [Entry(case.pools[0], HEADS_APART)], max_tokens=PAGE_TOKENS)
    buffers = small.buffers(1)
    return {
        "cpu_call_microseconds_60_caches": host_microseconds(case.encode),
        "cpu_call_microseconds_1_cache": host_microseconds(lambda: small.encode(case.page_table, case.counts, buffers)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--mebibytes", type=int, default=512, help="size of the cache (default: 512)")
    parser.add_argument("--repeat", type=int, default=20, help="measurements, of which the median counts (default: 20)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the result there, too")
    given = parser.parse_args()
    result = {
        "date": datetime.date.today().isoformat(),
        "splitzip_kv": splitzip_kv.__version__,
        "torch": torch.__version__,
        **calls_on_cpu(),
    }
    if torch.cuda.is_available() and cuda.is_available():
        result["device"] = torch.cuda.get_device_name()
        result |= {
            "rows_of_384_bytes": throughput(given.mebibytes, given.repeat, ROWS),
            "heads_of_128_bytes": throughput(given.mebibytes, given.repeat, HEADS_APART),
            **calls_on_gpu(),
        }
    text = json.dumps(result, indent=2) + "\n"
    print(text, end="")
    if given.json is not None:
        given.json.write_text(text)


if __name__ == "__main__":
    main()
