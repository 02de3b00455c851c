# SPDX-License-Identifier: Apache-2.0
"""Caches in blocks of tokens: where K and V lie in an engine's memory, and what a block is called."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .. import Codebook, ElementType, Layout, cuda
from .._layout import TYPES, bits_of, device_memory_of
from ..transfer import Options, Part

# Frames that a GPU codes are longer, since a call has a fixed cost: how long they should be is in docs/links.md.
BY_THE_HOST = {"pinned": True, "slot_bytes": 8 << 20, "slots_per_session": 4}
BETWEEN_GPUS = {"slot_bytes": 32 << 20, "slots_per_session": 4}


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
    array: Any
    axes: str
    type: ElementType
    value_bytes: int
    channels: int
    """Of a token, in all heads."""
    rows: np.ndarray | None = None
    """Where the channels of a token are no neighbours: a view [page, token, head, dim], which has to be copied."""


class Blocks:
    """All layers of a cache, as parts for stores and transfers. Tensors are named layers.0.k, layers.0.v, ..."""

    def __init__(
        self, layers: Sequence[LayerMemory], block_tokens: int, bytes_are: ElementType = ElementType.BYTES
    ) -> None:
        """`bytes_are`: the type of values that the engine keeps in arrays of plain bytes. Raises ValueError for memory
        that is of no known kind."""
        self.block_tokens = block_tokens
        self._tensors = []
        devices = set()
        for number, layer in enumerate(layers):
            for kind, array, axes in layer.tensors:
                tensor, device = _tensor(f"layers.{number}.{kind}", array, axes, bytes_are)
                self._tensors.append(tensor)
                devices.add(device)
        if len(devices) > 1:
            raise ValueError("the cache lies in the memory of several devices")
        self.device: int | None = devices.pop() if devices else None
        """The GPU in whose memory the cache is; None: it is in host memory."""
        if self.device is not None and (problem := cuda.problem()) is not None:
            raise ValueError(f"the cache is in the memory of a GPU, which cannot be used: {problem}")

    def __len__(self) -> int:
        return len(self._tensors)

    def options(self, given: dict[str, Any], *, between_gpus: bool = False) -> Options:
        """Of transfers of this cache: what is given, and else what suits where it lies. `between_gpus`: frames do not
        come to the host."""
        if self.device is None:
            return Options(**given)
        return Options(**(BETWEEN_GPUS if between_gpus else BY_THE_HOST) | given)

    def layouts(self, blocks: Sequence[int]) -> Iterator[tuple[str, Layout]]:
        """For calibration: whole blocks, in host memory."""
        for part in self._named_parts(blocks, None, None):
            layout = part.layout
            yield part.name, layout if self.device is None else self._coder.on_host(layout, tokens=part.tensor.tokens)

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
                parts.append(self._part(key, tensor, tensor.array, tensor.axes, blocks, count, None))
            else:
                copy = np.empty((count, *tensor.rows.shape[2:]), tensor.rows.dtype)
                parts.append(self._part(key, tensor, copy, "token,head,dim", None, count, None))
                copies.append((tensor.rows, copy))

        def finish() -> None:
            for rows, copy in copies:
                for number, block in enumerate(blocks):
                    piece = copy[number * self.block_tokens : (number + 1) * self.block_tokens]
                    rows[block, : len(piece)] = piece

        return parts, finish

    def raw_bytes(self, tokens: int) -> int:
        return sum(tokens * tensor.channels * tensor.value_bytes for tensor in self._tensors)

    @functools.cached_property
    def _coder(self) -> cuda.Coder:
        assert self.device is not None
        return cuda.Coder(self.device)

    def _named_parts(self, blocks: Sequence[int] | np.ndarray, tokens: int | None, find: Any) -> Iterator[NamedPart]:
        count = len(blocks) * self.block_tokens if tokens is None else tokens
        for key, tensor in enumerate(self._tensors):
            codebook = find(tensor.name) if find is not None else None
            # Codebooks of another model, or of another slice of this one, are no use.
            if codebook is not None and (
                codebook.type != tensor.type or len(codebook.bases) not in (1, tensor.channels)
            ):
                codebook = None
            if tensor.rows is None:
                yield self._part(key, tensor, tensor.array, tensor.axes, blocks, count, codebook)
            else:
                copy = np.concatenate([tensor.rows[block] for block in blocks])[:count]
                copy = np.ascontiguousarray(copy)
                yield self._part(key, tensor, copy, "token,head,dim", None, count, codebook)

    def _part(
        self,
        key: int,
        tensor: _Tensor,
        array: Any,
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


def _tensor(name: str, array: Any, axes: str, bytes_are: ElementType) -> tuple[_Tensor, int | None]:
    """And the GPU in whose memory it is."""
    names = axes.split(",")
    on_device = device_memory_of(array)
    if on_device is not None:
        memory, type_name = on_device
        shape, strides, value_bytes, device = memory.shape, memory.strides, memory.itemsize, memory.device
    else:
        array, type_name = bits_of(array)
        shape, strides, value_bytes, device = list(array.shape), list(array.strides), array.itemsize, None
    type = TYPES.get(type_name)
    if type is None:
        raise ValueError(f"{name} has values of type {type_name}")
    if type is ElementType.BYTES:
        type = bytes_are
    heads = shape[names.index("head")] if "head" in names else 1
    tensor = _Tensor(name, array, axes, type, value_bytes, heads * shape[-1])
    if strides[-1] != value_bytes:
        if device is not None:
            raise ValueError(f"{name} has channels that are no neighbours, which is known in host memory only")
        tensor.rows = array.transpose([names.index(axis) for axis in ("page", "token", "head", "dim")])
    return tensor, device
