# SPDX-License-Identifier: Apache-2.0
"""Caches in blocks of tokens: where K and V lie in an engine's memory, and what a block is called."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .. import Codebook, ElementType, Layout
from .._layout import TYPES, bits_of
from ..transfer import Part


def block_keys(tokens: Sequence[int], block_tokens: int, salt: str = "") -> list[str]:
    """A name for each full block, which depends on all tokens up to its end, and on `salt` (adapters, images)."""
    state = hashlib.sha256(salt.encode())
    ids = np.asarray(tokens, "<u4")
    keys = []
    for end in range(block_tokens, len(ids) + 1, block_tokens):
        state.update(ids[end - block_tokens : end].tobytes())
        keys.append(state.hexdigest())
    return keys


@dataclasses.dataclass(frozen=True)
class Geometry:
    """What an engine says of its blocks, on this rank."""

    block_tokens: int
    heads: int
    dim: int
    value_dim: int


@dataclasses.dataclass
class LayerMemory:
    """One layer: for K and V (or the one tensor of MLA) its name, its memory and the names of the axes."""

    tensors: list[tuple[str, Any, str]]


# Shapes that engines have or had, pages first unless an axis of K and V comes before; P stands for any number of pages.
_FORMS: list[tuple[str, str, str]] = [
    ("P H T K+V", "packed", "page,head,token,dim"),
    ("P T H K+V", "packed", "page,token,head,dim"),
    ("2 P T H K", "first", "page,token,head,dim"),
    ("2 P H T K", "first", "page,head,token,dim"),
    ("P 2 T H K", "second", "page,token,head,dim"),
    ("P 2 H T K", "second", "page,head,token,dim"),
    ("P T K", "single", "page,token,dim"),
    ("P 1 T K", "single", "page,head,token,dim"),
]


def layer_memory(array: Any, geometry: Geometry) -> LayerMemory:
    """Find K and V by the shape of `array`, whatever its strides. Where two forms fit they are the same values under
    other names, and both sides of a transfer choose the same one."""
    lengths = {
        "2": 2,
        "1": 1,
        "H": geometry.heads,
        "T": geometry.block_tokens,
        "K": geometry.dim,
        "K+V": geometry.dim + geometry.value_dim,
    }
    shape = tuple(array.shape)
    for form, kind, axes in _FORMS:
        names = form.split()
        if len(names) != len(shape):
            continue
        if any(name != "P" and lengths[name] != length for name, length in zip(names, shape, strict=True)):
            continue
        if kind == "packed":
            return LayerMemory([("k", array[..., : geometry.dim], axes), ("v", array[..., geometry.dim :], axes)])
        if kind == "first":
            return LayerMemory([("k", array[0], axes), ("v", array[1], axes)])
        if kind == "second":
            return LayerMemory([("k", array[:, 0], axes), ("v", array[:, 1], axes)])
        return LayerMemory([("kv", array, axes)])
    raise ValueError(f"the cache has shape {shape}, and no known layout has that with {geometry}")


@dataclasses.dataclass
class _Tensor:
    name: str
    bits: np.ndarray
    axes: str
    type: ElementType
    rows: np.ndarray | None
    """Where the channels of a token are no neighbours: a view [page, token, head, dim], which has to be copied."""


class Blocks:
    """All layers of a cache, as parts for stores and transfers. Tensors are named layers.0.k, layers.0.v, ..."""

    def __init__(self, layers: Sequence[LayerMemory], block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._tensors = []
        for number, layer in enumerate(layers):
            for kind, array, axes in layer.tensors:
                bits, type_name = bits_of(array)
                type = TYPES.get(type_name)
                if type is None:
                    raise ValueError(f"layers.{number}.{kind} has values of type {type_name}")
                rows = None
                if bits.strides[-1] != bits.itemsize:
                    names = axes.split(",")
                    rows = bits.transpose([names.index(name) for name in ("page", "token", "head", "dim")])
                self._tensors.append(_Tensor(f"layers.{number}.{kind}", bits, axes, type, rows))

    def __len__(self) -> int:
        return len(self._tensors)

    def layouts(self, blocks: Sequence[int]) -> Iterator[tuple[str, Layout]]:
        """For calibration: whole blocks."""
        return ((part.name, part.layout) for part in self._named_parts(blocks, None, None))

    def parts(
        self,
        blocks: Sequence[int] | np.ndarray,
        tokens: int | None = None,
        find: Callable[[str], Codebook | None] | None = None,
    ) -> Iterator[Part]:
        """The first `tokens` tokens in these blocks, to be read; what else is in the last one is not."""
        return self._named_parts(blocks, tokens, find)

    def targets(
        self, blocks: Sequence[int] | np.ndarray, tokens: int | None = None
    ) -> tuple[list[Part], Callable[[], None]]:
        """The same, to be written, and what is to be called when they are."""
        count = len(blocks) * self.block_tokens if tokens is None else tokens
        parts: list[Part] = []
        copies = []
        for key, tensor in enumerate(self._tensors):
            if tensor.rows is None:
                parts.append(self._part(key, tensor, tensor.bits, tensor.axes, blocks, count, None))
            else:
                copy = np.empty((count, *tensor.rows.shape[2:]), tensor.bits.dtype)
                parts.append(self._part(key, tensor, copy, "token,head,dim", None, count, None))
                copies.append((tensor.rows, copy))

        def finish() -> None:
            for rows, copy in copies:
                for number, block in enumerate(blocks):
                    piece = copy[number * self.block_tokens : (number + 1) * self.block_tokens]
                    rows[block, : len(piece)] = piece

        return parts, finish

    def raw_bytes(self, tokens: int) -> int:
        return sum(tokens * _channels(tensor) * tensor.bits.itemsize for tensor in self._tensors)

    def _named_parts(self, blocks: Sequence[int] | np.ndarray, tokens: int | None, find: Any) -> Iterator[NamedPart]:
        count = len(blocks) * self.block_tokens if tokens is None else tokens
        for key, tensor in enumerate(self._tensors):
            codebook = find(tensor.name) if find is not None else None
            # Codebooks of another model, or of another slice of this one, are no use.
            if codebook is not None and (
                codebook.type != tensor.type or len(codebook.bases) not in (1, _channels(tensor))
            ):
                codebook = None
            if tensor.rows is None:
                yield self._part(key, tensor, tensor.bits, tensor.axes, blocks, count, codebook)
            else:
                copy = np.concatenate([tensor.rows[block] for block in blocks])[:count]
                copy = np.ascontiguousarray(copy)
                yield self._part(key, tensor, copy, "token,head,dim", None, count, codebook)

    def _part(
        self,
        key: int,
        tensor: _Tensor,
        array: np.ndarray,
        axes: str,
        blocks: Sequence[int] | np.ndarray | None,
        tokens: int,
        codebook: Codebook | None,
    ) -> NamedPart:
        part = NamedPart(array, axes, key=key, pages=blocks, tokens=tokens, type=tensor.type, codebook=codebook)
        part.name = tensor.name
        return part


class NamedPart(Part):
    name: str = ""


def _channels(tensor: _Tensor) -> int:
    names = tensor.axes.split(",")
    heads = tensor.bits.shape[names.index("head")] if "head" in names else 1
    return int(heads * tensor.bits.shape[-1])
