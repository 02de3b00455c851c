# SPDX-License-Identifier: Apache-2.0
"""What both processes of test_nixl.py know: tensors by the number of the request."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python" / "tests"))

from device_cases import DeviceTensor
from transfer_cases import Tensor, some_tensors
from transfer_cases import make_codebooks as codebooks

LONG = 1000  # the number of a request that takes a while

__all__ = ["LONG", "codebooks", "request_of"]


def request_of(number: int, device: int | None = None) -> list[Tensor]:
    """Its pools are in host memory, or in that of a GPU."""
    rng = np.random.default_rng(number)
    tensors = [Tensor(rng, key, 4000) for key in range(8)] if number == LONG else some_tensors(rng, most_tokens=3000)
    for tensor in tensors:
        DeviceTensor.of(tensor, device or 0, *((tensor.source, tensor.target) if device is not None else ()))
    return tensors
