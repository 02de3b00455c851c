# SPDX-License-Identifier: Apache-2.0
"""Moves K and V of a request from the paged pool of one worker to other pages of another pool. Needs numpy alone."""

import numpy as np

from splitzip_kv import Calibration, CodebookSet, ElementType, Frame, Layout, Workers, encode, frame_sizes


def random_pool(pages: int, page_tokens: int, seed: int) -> np.ndarray:
    """A pool [K or V, page, token, head, dim] of BF16 values, which numpy knows as integers only."""
    shape = (2, pages, page_tokens, 2, 64)
    scale = 2.0 ** (np.arange(2 * 64).reshape(2, 64) % 7)
    values = (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def make_books(pool: np.ndarray) -> CodebookSet:
    calibration = Calibration()
    for kv, name in enumerate(("k", "v")):
        every_page = Layout(pool[kv], "page,token,head,dim", pages=range(pool.shape[1]), type=ElementType.BF16)
        calibration.add(name, every_page)
    return calibration.finish()


pool = random_pool(pages=64, page_tokens=16, seed=1)
books = make_books(random_pool(pages=64, page_tokens=16, seed=2))
pages = [40, 7, 23, 8]
tokens = 57
workers = Workers()

# begin send
sources = [Layout(pool[kv], "page,token,head,dim", pages=pages, type=ElementType.BF16) for kv in (0, 1)]
tensors = [
    source.tensor(books.find(name), tokens=tokens, tokens_per_unit=16, tensor_key=key)
    for key, (name, source) in enumerate(zip(("k", "v"), sources))
]
wire = bytearray(frame_sizes(tensors).bound_bytes)  # memory that your transfer engine knows
frame = encode(tensors, sources, out=wire, nonce=7, workers=workers)
# end send

other_pool = np.zeros((2, 500, 1, 2, 64), np.uint16)  # pages of one token
other_pages = np.random.default_rng(3).permutation(500)[:tokens]

# begin receive
targets = [Layout(other_pool[kv], "page,token,head,dim", pages=other_pages, type=ElementType.BF16) for kv in (0, 1)]
received = Frame(frame, expected_nonce=7)  # checks header and directory
received.decode(tensors, targets, workers=workers)  # checks every chunk before it stores it
# end receive

# begin unit
row = np.empty((16, 64), np.uint16)
head = 1
block = 2
received.decode_unit(0, tensors[0], block * 2 + head, Layout(row, "token,dim", type=ElementType.BF16))
# end unit

for kv in (0, 1):
    expected = pool[kv][pages].reshape(-1, 2, 64)[:tokens]
    assert np.array_equal(other_pool[kv][other_pages, 0], expected)
assert np.array_equal(row, pool[0][pages[block], :, head])
raw = frame_sizes(tensors).raw_bytes
print(f"{raw} bytes of K and V in a frame of {len(frame)}, ratio {raw / len(frame):.3f}")
