# SPDX-License-Identifier: Apache-2.0
"""Makes a codebook of sample data, compresses a key cache with it and compares. Needs numpy and ml_dtypes."""

import pathlib
import tempfile

import ml_dtypes
import numpy as np


def keys(seed: int) -> np.ndarray:
    """BF16 values as in a key cache, as [head, token, dim]: bell-shaped, each channel with a scale of its own."""
    scale = 2.0 ** (np.arange(4 * 64).reshape(4, 1, 64) % 7)
    return (np.random.default_rng(seed).standard_normal((4, 512, 64)) * scale).astype(ml_dtypes.bfloat16)


samples, cache = keys(1), keys(2)
path = pathlib.Path(tempfile.mkdtemp(), "kv.szcb")

# begin calibrate
from splitzip_kv import Calibration, Layout

calibration = Calibration()
calibration.add("layers.0.k", Layout(samples, "head,token,dim"))  # any number of names, any number of samples
books = calibration.finish("where the samples came from")
books.save(path)  # and later: CodebookSet.load(path)
# end calibrate

# begin compress
from splitzip_kv import compress, decompress

data = compress(cache, "head,token,dim", books.find("layers.0.k"))
back = decompress(data, "head,token,dim", books)
# end compress

assert np.array_equal(back.view(np.uint16), cache.view(np.uint16))
print(f"{cache.nbytes} bytes, compressed {len(data)}, ratio {cache.nbytes / len(data):.3f}")
