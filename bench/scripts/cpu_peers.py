#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""splitzip beside other lossless codecs on one real KV cache in BF16, in one run.

    SPLITZIP_LIBRARY=build/release/src/libsplitzip.so bench/scripts/cpu_peers.py CALIBRATE.safetensors TEST.safetensors MACHINE "what it is"

Writes bench/results/cpu-peers-MACHINE.json; cpu_report.py renders it. Tensors are [heads, tokens, dim]; all codecs get the same bytes,
token-major, tensor after tensor, and give them back; splitzip has its codebooks from the first file. For each of --sizes the bytes of the test
file are cut at a row or repeated; none of these codecs looks back as far as one repetition. Calls are timed one by one, memcpy's among them, and the best
counts. Peers that are not installed are left out and named.
"""

import argparse
import concurrent.futures
import ctypes
import datetime
import importlib.metadata
import json
import os
import pathlib
import sys
import tempfile
import time

import numpy as np

import kv_files

ROOT = pathlib.Path(__file__).parent.parent.parent
RESULTS = ROOT / "bench" / "results"
sys.path.insert(0, str(ROOT / "tests" / "format"))
import library

BF16, FIXED4, TIERED = 1, 1, 2


def load(path):
    """{name: [tokens, channels] of 16-bit values}."""
    return {name: values.reshape(len(values), -1) for name, values in kv_files.load(path).items()}


def take(tensors, size):
    """[(name, shape)] of about `size` bytes, and these bytes: tensor after tensor, from the middle layer on (values of the first one repeat with
    their token), again and again, the last one cut at a row."""
    names = list(tensors)
    parts, left, next_name = [], size, len(names) // 2
    while True:
        name = names[next_name % len(names)]
        next_name += 1
        rows = min(len(tensors[name]), left // (2 * tensors[name].shape[1]))
        if rows == 0:
            break
        parts.append((name, tensors[name][:rows]))
        left -= parts[-1][1].nbytes
    return [(name, part.shape) for name, part in parts], np.concatenate([part.reshape(-1).view(np.uint8) for _, part in parts])


class Splitzip:
    """One frame of all tensors; memory is allocated beforehand, as the interface is meant to be used."""

    def __init__(self, mode, calibration_tensors, threads):
        self.lib = library.lib
        self.lib.splitzip_version.restype = ctypes.c_char_p
        self.lib.splitzip_codebook_set_find.restype = ctypes.c_void_p
        self.name, self.mode = f"splitzip {mode}", {"fixed4": FIXED4, "tiered": TIERED}[mode]
        self.version = self.lib.splitzip_version().decode()
        arrays = {name: values.reshape(len(values), 1, -1) for name, values in calibration_tensors.items()}
        self.codebooks = library.CodebookSet(library.calibrate(arrays, BF16, b"cpu_peers"))
        self.workers = ctypes.c_void_p()
        library.check(self.lib.splitzip_workers_create(ctypes.c_uint32(threads), ctypes.byref(self.workers)))

    def prepare(self, data, parts):
        tensors, at = [], 0
        places = []
        for name, (tokens, channels) in parts:
            codebook = self.lib.splitzip_codebook_set_find(self.codebooks.handle, name.encode())
            tensors.append(
                library.TensorStruct(
                    type=BF16,
                    mode=self.mode,
                    codebook=codebook,
                    tokens=tokens,
                    tokens_per_unit=tokens,
                    channels=channels,
                    ranges=1,
                    slot_words=2**32 - 1,
                )
            )
            places.append((at, 2 * channels))
            at += 2 * tokens * channels
        self.count = ctypes.c_size_t(len(tensors))
        self.tensors = library.array_of(library.TensorStruct, tensors)
        self.output = np.zeros_like(data)
        layouts = [[library.Layout(base=a.ctypes.data + at, row_stride=row) for at, row in places] for a in (data, self.output)]
        self.sources, self.destinations = (library.array_of(library.Layout, each) for each in layouts)
        self.encode_options = library.EncodeOptions(checksums=1, workers=self.workers)
        self.decode_options = library.DecodeOptions(workers=self.workers)
        sizes, error = library.FrameSizes(), library.Error()
        get_sizes = self.lib.splitzip_get_frame_sizes
        library.check(
            get_sizes(self.tensors, self.count, ctypes.byref(self.encode_options), ctypes.byref(sizes), ctypes.byref(error)), error
        )
        self.room = np.zeros(sizes.bound_bytes, np.uint8)
        self.address, self.capacity = ctypes.c_void_p(self.room.ctypes.data), ctypes.c_size_t(self.room.size)
        self.lib.splitzip_frame_open.argtypes = None

    def compress(self, data):
        size = ctypes.c_size_t()
        options = ctypes.byref(self.encode_options)
        library.check(
            self.lib.splitzip_encode(self.tensors, self.sources, self.count, options, self.address, self.capacity, ctypes.byref(size), None)
        )
        return self.room[: size.value]

    def decompress(self, packed):
        frame = library.FrameStruct()
        library.check(self.lib.splitzip_frame_open(self.address, ctypes.c_size_t(packed.size), None, ctypes.byref(frame), None))
        options = ctypes.byref(self.decode_options)
        library.check(self.lib.splitzip_decode(ctypes.byref(frame), self.tensors, self.destinations, self.count, options, None))
        return self.output


class Memcpy:
    name, version = "memcpy", ""

    def __init__(self, threads):
        self.threads = threads
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)

    def prepare(self, data, parts):
        self.target = np.zeros_like(data)
        share = -(-data.size // self.threads)
        self.parts = [
            (self.target.ctypes.data + at, data.ctypes.data + at, min(share, data.size - at)) for at in range(0, data.size, share)
        ]

    def compress(self, data):
        if self.threads == 1:
            ctypes.memmove(*self.parts[0])
        else:
            list(self.pool.map(lambda part: ctypes.memmove(*part), self.parts))
        return self.target

    decompress = compress


class ZipNN:
    name = "ZipNN"

    def __init__(self, threads):
        import zipnn

        self.version = importlib.metadata.version("zipnn")
        self.codec = zipnn.ZipNN(input_format="byte", bytearray_dtype="bfloat16", threads=threads)

    def prepare(self, data, parts):
        self.fresh = lambda: bytearray(data)  # it overwrites what it is given

    def compress(self, data):
        return self.codec.compress(data)

    def decompress(self, packed):
        return self.codec.decompress(packed)


class Zstd:
    def __init__(self, level, threads):
        import zstandard

        self.name, self.version = f"zstd -{level}", ".".join(str(n) for n in zstandard.ZSTD_VERSION)
        self.compressor = zstandard.ZstdCompressor(level=level, threads=0 if threads == 1 else threads)  # it decompresses with one
        self.decompressor = zstandard.ZstdDecompressor()

    def compress(self, data):
        return self.compressor.compress(data)

    def decompress(self, packed):
        return self.decompressor.decompress(packed)


class Lz4:
    name = "lz4"

    def __init__(self, threads):
        import lz4.block  # with one thread in any case

        self.version = lz4.library_version_string()
        self.block = lz4.block

    def compress(self, data):
        return self.block.compress(data)

    def decompress(self, packed):
        return self.block.decompress(packed)


class ShuffledZstd:
    name = "byte shuffle + zstd -1 (Blosc2)"

    def __init__(self, threads):
        import blosc2

        self.version = blosc2.__version__
        self.blosc2 = blosc2
        self.parameters = {
            "codec": blosc2.Codec.ZSTD, "clevel": 1, "filters": [blosc2.Filter.SHUFFLE], "filters_meta": [0],
            "typesize": 2, "nthreads": threads,
        }  # fmt: skip

    def compress(self, data):
        return self.blosc2.compress2(data, **self.parameters)

    def decompress(self, packed):
        return self.blosc2.decompress2(packed, nthreads=self.parameters["nthreads"])


class Lmzip:
    """Works on files, so on files in memory: their reading and writing is in the time."""

    name = "lmzip (files in memory)"

    def __init__(self, threads):
        import lmz

        self.lmz, self.version, self.threads = lmz, lmz.__version__, threads

    def prepare(self, data, parts):
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm")
        folder = pathlib.Path(self.folder.name)
        self.source, self.packed, self.restored = (str(folder / name) for name in ("a.safetensors", "a.lmz", "b.safetensors"))
        header = json.dumps({"kv": {"dtype": "BF16", "shape": [data.size // 2], "data_offsets": [0, data.size]}}).encode()
        self.prefix = len(header).to_bytes(8, "little") + header
        pathlib.Path(self.source).write_bytes(self.prefix + data.tobytes())

    def compress(self, data):
        self.lmz.compress(self.source, self.packed, workers=self.threads, dedup=False, delta=False)
        return range(os.path.getsize(self.packed) - len(self.prefix))

    def decompress(self, packed):
        self.lmz.decompress(self.packed, self.restored, workers=self.threads, overwrite=True)

    def result(self, output):
        return np.fromfile(self.restored, np.uint8)[len(self.prefix) :]


def seconds(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def measure(codec, parts, data, repeats, budget):
    """At least `repeats` calls each way, and more as long as `budget` seconds are left."""
    if hasattr(codec, "prepare"):
        codec.prepare(data, parts)
    compress, decompress = [], []
    while len(compress) < repeats or (sum(compress) + sum(decompress) < budget and len(compress) < 1000):
        source = codec.fresh() if hasattr(codec, "fresh") else data
        time_to_compress, packed = seconds(lambda: codec.compress(source))
        time_to_decompress, output = seconds(lambda: codec.decompress(packed))
        compress.append(time_to_compress)
        decompress.append(time_to_decompress)
    output = codec.result(output) if hasattr(codec, "result") else np.frombuffer(output, np.uint8)
    if not np.array_equal(output, data):
        raise SystemExit(f"{codec.name}: other bytes than before")
    return {
        "name": codec.name,
        "version": codec.version,
        "bytes": data.size,
        "ratio": round(data.size / len(packed), 4),
        "compress_ns": round(min(compress) * 1e9),
        "decompress_ns": round(min(decompress) * 1e9),
        "calls": len(compress),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calibrate")
    parser.add_argument("test")
    parser.add_argument("machine")
    parser.add_argument("description")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 32768, 262144, 2 << 20, 64 << 20])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.2, help="seconds for each codec and size, if --repeats take less")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    arguments = parser.parse_args()

    calibration_tensors, test_tensors = load(arguments.calibrate), load(arguments.test)
    skipped = {
        "dfloat11": "compresses in Python and decompresses on the GPU only",
        "bigsmall": "not installed here; Elastic License 2.0",
    }
    makers = {
        "splitzip tiered": lambda threads: Splitzip("tiered", calibration_tensors, threads),
        "splitzip fixed4": lambda threads: Splitzip("fixed4", calibration_tensors, threads),
        "memcpy": Memcpy,
        "ZipNN": ZipNN,
        "zstd -1": lambda threads: Zstd(1, threads),
        "zstd -3": lambda threads: Zstd(3, threads),
        "lz4": Lz4,
        "Blosc2": ShuffledZstd,
        "lmzip": Lmzip,
    }  # fmt: skip
    peers = []
    path = arguments.output / f"cpu-peers-{arguments.machine}.json"
    for size in arguments.sizes:
        parts, data = take(test_tensors, size)
        # More than one thread only where there is enough for them.
        for threads in arguments.threads if size == max(arguments.sizes) else arguments.threads[:1]:
            for name, make in makers.items():
                if name in skipped or (name == "lz4" and threads > 1):
                    continue
                try:
                    codec = make(threads)
                except ImportError as error:
                    skipped[name] = f"not installed: {error.name}"
                    continue
                peers.append(measure(codec, parts, data, arguments.repeats, arguments.budget) | {"threads": threads})
                print(*peers[-1].values(), flush=True)
        # After each size, so that a run that is cut short is not lost.
        result = {
            "machine": arguments.description,
            "target": library.lib.splitzip_cpu_target_name(ctypes.c_size_t(0)).decode(),
            "data": f"`{pathlib.Path(arguments.test).name}`",
            "repeats": arguments.repeats,
            "date": datetime.date.today().isoformat(),
            "peers": peers,
            "skipped": list(skipped.items()),
        }
        path.write_text(json.dumps(result, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
