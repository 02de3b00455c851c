# SPDX-License-Identifier: Apache-2.0
"""One array in, one frame out, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._core import Codebook, ElementType, Mode
from ._errors import GeometryMismatch
from ._frame import FindsCodebooks, Frame, encode
from ._layout import Layout, split_axes


def compress(array: Any, axes: str, codebook: Codebook | None = None, *, mode: Mode | None = None) -> bytes:
    """One array as a frame; without a codebook, in mode RAW."""
    layout = Layout(array, axes)
    return bytes(encode([layout.tensor(codebook, mode=mode)], [layout]))


def decompress(data: Any, axes: str, codebooks: FindsCodebooks | None = None) -> np.ndarray:
    """A new array from a frame of one tensor. BF16 and FP8 need the package ml_dtypes.

    `axes` are those of the result, which need not be those of the array that was compressed; without "head", the heads
    of a token are one row of "dim".
    """
    frame = Frame(data)
    tensors = frame.tensors(codebooks)
    if len(tensors) != 1:
        raise GeometryMismatch(f"the frame holds {len(tensors)} tensors: use Frame.decode")
    [tensor] = tensors
    names = split_axes(axes)
    heads = {"head": tensor.ranges} if "head" in names else {}
    row = tensor.channels if heads else tensor.ranges * tensor.channels
    lengths = {"token": tensor.tokens, "dim": row, "channel": row, **heads}
    array = np.empty([lengths.get(name, 1) for name in names], _numpy_type(tensor.type))
    frame.decode(tensors, [Layout(array, axes)])
    return array


def _numpy_type(type: ElementType) -> np.dtype[Any]:
    own = {ElementType.FP16: "float16", ElementType.FP32: "float32", ElementType.BYTES: "uint8"}
    if type in own:
        return np.dtype(own[type])
    import ml_dtypes

    names = {ElementType.BF16: "bfloat16", ElementType.FP8_E4M3: "float8_e4m3fn", ElementType.FP8_E5M2: "float8_e5m2"}
    made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, names[type]))
    return made
