#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""splitzip beside other lossless codecs on one real KV cache in BF16, one thread, in one run.

    bench/scripts/cpu_peers.py CALIBRATE.safetensors TEST.safetensors MACHINE "what the machine is"

Writes bench/results/cpu-peers-MACHINE.json; cpu_report.py renders it. Tensors are [heads, tokens, dim]; all codecs get the same bytes,
token-major, tensor after tensor, and give them back; splitzip has its codebooks from the first file. The test file's bytes are repeated up to
--mib; none of these codecs looks back as far as one repetition. Peers that are not installed are left out and named.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import tempfile
import time

import numpy as np

RESULTS = pathlib.Path(__file__).parent.parent / "results"


def load(path):
    """{name: [tokens, channels] of 16-bit values}."""
    data = pathlib.Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16" or len(entry["shape"]) != 3:
            raise SystemExit(f"{path}: {name} is not BF16 [heads, tokens, dim]")
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + size + begin : 8 + size + end], np.uint16).reshape(entry["shape"])
        tensors[name] = np.ascontiguousarray(values.transpose(1, 0, 2)).reshape(values.shape[1], -1)
    return tensors


class Splitzip:
    """One frame, all tensors of all repetitions; memory is allocated beforehand, as the interface is meant to be used."""

    version = importlib.metadata.version("splitzip-kv")

    def __init__(self, mode, calibration_tensors, test_tensors, repetitions):
        import ml_dtypes
        import splitzip_kv

        self.sz = splitzip_kv
        self.name = f"splitzip {mode}"
        calibration = splitzip_kv.Calibration()
        for name, values in calibration_tensors.items():
            calibration.add(name, splitzip_kv.Layout(values.view(ml_dtypes.bfloat16), "token,channel"))
        self.codebooks = calibration.finish()
        self.shapes = [(name, values.shape) for _ in range(repetitions) for name, values in test_tensors.items()]
        self.mode = getattr(splitzip_kv.Mode, mode.upper())
        self.dtype = ml_dtypes.bfloat16
        self.room = None

    def _describe(self, data):
        layouts, at = [], 0
        for _, shape in self.shapes:
            size = 2 * shape[0] * shape[1]
            layouts.append(self.sz.Layout(data[at : at + size].view(self.dtype).reshape(shape), "token,channel"))
            at += size
        return layouts

    def prepare(self, data):
        self.layouts = self._describe(data)
        self.tensors = [layout.tensor(self.codebooks.find(name), mode=self.mode) for layout, (name, _) in zip(self.layouts, self.shapes)]
        self.room = np.zeros(self.sz.frame_sizes(self.tensors).bound_bytes, np.uint8)
        self.output = np.zeros_like(data)
        self.destinations = self._describe(self.output)

    def compress(self, data):
        return self.sz.encode(self.tensors, self.layouts, out=self.room)

    def decompress(self, frame):
        self.sz.Frame(frame).decode(self.tensors, self.destinations)
        return self.output


class ZipNN:
    name = "ZipNN"

    def __init__(self):
        import zipnn

        self.version = importlib.metadata.version("zipnn")
        self.codec = zipnn.ZipNN(input_format="byte", bytearray_dtype="bfloat16", threads=1)

    def prepare(self, data):
        self.fresh = lambda: bytearray(data)  # it overwrites what it is given

    def compress(self, data):
        return self.codec.compress(data)

    def decompress(self, packed):
        return self.codec.decompress(packed)


class Zstd:
    def __init__(self, level):
        import zstandard

        self.name, self.version = f"zstd -{level}", ".".join(str(n) for n in zstandard.ZSTD_VERSION)
        self.compressor = zstandard.ZstdCompressor(level=level)
        self.decompressor = zstandard.ZstdDecompressor()

    def compress(self, data):
        return self.compressor.compress(data)

    def decompress(self, packed):
        return self.decompressor.decompress(packed)


class Lz4:
    name = "lz4"

    def __init__(self):
        import lz4.block

        self.version = lz4.library_version_string()
        self.block = lz4.block

    def compress(self, data):
        return self.block.compress(data)

    def decompress(self, packed):
        return self.block.decompress(packed)


class ShuffledZstd:
    name = "byte shuffle + zstd -1 (Blosc2)"

    def __init__(self):
        import blosc2

        self.version = blosc2.__version__
        self.blosc2 = blosc2
        self.parameters = {
            "codec": blosc2.Codec.ZSTD, "clevel": 1, "filters": [blosc2.Filter.SHUFFLE], "filters_meta": [0],
            "typesize": 2, "nthreads": 1,
        }  # fmt: skip

    def compress(self, data):
        return self.blosc2.compress2(data, **self.parameters)

    def decompress(self, packed):
        return self.blosc2.decompress2(packed, nthreads=1)


class Lmzip:
    """Works on files, so on files in memory: their reading and writing is in the time."""

    name = "lmzip (files in memory)"

    def __init__(self):
        import lmz

        self.lmz, self.version = lmz, lmz.__version__

    def prepare(self, data):
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm")
        folder = pathlib.Path(self.folder.name)
        self.source, self.packed, self.restored = (str(folder / name) for name in ("a.safetensors", "a.lmz", "b.safetensors"))
        header = json.dumps({"kv": {"dtype": "BF16", "shape": [data.size // 2], "data_offsets": [0, data.size]}}).encode()
        self.prefix = len(header).to_bytes(8, "little") + header
        pathlib.Path(self.source).write_bytes(self.prefix + data.tobytes())

    def compress(self, data):
        self.lmz.compress(self.source, self.packed, workers=1, dedup=False, delta=False)
        return range(os.path.getsize(self.packed) - len(self.prefix))

    def decompress(self, packed):
        self.lmz.decompress(self.packed, self.restored, workers=1, overwrite=True)

    def result(self, output):
        return np.fromfile(self.restored, np.uint8)[len(self.prefix) :]


def seconds(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def measure(codec, data, repeats):
    if hasattr(codec, "prepare"):
        codec.prepare(data)
    compress, decompress = [], []
    for _ in range(repeats):
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
        "ratio": data.size / len(packed),
        "compress": data.size / min(compress) / 1e9,
        "decompress": data.size / min(decompress) / 1e9,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calibrate")
    parser.add_argument("test")
    parser.add_argument("machine")
    parser.add_argument("description")
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()

    calibration_tensors, test_tensors = load(arguments.calibrate), load(arguments.test)
    once = np.concatenate([values.reshape(-1).view(np.uint8) for values in test_tensors.values()])
    repetitions = max(1, -(-(arguments.mib << 20) // once.size))
    data = np.tile(once, repetitions)

    skipped = [("dfloat11", "compresses in Python and decompresses on the GPU only")]
    makers = {"ZipNN": ZipNN, "zstd -1": lambda: Zstd(1), "zstd -3": lambda: Zstd(3), "lz4": Lz4, "Blosc2": ShuffledZstd, "lmzip": Lmzip}
    codecs = [Splitzip(mode, calibration_tensors, test_tensors, repetitions) for mode in ("tiered", "fixed4")]
    for name, make in makers.items():
        try:
            codecs.append(make())
        except ImportError as error:
            skipped.append((name, f"not installed: {error.name}"))

    target = np.zeros_like(data)
    copy = min(seconds(lambda: np.copyto(target, data))[0] for _ in range(arguments.repeats))
    peers = []
    for codec in codecs:
        peers.append(measure(codec, data, arguments.repeats))
        print("{name:34} {ratio:.3f} {compress:7.3f} {decompress:7.3f}".format(**peers[-1]), flush=True)
    result = {
        "machine": arguments.description,
        "data": f"`{pathlib.Path(arguments.test).name}`",
        "mib": data.size >> 20,
        "repeats": arguments.repeats,
        "date": datetime.date.today().isoformat(),
        "memcpy": data.size / copy / 1e9,
        "peers": peers,
        "skipped": skipped,
    }
    path = RESULTS / f"cpu-peers-{arguments.machine}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
