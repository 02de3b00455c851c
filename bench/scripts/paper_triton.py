#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The code that the paper's authors published, in PyTorch and Triton, beside the CUDA codec, in one process.

    git clone https://github.com/Intelligent-Microsystems-Lab/SplitZip
    SPLITZIP_LIBRARY=build/cuda/src/libsplitzip.so bench/scripts/paper_triton.py SplitZip \\
        --kv NAME=CALIBRATION.safetensors,TEST.safetensors [--kv ...] --json paper.json
    bench/scripts/gpu_report.py import MACHINE raw.json paper.json      # with what cuda_bench wrote

The paper's code is calibrated as its authors do, once for all tensors. How both are measured is said in gpu_calls.py. Needs a GPU,
torch and triton.
"""

import hashlib
import importlib
import pathlib
import sys

import numpy as np
import torch
import triton

import gpu_calls

PAPER = "paper's Triton code"


def run_paper(codec, workload, seconds):
    sources = list(workload.memory.view(torch.bfloat16))
    encoded, decoded = [codec.encode(source) for source in sources], [None] * workload.sets
    for i, source in enumerate(sources):
        gpu_calls.same(codec.decode(encoded[i]), source)
    ratio = workload.bytes * workload.sets / sum(each.compressed_bytes for each in encoded)

    def decode(i):
        decoded[i] = codec.decode(encoded[i])

    def encode(i):
        encoded[i] = codec.encode(sources[i])

    decoding = gpu_calls.timed(decode, workload.sets, seconds)
    decoded.clear()
    return workload.row(PAPER, ratio=ratio, encode=gpu_calls.timed(encode, workload.sets, seconds), decode=decoding)


def main(argv=None):
    parser = gpu_calls.options(__doc__, [512, 64, 16, 1])
    parser.add_argument("clone", type=pathlib.Path, help="folder that has the authors' codec_gpu.py")
    arguments = gpu_calls.parsed(parser, argv)
    source = arguments.clone / "codec_gpu.py"
    if not source.is_file():
        parser.error(f"{arguments.clone} has no codec_gpu.py")
    if not torch.cuda.is_available():
        print("paper_triton: there is no CUDA device", file=sys.stderr)
        return 77
    sys.path.insert(0, str(arguments.clone))
    authors = importlib.import_module("codec_gpu")

    def rows_of(calibration, codebooks, workload, seconds):
        paper = authors.ChunkLocalSplitZipGPU(device="cuda")
        sample = np.concatenate([values.reshape(-1) for values in calibration.values()]).view(np.int16)
        paper.calibrate(torch.from_numpy(sample).cuda().view(torch.bfloat16))
        yield run_paper(paper, workload, seconds)
        for mode in gpu_calls.MODES:
            for checksums in (False, True):
                yield gpu_calls.run_splitzip(mode, checksums, codebooks, workload, seconds)

    facts = {"triton": triton.__version__, "paper_code_sha256": hashlib.sha256(source.read_bytes()).hexdigest()}
    gpu_calls.run(arguments, "paper", facts, rows_of)
    return 0


if __name__ == "__main__":
    sys.exit(main())
