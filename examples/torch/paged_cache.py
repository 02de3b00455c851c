# SPDX-License-Identifier: Apache-2.0
"""Moves the caches of two requests from one paged cache of torch to another, on a GPU if there is one that splitzip_kv
can use."""

import torch

from splitzip_kv import Calibration, CodebookSet, ElementType, Layout, cuda
from splitzip_kv.torch import Entry, Table

LAYERS, PAGES, PAGE_TOKENS, HEADS, DIM = 4, 64, 16, 2, 64


def random_caches(seed: int) -> list[torch.Tensor]:
    """For each layer [K or V, page, token, head, dim]."""
    generator = torch.Generator().manual_seed(seed)
    scale = 2.0 ** (torch.arange(HEADS * DIM) % 7).view(HEADS, DIM)
    shape = (2, PAGES, PAGE_TOKENS, HEADS, DIM)
    return [(torch.randn(shape, generator=generator) * scale).bfloat16() for _ in range(LAYERS)]


def make_books(caches: list[torch.Tensor]) -> CodebookSet:
    calibration = Calibration()
    for layer, cache in enumerate(caches):
        for name, values in zip("kv", cache, strict=True):
            sample = Layout(values.reshape(-1, HEADS, DIM), "token,head,dim", type=ElementType.BF16)
            calibration.add(f"layers.{layer}.{name}", sample)
    return calibration.finish()


device = "cuda" if torch.cuda.is_available() and cuda.is_available() else "cpu"
books = make_books(random_caches(seed=2))
caches = [cache.to(device) for cache in random_caches(seed=1)]
other_caches = [torch.zeros_like(cache) for cache in caches]


# begin table
def table_of(caches):
    entries = [
        Entry(cache[kv], "page,token,head,dim", books.find(f"layers.{layer}.{name}"), tensor_key=2 * layer + kv)
        for layer, cache in enumerate(caches)
        for kv, name in enumerate("kv")
    ]
    return Table(caches, entries, max_tokens=4096)


# end table
page_table = torch.tensor([[40, 7, 23, 8], [3, 51, 0, 0]], dtype=torch.int32, device=device)
other_pages = torch.tensor([[1, 2, 3, 4], [60, 50, 0, 0]], dtype=torch.int32, device=device)
token_counts = torch.tensor([57, 32], dtype=torch.int32, device=device)
nonces = torch.tensor([7, 8], device=device)

# begin send
table = table_of(caches)  # once
buffers = table.buffers(2)  # once, too: frames, results and workspace
table.encode(page_table, token_counts, buffers, nonces=nonces)  # on the current stream; nothing is waited for
# end send
# begin receive
other_table = table_of(other_caches)
received = other_table.buffers(2, frame_bytes=16)  # only its results are used
other_table.decode(other_pages, token_counts, buffers.frames, buffers.frame_bytes, received, nonces=nonces)
received.check()  # waits, and raises what went wrong
# end receive
buffers.check()

for source, target in zip(caches, other_caches, strict=True):
    for request, tokens in enumerate(token_counts.tolist()):
        full = tokens // PAGE_TOKENS
        sent, arrived = source[:, page_table[request, :full].long()], target[:, other_pages[request, :full].long()]
        assert torch.equal(sent.view(torch.int16), arrived.view(torch.int16))
raw = int(token_counts.sum()) * LAYERS * 2 * HEADS * DIM * 2
print(f"{raw} bytes, ratio {raw / int(buffers.frame_bytes.sum()):.3f}, on {device}")
