# SPDX-License-Identifier: Apache-2.0
"""Puts a cache into a store of values and gets it into other pages, before and after the codebooks were rotated. With
an argument, the address of a Mooncake Store's master, the store is that one. Needs numpy and ml_dtypes."""

import sys

import ml_dtypes
import numpy as np

from splitzip_kv import Calibration, CodebookSet, Layout
from splitzip_kv.store import CacheStore, DictValues
from splitzip_kv.store.mooncake import MooncakeValues
from splitzip_kv.transfer import Part

LAYERS, TOKENS = 4, 45
PAGES, OTHER_PAGES = [17, 3, 20], [4, 15, 22]
NAMES = [f"layers.{layer}.k" for layer in range(LAYERS)]


def pools(seed: int) -> np.ndarray:
    """BF16 keys, [layer, page, token, head, dim]."""
    scale = 2.0 ** (np.arange(2 * 64).reshape(2, 64) % 7)
    values = np.random.default_rng(seed).standard_normal((LAYERS, 24, 16, 2, 64)) * scale
    return values.astype(ml_dtypes.bfloat16)


def calibrated(samples: np.ndarray) -> CodebookSet:
    calibration = Calibration()
    for name, sample in zip(NAMES, samples, strict=True):
        calibration.add(name, Layout(sample, "page,token,head,dim", pages=range(24)))
    return calibration.finish()


def parts(pool: np.ndarray, pages: list[int], codebooks: CodebookSet | None = None) -> list[Part]:
    return [
        Part(
            pool[layer],
            "page,token,head,dim",
            key=layer,
            pages=pages,
            tokens=TOKENS,
            codebook=codebooks and codebooks.find(name),
        )
        for layer, name in enumerate(NAMES)
    ]


codebooks, newer_codebooks = calibrated(pools(1)), calibrated(pools(4) * 16)
pool, other_pool = pools(2), np.zeros_like(pools(3))
values = MooncakeValues(sys.argv[1], segment_bytes=32 << 20, buffer_bytes=32 << 20) if sys.argv[1:] else DictValues()

# begin put
writer = CacheStore(values, codebooks, prefix="smollm2-135m/")
stored_bytes = writer.put("the prompt's first 45 tokens", parts(pool, PAGES, codebooks))
# end put

# begin get
reader = CacheStore(values, prefix="smollm2-135m/")  # usually in another process
found = reader.get("the prompt's first 45 tokens", parts(other_pool, OTHER_PAGES))
# end get


def bits(pool: np.ndarray, pages: list[int]) -> np.ndarray:
    return pool[:, pages].reshape(LAYERS, 48, 2, 64)[:, :TOKENS].view(np.uint16)


assert found and np.array_equal(bits(pool, PAGES), bits(other_pool, OTHER_PAGES))

# begin rotate
writer.rotate(newer_codebooks)
writer.put("another prompt", parts(pool, PAGES, newer_codebooks))
# end rotate
for key in ("the prompt's first 45 tokens", "another prompt"):
    other_pool[:] = 0
    assert reader.get(key, parts(other_pool, OTHER_PAGES))
    assert np.array_equal(bits(pool, PAGES), bits(other_pool, OTHER_PAGES))

raw_bytes = bits(pool, PAGES).nbytes
print(f"{raw_bytes} bytes were stored as {stored_bytes} and are the same, ratio {raw_bytes / stored_bytes:.3f}")
values.close()
