# SPDX-License-Identifier: Apache-2.0
"""Which KV heads go from which rank to which, where prefill and decode have other tensor-parallel sizes."""

from __future__ import annotations

import dataclasses

from .parts import Part


@dataclasses.dataclass(frozen=True)
class HeadRange:
    """Neighbouring KV heads of the whole model that a rank of each side holds."""

    sender: int
    receiver: int
    first: int
    count: int


def heads_of(rank: int, size: int, kv_heads: int) -> range:
    """KV heads that a rank holds: an equal share, or, where there are more ranks than heads, one that other ranks have, too."""
    if size <= kv_heads:
        share = kv_heads // size
        return range(rank * share, (rank + 1) * share)
    head = rank // (size // kv_heads)
    return range(head, head + 1)


def head_ranges(kv_heads: int, sender_size: int, receiver_size: int) -> list[HeadRange]:
    """What has to be moved so that every receiving rank gets each of its heads once.

    Of sending ranks that hold the same head, each serves its share of the receiving ranks.
    """
    for size in (sender_size, receiver_size):
        if min(size, kv_heads) < 1 or max(size, kv_heads) % min(size, kv_heads):
            raise ValueError(
                f"{kv_heads} KV heads cannot be shared by {size} ranks: neither number divides the other one"
            )
    copies = max(1, sender_size // kv_heads)  # ranks of the sending side that hold the same head
    found = []
    for receiver in range(receiver_size):
        wanted = heads_of(receiver, receiver_size, kv_heads)
        for sender in range(receiver % copies, sender_size, copies):
            have = heads_of(sender, sender_size, kv_heads)
            first, end = max(wanted.start, have.start), min(wanted.stop, have.stop)
            if first < end:
                found.append(HeadRange(sender, receiver, first, end - first))
    return found


def part_of_heads(part: Part, held: range, wanted: HeadRange) -> Part:
    """The heads `wanted` of a part that holds the heads `held` of the model. Both sides make it, each of its own part.

    Its key is made of the part's (below 2^48) and the first head, so that what several ranks send of one tensor can be told apart; the
    part's `first_channel` is that of its first head in the whole tensor, for which the codebook was made.
    """
    return part.heads(wanted.first - held.start, wanted.count, key=part.tensor.tensor_key << 16 | wanted.first)
