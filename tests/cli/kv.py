# SPDX-License-Identifier: Apache-2.0
"""Safetensors files and data that look like a key-value cache, made without any library for them."""

import json
import struct

import ml_dtypes
import numpy as np

NUMPY_TYPES = {
    "BF16": ml_dtypes.bfloat16,
    "F16": np.float16,
    "F32": np.float32,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "I8": np.int8,
    "U8": np.uint8,
}


def values(shape, dtype="BF16", seed=0):
    """Normal values whose scale depends on the channel and on the head, as bytes."""
    rng = np.random.default_rng(seed)
    scale = 2.0 ** np.random.default_rng(1).integers(-3, 3, shape[-1:] or (1,))
    data = rng.standard_normal(shape) * (scale if shape else 1.0)
    if dtype in ("I8", "U8"):
        data = np.clip(data * 8 + (0 if dtype == "I8" else 128), 0 if dtype == "U8" else -128, 127)
    return np.asarray(data).astype(NUMPY_TYPES[dtype]).tobytes()


def header_text(tensors, metadata=None, **dump_options):
    """JSON of [(name, dtype, shape, data)], whose data follow each other in this order."""
    entries, offset = {}, 0
    if metadata is not None:
        entries["__metadata__"] = metadata
    for name, dtype, shape, data in tensors:
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    return json.dumps(entries, **dump_options)


def file_of(header, data=b""):
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text)) + text + data


def safetensors(tensors, metadata=None, **dump_options):
    return file_of(header_text(tensors, metadata, **dump_options), b"".join(data for *_, data in tensors))


def cache(layers=2, heads=3, tokens=40, dim=32, dtype="BF16", seed=0):
    return [
        (f"layers.{layer}.{part}", dtype, (heads, tokens, dim), values((heads, tokens, dim), dtype, seed + 2 * layer + index))
        for layer in range(layers)
        for index, part in enumerate("kv")
    ]
