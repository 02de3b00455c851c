# SPDX-License-Identifier: Apache-2.0
"""Sample data and codebooks of every element type."""

import ml_dtypes
import numpy as np
import pytest

import splitzip_kv
from splitzip_kv import Calibration, CodebookSet, ElementType, Layout

NUMPY_TYPES = {
    ElementType.BF16: ml_dtypes.bfloat16,
    ElementType.FP16: np.float16,
    ElementType.FP32: np.float32,
    ElementType.FP8_E4M3: ml_dtypes.float8_e4m3fn,
    ElementType.FP8_E5M2: ml_dtypes.float8_e5m2,
    ElementType.BYTES: np.uint8,
}


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.array_equal(bits(a), bits(b))


def values(shape: tuple[int, ...], type: ElementType = ElementType.BF16, seed: int = 0) -> np.ndarray:
    """Values whose scale depends on their last axis, with some of any bit pattern among them."""
    random = np.random.default_rng(seed)
    numbers = random.standard_normal(shape) * 4.0 ** random.integers(-3, 3, shape[-1:])
    if type == ElementType.BYTES:
        return np.clip(numbers * 16 + 128, 0, 255).astype(np.uint8)
    with np.errstate(all="ignore"):
        array = numbers.astype(NUMPY_TYPES[type])
    wild = random.random(shape) < 0.002
    integers = bits(array)
    integers[wild] = random.integers(0, 256**array.dtype.itemsize, int(wild.sum()), np.uint64).astype(integers.dtype)
    return integers.view(array.dtype)


@pytest.fixture(scope="session")
def books() -> CodebookSet:
    """A codebook named after each type, with one base for all channels, and "channels" for 64 channels of BF16."""
    calibration = Calibration()
    for type in NUMPY_TYPES:
        calibration.add(type.name, Layout(values((50, 64), type), "token,dim"), base_count=1)
    calibration.add("channels", Layout(values((50, 64)), "token,dim"))
    return calibration.finish("test data")


def round_trip(layout, target_layout, tensor, **options):
    frame = splitzip_kv.encode([tensor], [layout], **options)
    splitzip_kv.Frame(frame).decode([tensor], [target_layout])
    return frame
