# SPDX-License-Identifier: Apache-2.0
"""Moves a request from pages on a GPU to other pages there, without another framework. Needs a GPU and numpy."""

import numpy as np

from splitzip_kv import Calibration, ElementType, Frame, Layout, cuda, frame_sizes


def random_pool(seed: int) -> np.ndarray:
    """[page, token, head, dim] of BF16 values, which numpy knows as integers only."""
    scale = 2.0 ** (np.arange(2 * 64).reshape(2, 64) % 7)
    values = (np.random.default_rng(seed).standard_normal((64, 16, 2, 64)) * scale).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def on_gpu(pool: np.ndarray) -> cuda.Array:
    """Any framework's array will do in its place."""
    memory = cuda.Memory(pool.nbytes)
    cuda.copy(memory, pool)
    return cuda.Array(memory, 0, pool.shape, "<u2")


sample = on_gpu(random_pool(seed=2))
values = random_pool(seed=1)
pool, other_pool = on_gpu(values), on_gpu(np.zeros_like(values))

# begin coder
coder = cuda.Coder()
calibration = Calibration()
learned = Layout(sample, "page,token,head,dim", pages=range(64), type=ElementType.BF16)
calibration.add("k", coder.on_host(learned))
books = calibration.finish()

layout = Layout(pool, "page,token,head,dim", pages=[40, 7, 23, 8], type=ElementType.BF16)
tensor = layout.tensor(books.find("k"), tokens=57, tokens_per_unit=16)
frame = coder.encode([tensor], [layout], out=cuda.pinned(frame_sizes([tensor]).bound_bytes), nonce=7)

other = Layout(other_pool, "page,token,head,dim", pages=[0, 1, 2, 3], type=ElementType.BF16)
coder.decode(Frame(frame, expected_nonce=7), [tensor], [other])
# end coder

arrived = np.empty_like(values)
cuda.copy(arrived, other_pool)
assert np.array_equal(arrived[:3], values[[40, 7, 23]]) and np.array_equal(arrived[3, :9], values[8, :9])
print(f"{57 * 256} bytes, ratio {57 * 256 / len(frame):.3f}")
