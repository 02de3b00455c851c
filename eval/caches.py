# SPDX-License-Identifier: Apache-2.0
"""KV caches in safetensors files, and the casts of them."""

import dataclasses
import json
import pathlib
import sys

import ml_dtypes
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "bench" / "scripts"))
import kv_files

TYPES = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp16": np.dtype(np.float16),
    "fp8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "fp8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
# Where the exponent lies: (lowest bit, bits).
EXPONENT = {"bf16": (7, 8), "fp16": (10, 5), "fp8_e4m3": (3, 4), "fp8_e5m2": (2, 5)}


@dataclasses.dataclass
class Cache:
    """One prefill. `tensors`: [tokens, heads, dim] of BF16 by name; `path`: the file with them, for the command."""

    text: str
    file: str
    path: pathlib.Path
    tensors: dict

    @property
    def tokens(self):
        return min(values.shape[0] for values in self.tensors.values())

    @property
    def raw_bytes(self):
        return sum(values.nbytes for values in self.tensors.values())


@dataclasses.dataclass
class Model:
    """Caches of one model: the first calibrates, the second is measured, all of them show drift."""

    name: str
    caches: list
    halved: bool

    @property
    def calibration(self):
        return self.caches[0]

    @property
    def test(self):
        return self.caches[1]


def read(path):
    """All tensors of a safetensors file, token-major."""
    tensors = {name: bits.view(TYPES["bf16"]) for name, bits in kv_files.load(path).items()}
    if not tensors:
        sys.exit(f"{path}: there is no tensor")
    return tensors


def write(path, tensors):
    header, parts, at = {}, [], 0
    for name, values in tensors.items():
        parts.append(np.ascontiguousarray(values.transpose(1, 0, 2)).tobytes())
        shape = [values.shape[1], values.shape[0], values.shape[2]]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(parts[-1])]}
        at += len(parts[-1])
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def load_model(name, paths, folder):
    """A single file is halved, since nothing may be measured on what it was calibrated with."""
    caches = []
    for path in map(pathlib.Path, paths):
        text = path.stem.removeprefix(name).lstrip("-_") or path.stem
        caches.append(Cache(text, path.name, path, read(path)))
    names = set(caches[0].tensors)
    for cache in caches[1:]:
        if set(cache.tensors) != names:
            sys.exit(f"{cache.path}: other tensors than in {caches[0].path}")
    if len(caches) > 1:
        return Model(name, caches, False)
    whole, half = caches[0], caches[0].tokens // 2
    if half == 0:
        sys.exit(f"{whole.path}: two tokens are needed at least")
    halves = []
    for text, part in (("first half", slice(0, half)), ("second half", slice(half, None))):
        tensors = {key: np.ascontiguousarray(values[part]) for key, values in whole.tensors.items()}
        path = folder / f"{name}-{text.replace(' ', '-')}.safetensors"
        write(path, tensors)
        halves.append(Cache(text, f"{whole.file}, {text}", path, tensors))
    return Model(name, halves, True)


def cast(tensors, kind):
    """Casting to FP8 may overflow; the bits that come out are as good as any for a ratio."""
    if kind == "bf16":
        return tensors
    with np.errstate(over="ignore", invalid="ignore"):
        return {name: values.astype(np.float32).astype(TYPES[kind]) for name, values in tensors.items()}


def exponents(values, kind="bf16"):
    """Exponent of each value, one byte, in the shape of the values."""
    low, bits = EXPONENT[kind]
    words = values.view(np.uint16 if values.itemsize == 2 else np.uint8)
    return ((words >> low) & ((1 << bits) - 1)).astype(np.uint8)
