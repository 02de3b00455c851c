# SPDX-License-Identifier: Apache-2.0
"""What the scripts have in common that run another project's GPU code beside the CUDA codec, in one process.

Both get the same values in the same memory: K and V of all layers, repeated until the call is large enough. The library makes a
codebook for each tensor, from another file. What is decoded is compared bit by bit before anything is timed. Calls follow each
other on different memory, more of it than the L2 cache holds, and what they make stays allocated meanwhile; a call's time is that
between two events of the stream, so that the host's part counts where the GPU waits for it.
"""

import argparse
import ctypes
import datetime
import itertools
import json
import pathlib
import re
import statistics
import sys

import numpy as np
import torch

import kv_files

ROOT = pathlib.Path(__file__).parents[2]
sys.path += [str(ROOT / "bench" / "serving"), str(ROOT / "tests" / "format")]
import device_codec

import library

MIB = 1 << 20
COLD_BYTES = 512 * MIB
MODES = {"fixed4": device_codec.FIXED4, "tiered": device_codec.TIERED}


def timed(calls, count, seconds):
    """Microseconds of a call: lower quartile, median, upper quartile. calls(i) works on memory i of `count`."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for number in range(count + 1):  # the first ones may compile and allocate
        calls(number % count)
    begin.record()
    calls(0)
    end.record()
    end.synchronize()
    one = max(begin.elapsed_time(end) / 1000, 1e-6)
    for number in range(int(min(max(0.03 / one, 1), 1000))):  # clocks fall while the host checks results
        calls(number % count)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(int(min(max(seconds / one, 10), 200)) + 1)]
    events[0].record()
    for number, event in enumerate(events[1:]):
        calls(number % count)
        event.record()
    torch.cuda.synchronize()
    times = [1000 * before.elapsed_time(after) for before, after in zip(events, events[1:])]
    return {"us": statistics.quantiles(times, n=4, method="inclusive"), "repetitions": len(times), "graph": False}


class Workload:
    """About `wanted` bytes of a cache, tensor after tensor, again and again in `sets` places that follow each other."""

    def __init__(self, group, tensors, wanted):
        self.group = group  # of its rows
        row_bytes = sum(values[0].nbytes for values in tensors.values())
        self.tokens = max(wanted // row_bytes, 1)
        self.bytes = self.tokens * row_bytes
        self.sets = max(COLD_BYTES // self.bytes, 1)
        self.memory = torch.empty((self.sets, self.bytes // 2), dtype=torch.int16, device="cuda")
        self.pool, at = {}, 0
        for name, values in tensors.items():
            flat = torch.tensor(values.reshape(len(values), -1).view(np.int16), device="cuda")
            size = self.tokens * flat.shape[1]
            rows = torch.arange(self.sets * self.tokens, device="cuda") % len(flat)
            self.memory[:, at : at + size] = flat[rows].view(self.sets, size)
            self.pool[name] = self.memory[0, at : at + size].view(self.tokens, -1)
            at += size

    def row(self, codec, **more):
        channels = {values.shape[1] for values in self.pool.values()}
        layout = f"{2 * max(channels)} B rows"
        facts = {"group": self.group, "layout": layout, "codec": codec, "bytes": self.bytes, "sets": self.sets}
        return facts | {"tensors": len(self.pool), "tokens": self.tokens} | more


def same(left, right):
    """Of the bits of two tensors."""
    if not torch.equal(left.view(torch.int16), right.view(torch.int16)):
        raise SystemExit("decoded values differ from what was encoded")


def run_copy(workload, seconds):
    target = torch.empty_like(workload.memory)
    times = timed(lambda i: target[i].copy_(workload.memory[i]), workload.sets, seconds)
    return workload.row("device copy", ratio=1.0, encode=times, decode=times)


def run_splitzip(mode, checksums, codebooks, workload, seconds):
    sets, stream = range(workload.sets), torch.cuda.current_stream()
    codec = device_codec.Codec(
        library.PATH, codebooks, workload.pool, workload.sets, mode=MODES[mode], checksums=checksums, slot_stride=workload.bytes
    )
    before = workload.memory.clone()
    for i in sets:
        codec.encode(i, stream)
    frame_bytes = [codec.wait(i) for i in sets]
    workload.memory.fill_(0x5A5A)
    for i in sets:
        codec.decode(i, frame_bytes[i], stream)
    for i in sets:
        codec.wait(i)
    same(workload.memory, before)
    del before
    encoding = timed(lambda i: codec.encode(i, stream), workload.sets, seconds)
    decoding = timed(lambda i: codec.decode(i, frame_bytes[i], stream), workload.sets, seconds)
    if [codec.wait(i) for i in sets] != frame_bytes:
        raise SystemExit(f"{mode}: what is decoded last has another size")
    codec.close()
    ratio = workload.bytes * workload.sets / sum(frame_bytes)
    return workload.row(mode, checksums=checksums, ratio=ratio, encode=encoding, decode=decoding)


def device_facts():
    library.lib.splitzip_version.restype = ctypes.c_char_p
    properties = torch.cuda.get_device_properties(0)
    driver = pathlib.Path("/proc/driver/nvidia/version")
    found = re.search(r"\d+\.\d+(\.\d+)*", driver.read_text()) if driver.exists() else None
    return {
        "device": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "driver": found.group() if found else "",
        "splitzip": library.lib.splitzip_version().decode(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }


def layer_order(name):
    return [int(part) if part.isdigit() else part for part in name.split(".")]


def load(path):
    tensors = kv_files.load(path)
    return {name: tensors[name] for name in sorted(tensors, key=layer_order)}


def codebooks_of(tensors):
    rows = {name: values.reshape(len(values), 1, -1) for name, values in tensors.items()}
    return library.calibrate(rows, device_codec.BF16, b"bench/scripts")


def options(description, mebibytes):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kv", action="append", required=True, metavar="NAME=CALIBRATION,TEST", help="may be repeated")
    parser.add_argument("--mebibytes", type=int, nargs="+", default=mebibytes,
                        help="of a call, the largest first; caches after the first get the first size alone")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=0.3, help="to measure each figure for")
    parser.add_argument("--json", type=pathlib.Path, help="write the results there, after each row")
    return parser


def parsed(parser, argv):
    arguments = parser.parse_args(argv)
    if not all(re.fullmatch("[^=]+=[^,]+,[^,]+", kv) for kv in arguments.kv):
        parser.error("--kv takes NAME=CALIBRATION,TEST")
    if library.PATH is None:
        parser.error("SPLITZIP_LIBRARY has to name libsplitzip.so, built with CUDA")
    return arguments


def show(name, row):
    speeds = [f"{way} {row['bytes'] / row[way]['us'][1] / 1000:9,.4g} GB/s" for way in ("encode", "decode")]
    checksums = {True: "checksums", False: "none"}.get(row.get("checksums"), "-")
    size = f"{row['bytes'] / MIB:6.1f} MiB"
    print(f"{name:14} {size} {row['codec']:20} {checksums:9} {row['ratio']:.3f}", *speeds, flush=True)


def run(arguments, group, facts, rows_of):
    """Print and write what rows_of(calibration, codebooks, workload, seconds) yields for each cache and size, after a
    device copy."""
    result = device_facts() | facts | {"rows": []}
    for kv in arguments.kv:
        name, _, paths = kv.partition("=")
        calibration, test = map(load, paths.split(","))
        codebooks = codebooks_of(calibration)
        sizes = arguments.mebibytes if kv == arguments.kv[0] else arguments.mebibytes[:1]
        for size in sizes:
            workload = Workload(group, test, size * MIB)
            copied = run_copy(workload, arguments.seconds)
            result.setdefault("copy_gbps", copied["bytes"] / copied["encode"]["us"][1] / 1000)
            for row in itertools.chain([copied], rows_of(calibration, codebooks, workload, arguments.seconds)):
                result["rows"].append({"data": name} | row)
                show(name, row)
                if arguments.json:
                    arguments.json.write_text(json.dumps(result, indent=1) + "\n")
            del workload
            torch.cuda.empty_cache()
