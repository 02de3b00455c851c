# SPDX-License-Identifier: Apache-2.0
"""Moves blocks of a paged cache of torch in frames of one length: no size is told, and what does not fit is moved as it
is. On a GPU if there is one that splitzip_kv can use."""

import torch

from splitzip_kv import Calibration, ElementType, Layout, OverBudget, cuda, propose_budget
from splitzip_kv.torch import Entry, Table

PAGES, PAGE_TOKENS, HEADS, DIM = 128, 16, 2, 64
BLOCK, BLOCKS = 64, 24  # tokens of a block, and how many are moved

device = "cuda" if torch.cuda.is_available() and cuda.is_available() else "cpu"
generator = torch.Generator().manual_seed(1)
scale = 2.0 ** (torch.arange(HEADS * DIM) % 7).view(HEADS, DIM)
cache = (torch.randn((2, PAGES, PAGE_TOKENS, HEADS, DIM), generator=generator) * scale).bfloat16()
cache[:, 17] = torch.randint(-(2**15), 2**15, cache[:, 17].shape, generator=generator).short().view(torch.bfloat16)
calibration = Calibration()
for name, values in zip("kv", cache, strict=True):
    calibration.add(name, Layout(values[:16].reshape(-1, HEADS, DIM), "token,head,dim", type=ElementType.BF16))
books = calibration.finish()
cache = cache.to(device)
landed_cache = torch.zeros_like(cache)


def table_of(cache):
    entries = [Entry(cache[kv], "page,token,head,dim", books.find(name), tensor_key=kv) for kv, name in enumerate("kv")]
    return Table([cache], entries, max_tokens=BLOCK, tokens_per_unit=16)


table, landed_table = table_of(cache), table_of(landed_cache)
pages = torch.arange(PAGES, dtype=torch.int32, device=device).view(-1, BLOCK // PAGE_TOKENS)
token_counts = torch.full((BLOCKS,), BLOCK, dtype=torch.int32, device=device)

# begin budget
sample = table.buffers(4)  # once: frames as long as they are, of blocks like those that will be moved
table.encode(pages[-4:], token_counts[:4], sample)
budget = propose_budget(sample.frame_bytes.tolist(), overflow_rate=1e-3)
budget = (budget + 31) // 32 * 32
buffers = table.buffers(BLOCKS, frame_bytes=budget)  # once, too, as the descriptors that move its rows
landing = torch.empty_like(buffers.frames)
# end budget

nonces = torch.arange(BLOCKS, device=device) + (1 << 32)  # another one for each transfer
# begin move
table.encode(pages[:BLOCKS], token_counts, buffers, nonces=nonces, budgets=True)
landing.copy_(buffers.frames)  # on the same stream: nobody has seen a result yet
# end move

# begin receive
received = landed_table.buffers(BLOCKS, frame_bytes=16)  # only its results are used
landed_table.decode(pages[:BLOCKS], token_counts, landing, None, received, nonces=nonces)
raw = (received.statuses == OverBudget.status).nonzero()[:, 0].tolist()  # to be asked for, and moved as they are
# end receive
for block in raw:
    numbers = pages[block].long()
    landed_cache[:, numbers] = cache[:, numbers]

moved = pages[:BLOCKS].flatten().long()
assert received.failed.item() == len(raw) == 1
assert torch.equal(landed_cache[:, moved].view(torch.int16), cache[:, moved].view(torch.int16))
raw_bytes = cache[:, moved].nbytes
ratio = raw_bytes / (BLOCKS * budget + len(raw) * raw_bytes // BLOCKS)
print(f"{BLOCKS} blocks in {budget} bytes each, {len(raw)} of them raw: ratio {ratio:.3f}, on {device}")
