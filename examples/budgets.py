# SPDX-License-Identifier: Apache-2.0
"""Units of a KV cache at fixed places of the receiver: no size is told, and the rare unit that does not fit is sent raw."""

import numpy as np

import splitzip_kv
from splitzip_kv import Layout, OverBudget

UNITS, TOKENS, HEADS, DIM = 24, 64, 4, 64

rng = np.random.default_rng(1)
scale = 2.0 ** rng.integers(-3, 3, DIM)
cache = (rng.standard_normal((UNITS, TOKENS, HEADS, DIM)) * scale).astype(np.float32)
cache[5] *= 2.0 ** rng.integers(-20, 20, cache[5].shape)  # a unit of which no codebook knows anything
cache = (cache.view(np.uint32) >> 16).astype(np.uint16)  # as BF16

BF16 = splitzip_kv.ElementType.BF16


def layout_of(unit: np.ndarray) -> Layout:
    return Layout(unit, "token,head,dim", type=BF16)


calibration = splitzip_kv.Calibration()
for unit in cache[:4]:
    calibration.add("k", layout_of(unit))
codebook = calibration.finish().find("k")

# begin handshake
# Once, from sample frames: how much to keep free for each unit, as `splitzip calibrate --budget-tokens` does for files.
tensor = layout_of(cache[0]).tensor(codebook)
lengths = [len(splitzip_kv.encode([tensor], [layout_of(unit)])) for unit in cache[:4]]
budget = splitzip_kv.propose_budget(lengths, overflow_rate=1e-3)
budget = (budget + 31) // 32 * 32  # frames one after the other stay aligned

landing = bytearray(UNITS * budget)  # the receiver registers it, and tells its address and the budget
staging = bytearray(UNITS * budget)  # the sender's
descriptors = [slice(u * budget, (u + 1) * budget) for u in range(UNITS)]  # prepared once, for every transfer
# end handshake


def write(descriptor: slice) -> None:
    landing[descriptor] = staging[descriptor]  # an RDMA write: all of a budget, always from here to there


transfer = 7

# begin send
for u, unit in enumerate(cache):
    place = memoryview(staging)[descriptors[u]]
    try:
        splitzip_kv.encode([tensor], [layout_of(unit)], out=place, nonce=transfer << 32 | u, budget=True)
    except OverBudget:
        pass  # a mark says so to the receiver, in the unit's place
    write(descriptors[u])
# end send

# begin receive
received = np.zeros_like(cache)
raw = []
for u, unit in enumerate(received):
    place = memoryview(landing)[descriptors[u]]
    try:
        frame = splitzip_kv.Frame(place, expected_nonce=transfer << 32 | u, budget=True)
        frame.decode([tensor], [layout_of(unit)])
    except OverBudget:
        raw.append(u)  # to be asked for, and moved as it is
# end receive

assert raw == [5], raw
received[raw] = cache[raw]
assert (received == cache).all()
moved = UNITS * budget + len(raw) * cache[0].nbytes
print(
    f"{UNITS} units of {cache[0].nbytes} bytes in budgets of {budget}; {len(raw)} raw; ratio {cache.nbytes / moved:.3f}"
)
