# SPDX-License-Identifier: Apache-2.0
"""What is encoded: `Tensor` is splitzip_tensor of the C interface."""

from __future__ import annotations

import dataclasses

from ._core import Codebook, ElementType, Mode


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor:
    """`tokens` rows of `ranges` x `channels` values of one type under one codebook.

    A range is a group of neighbouring channels that is to be addressed alone, usually one attention head; a unit is
    `tokens_per_unit` tokens of one range, the smallest thing that can be decoded alone. Both ends must describe the
    same tensors. `Layout.tensor` fills the geometry in; `dataclasses.replace` changes a field.
    """

    type: ElementType
    mode: Mode
    codebook: Codebook | None = None
    """None in mode RAW, and in what `Frame.tensors()` gives without codebooks."""
    tokens: int
    channels: int
    """Values of a token in one range."""
    ranges: int = 1
    first_channel: int = 0
    """Channel of the full tensor (that of the codebook) where range 0 starts: for slices of heads."""
    tokens_per_unit: int
    tensor_key: int = 0
    """The caller's name for the tensor (layer, K or V); part of the checksums."""
    first_block: int = 0
    """Number of the first block of `tokens_per_unit` tokens in the caller's sequence; part of the checksums."""
    slot_words: int | None = None
    """None: from the codebook; a receiver leaves it so."""
