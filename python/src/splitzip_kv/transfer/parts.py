# SPDX-License-Identifier: Apache-2.0
"""What is moved, and how it is cut into frames."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

import splitzip_kv

from .. import Codebook, ElementType, Layout, Mode, SplitzipError, Tensor, frame_sizes
from .._core import slot_words
from .._layout import on_host
from .coding import Coding
from .messages import MAX_TENSORS, TensorRecord

TOKENS_PER_UNIT = 256

# Tensors of one frame, and where their values are.
Frame = tuple[list[Tensor], list[Layout]]


class Part:
    """One tensor of a cache (usually K or V of one layer) and the memory that holds it on this side.

        Part(pool_k, "page,token,head,dim", key=2 * layer, pages=[7, 3, 12], tokens=45, codebook=codebook)

    `array`, `axes`, `pages` and `type` are those of `Layout`; `tokens` says how many are valid (all by default). `key`
    names the tensor on both sides, which also have to agree on type, number of tokens, heads and channels,
    `first_channel`, `first_block` and `tokens_per_unit`. Page sizes, page numbers and strides are each side's own. A
    receiver needs no codebook here. Values in the memory of a GPU are coded there.
    """

    def __init__(
        self,
        array: Any,
        axes: str,
        *,
        key: int,
        pages: Sequence[int] | np.ndarray | None = None,
        tokens: int | None = None,
        codebook: Codebook | None = None,
        mode: Mode | None = None,
        type: ElementType | None = None,
        first_channel: int = 0,
        first_block: int = 0,
        tokens_per_unit: int = TOKENS_PER_UNIT,
    ) -> None:
        self._memory = (array, axes, pages, type)
        self.layout = Layout(array, axes, pages=pages, type=type)
        self.tensor = self.layout.tensor(
            codebook,
            mode=mode,
            type=type,
            tokens=tokens,
            tokens_per_unit=tokens_per_unit,
            first_channel=first_channel,
            tensor_key=key,
            first_block=first_block,
        )
        if self.tensor.tokens > self.layout.tokens:
            raise ValueError(f"{self.tensor.tokens} tokens, and the memory has room for {self.layout.tokens}")

    @property
    def blocks(self) -> int:
        return -(-self.tensor.tokens // self.tensor.tokens_per_unit)

    @property
    def raw_bytes(self) -> int:
        return raw_bytes_of(([self.tensor], [self.layout]))

    def in_mode(self, mode: Mode) -> Part:
        part = copy.copy(self)
        part.tensor = dataclasses.replace(self.tensor, mode=mode)
        return part

    def raw(self) -> Part:
        """The same without a codebook."""
        part = copy.copy(self)
        part.tensor = raw(self.tensor)
        return part

    def heads(self, first: int, count: int, *, key: int) -> Part:
        """Only these heads of it, counted from its own first one, under another key."""
        array, axes, pages, type = self._memory
        names = [name.strip() for name in axes.split(",")]
        if "head" not in names or first < 0 or count < 1 or first + count > self.tensor.ranges:
            raise ValueError(
                f"heads {first} to {first + count} of a part with axes {axes!r} and {self.tensor.ranges} heads"
            )
        array = array[tuple(slice(first, first + count) if name == "head" else slice(None) for name in names)]
        part = copy.copy(self)
        part._memory = (array, axes, pages, type)
        part.layout = Layout(array, axes, pages=pages, type=type)
        first_channel = self.tensor.first_channel + first * self.tensor.channels
        part.tensor = dataclasses.replace(self.tensor, ranges=count, first_channel=first_channel, tensor_key=key)
        return part

    def run(self, first: int, count: int) -> tuple[Tensor, Layout]:
        """Blocks [first, first + count), counted from the start of the part."""
        if first == 0 and count == self.blocks:
            return self.tensor, self.layout
        skipped = first * self.tensor.tokens_per_unit
        tensor = dataclasses.replace(
            self.tensor,
            tokens=min(count * self.tensor.tokens_per_unit, self.tensor.tokens - skipped),
            first_block=self.tensor.first_block + first,
        )
        array, axes, pages, type = self._memory
        return tensor, Layout(array, axes, pages=pages, type=type, first_token=skipped)


def raw(tensor: Tensor) -> Tensor:
    return dataclasses.replace(tensor, mode=Mode.RAW, codebook=None, slot_words=None)


def with_slots(tensor: Tensor) -> Tensor:
    """The same with slots of a stated length."""
    return tensor if tensor.mode is Mode.RAW else dataclasses.replace(tensor, slot_words=slot_words(tensor))


def raw_bytes_of(frame: Frame) -> int:
    return sum(
        tensor.tokens * tensor.ranges * tensor.channels * layout.element_bytes
        for tensor, layout in zip(*frame, strict=True)
    )


def bound_bytes(tensor: Tensor, checksums: bool) -> int:
    return frame_sizes([tensor], checksums=checksums).bound_bytes


def cut_into_frames(parts: Iterable[Part], limit: int, checksums: bool, usable: set[int]) -> Iterator[Frame]:
    """Groups of whole blocks whose frames have at most `limit` bytes whatever they hold.

    Codebooks whose hash is not in `usable` are not used: their tensors go in mode raw.
    """
    tensors: list[Tensor] = []
    layouts: list[Layout] = []
    total = 0
    for part in parts:
        if part.tensor.codebook is not None and part.tensor.codebook.hash not in usable:
            part = part.raw()
        for tensor, layout in _fitting_runs(part, limit, checksums):
            # Frames of their own would need more than these tensors need in one frame.
            size = bound_bytes(tensor, checksums)
            full = total + size > limit or len(tensors) == MAX_TENSORS
            if tensors and (full or layout.device != layouts[0].device):
                yield tensors, layouts
                tensors, layouts, total = [], [], 0
            tensors.append(tensor)
            layouts.append(layout)
            total += size
    if tensors:
        yield tensors, layouts


def _fitting_runs(part: Part, limit: int, checksums: bool) -> Iterator[tuple[Tensor, Layout]]:
    if part.blocks == 0:
        return
    if bound_bytes(part.tensor, checksums) <= limit:
        yield part.run(0, part.blocks)
        return
    one_block = dataclasses.replace(part.tensor, tokens=min(part.tensor.tokens_per_unit, part.tensor.tokens))
    count = limit // bound_bytes(one_block, checksums)
    if count == 0:
        unit, key = part.tensor.tokens_per_unit, part.tensor.tensor_key
        raise ValueError(
            f"{unit} tokens of tensor {key} do not fit into a slot of {limit} bytes: "
            "choose larger slots or fewer tokens per unit"
        )
    for first in range(0, part.blocks, count):
        yield part.run(first, min(count, part.blocks - first))


def decodes_to_itself(encoded: memoryview, frame: Frame, coding: Coding) -> bool:
    """Decode it on the CPU, to elsewhere, and compare every bit with the source."""
    tensors, layouts = frame
    copies = [on_host(tensor, layout.element_bytes) for tensor, layout in zip(tensors, layouts, strict=True)]
    try:
        splitzip_kv.Frame(encoded).decode(tensors, copies)
    except SplitzipError:
        return False
    as_they_are = [raw(tensor) for tensor in tensors]
    return coding.encode(as_they_are, layouts) == coding.encode(as_they_are, copies)


def record_of(tensor: Tensor) -> TensorRecord:
    return TensorRecord(
        codebook_hash=tensor.codebook.hash if tensor.codebook is not None else 0,
        tensor_key=tensor.tensor_key,
        first_block=tensor.first_block,
        tokens=tensor.tokens,
        tokens_per_unit=tensor.tokens_per_unit,
        channels=tensor.channels,
        first_channel=tensor.first_channel,
        ranges=tensor.ranges,
        type=tensor.type,
        mode=tensor.mode,
        slot_words=tensor.slot_words or 0,
    )
