#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DFloat11's decoder beside the CUDA codec, in one process.

    pip install --no-deps dfloat11==0.5.0 dahuffman==0.4.2              # and cupy for the CUDA that is there
    SPLITZIP_LIBRARY=build/cuda/src/libsplitzip.so bench/scripts/dfloat11_gpu.py \\
        --kv NAME=CALIBRATION.safetensors,TEST.safetensors [--kv ...] --json dfloat11.json
    bench/scripts/gpu_report.py import MACHINE raw.json dfloat11.json   # with what cuda_bench wrote

DFloat11 codes a model's weights once, in Python, and decodes them on a GPU. Here it gets a cache: one Huffman code, made of the very
values that are coded (all tensors of a call together), and one launch of its kernel a call, as it does for the weights of a layer.
Its encoder is timed on a piece of the cache; for more it is too slow, so that whole calls are encoded by a vectorised one, whose
bytes are compared with its own on that piece. The rest is said in gpu_calls.py. Needs a GPU, torch and cupy.
"""

import contextlib
import importlib.metadata
import importlib.util
import io
import math
import pathlib
import sys
import time

import torch

import gpu_calls

BYTES_PER_THREAD, THREADS_PER_BLOCK = 8, 512  # what the package launches its kernel with
CHUNK_BITS = 8 * BYTES_PER_THREAD
BLOCK_BITS = CHUNK_BITS * THREADS_PER_BLOCK
PIECE = 1 << 20  # values that its own encoder codes
WINDOW = 1 << 24  # values that are encoded at a time


def package():
    """Its folder and its module of encoding; the package itself wants a whole stack of model libraries when it is imported."""
    found = importlib.util.find_spec("dfloat11")
    if found is None:
        sys.exit("dfloat11_gpu: the package dfloat11 is not installed")
    folder = pathlib.Path(found.submodule_search_locations[0])
    spec = importlib.util.spec_from_file_location("dfloat11_utils", folder / "dfloat11_utils.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return folder, module


class Code:
    """The Huffman code of some values (int16), as the package makes it."""

    def __init__(self, utils, values):
        with contextlib.redirect_stdout(io.StringIO()):
            _, counts = utils.get_codec(values)
            self.codec, _, table = utils.get_32bit_codec(counts)
            self.luts = utils.get_luts(table)
        end = next(key for key in table if not isinstance(key, int))
        # One more symbol than exponents: what follows the last value in its byte.
        self.lengths, self.words = (torch.zeros(257, dtype=torch.int64) for _ in range(2))
        for key, (length, word) in table.items():
            self.lengths[256 if key is end else key], self.words[256 if key is end else key] = length, word


class Stream:
    """Values (int16, on any device) as the package's kernel takes them."""

    def __init__(self, code, values):
        device, count = values.device, len(values)
        lengths, words = code.lengths.to(device), code.words.to(device)
        self.signs = ((values >> 8) & 0x80 | (values & 0x7F)).to(torch.uint8)
        symbols = ((values >> 7) & 0xFF).to(torch.uint8)
        bits = int((torch.bincount(symbols, minlength=256) * lengths[:256]).sum())
        packed = torch.zeros(bits // 32 + 3, dtype=torch.int64, device=device)
        firsts, gaps, at = [], [], 0
        last_chunk = last_block = -1
        for begin in range(0, count + 1, WINDOW):
            part = symbols[begin : begin + WINDOW].long()
            if begin + WINDOW > count and bits % 8:
                part = torch.nn.functional.pad(part, (0, 1), value=256)
            if not len(part):
                break
            size = lengths[part]
            ends = at + size.cumsum(0)
            starts = ends - size
            # Two 32-bit words take what begins in the first one; a code has at most 32 bits.
            pair = words[part] << (64 - (starts & 31) - size)
            packed.index_add_(0, starts >> 5, (pair >> 32) & 0xFFFFFFFF)
            packed.index_add_(0, (starts >> 5) + 1, pair & 0xFFFFFFFF)
            for unit, last, found in ((CHUNK_BITS, last_chunk, gaps), (BLOCK_BITS, last_block, firsts)):
                number = starts // unit
                new = torch.diff(number, prepend=number.new_tensor([last])).nonzero()[:, 0]
                found.append(starts[new] - number[new] * unit if found is gaps else new + begin)
            last_chunk, last_block, at = int(starts[-1] // CHUNK_BITS), int(starts[-1] // BLOCK_BITS), int(ends[-1])
        self.bytes = -(-bits // 8)
        parts = torch.stack([packed >> shift & 0xFF for shift in (24, 16, 8, 0)], 1)
        self.encoded = parts.to(torch.uint8).flatten()[: self.bytes]
        self.positions = torch.cat([*firsts, torch.tensor([count], device=device)]).to(torch.int32)
        self.blocks = math.ceil(self.bytes / (BYTES_PER_THREAD * THREADS_PER_BLOCK))
        gap = torch.nn.functional.pad(torch.cat(gaps), (0, self.blocks * THREADS_PER_BLOCK - sum(map(len, gaps))))
        digits = torch.stack([gap >> shift & 1 for shift in (4, 3, 2, 1, 0)], 1).reshape(-1, 8)
        self.gaps = (digits << torch.arange(7, -1, -1, device=device)).sum(1).to(torch.uint8)

    def coded_bytes(self):
        return sum(part.nbytes for part in (self.encoded, self.signs, self.positions, self.gaps))


def own_encoder(utils, code, values):
    """Seconds that the package takes to encode values of the host; its bytes have to be ours."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        begin = time.perf_counter()
        encoded, signs, positions, gaps, _ = utils.encode_weights([values], code.codec, BYTES_PER_THREAD, THREADS_PER_BLOCK)
        seconds = time.perf_counter() - begin
    ours = Stream(code, values)
    for theirs, own in ((encoded, ours.encoded), (signs, ours.signs), (positions, ours.positions), (gaps, ours.gaps)):
        if not torch.equal(theirs.view(own.dtype), own):
            raise SystemExit("the package's encoder makes other bytes")
    return seconds


class Decoder:
    def __init__(self, folder, code):
        import cupy

        self.kernel = cupy.RawModule(path=str(folder / "decode.ptx")).get_function("decode")
        self.luts = code.luts.cuda()

    def __call__(self, stream, target):
        """On the default stream."""
        most = int(torch.diff(stream.positions).max())
        shared = 4 * THREADS_PER_BLOCK + 4 + 2 * most
        parts = (self.luts, stream.encoded, stream.signs, stream.positions, stream.gaps, target)
        arguments = [part.data_ptr() for part in parts] + [len(self.luts), stream.bytes, len(stream.signs)]
        return lambda: self.kernel((stream.blocks,), (THREADS_PER_BLOCK,), arguments, shared_mem=shared)


def run_dfloat11(folder, utils, name, workload, seconds):
    code = Code(utils, workload.memory.flatten())
    piece = workload.memory[0, :PIECE].cpu()
    own_us = 1e6 * own_encoder(utils, code, piece) * workload.bytes / piece.nbytes
    decoder = Decoder(folder, code)
    streams = [Stream(code, values) for values in workload.memory]
    targets = torch.zeros_like(workload.memory)
    calls = [decoder(stream, target) for stream, target in zip(streams, targets)]
    for call in calls:
        call()
    torch.cuda.synchronize()
    gpu_calls.same(targets, workload.memory)
    ratio = workload.bytes * workload.sets / sum(stream.coded_bytes() for stream in streams)
    encoding = {"us": [own_us] * 3, "repetitions": 1, "graph": False, "measured_bytes": piece.nbytes}
    decoding = gpu_calls.timed(lambda i: calls[i](), workload.sets, seconds)
    return workload.row(name, ratio=ratio, encode=encoding, decode=decoding)


def main(argv=None):
    parser = gpu_calls.options(__doc__, [512, 16])
    arguments = gpu_calls.parsed(parser, argv)
    folder, utils = package()
    if not torch.cuda.is_available():
        print("dfloat11_gpu: there is no CUDA device", file=sys.stderr)
        return 77
    name = f"DFloat11 {importlib.metadata.version('dfloat11')}"

    def rows_of(_, codebooks, workload, seconds):
        yield run_dfloat11(folder, utils, name, workload, seconds)
        yield gpu_calls.run_splitzip("tiered", True, codebooks, workload, seconds)

    gpu_calls.run(arguments, "dfloat11", {}, rows_of)
    return 0


if __name__ == "__main__":
    sys.exit(main())
