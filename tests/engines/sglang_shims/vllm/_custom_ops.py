# SPDX-License-Identifier: Apache-2.0
"""The rotary embedding in plain torch, in place."""

import torch


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, head_size: int, neox: bool) -> None:
    heads = x.view(x.shape[0], -1, head_size)
    turned = heads[..., : 2 * cos.shape[-1]]
    if neox:
        first, second = turned.chunk(2, dim=-1)
    else:
        first, second = turned[..., ::2], turned[..., 1::2]
    a, b = first.float(), second.float()
    first.copy_(a * cos - b * sin)
    second.copy_(b * cos + a * sin)


def rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox) -> None:
    cos, sin = cos_sin_cache[positions].float().unsqueeze(1).chunk(2, dim=-1)
    _rotate(query, cos, sin, head_size, is_neox)
    if key is not None:
        _rotate(key, cos, sin, head_size, is_neox)
