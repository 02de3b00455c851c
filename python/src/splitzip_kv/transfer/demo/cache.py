# SPDX-License-Identifier: Apache-2.0
"""A dumped cache, and paged pools that hold it as an inference engine would."""

from __future__ import annotations

import dataclasses
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

from ... import Calibration, Codebook, CodebookSet, ElementType, Layout, cuda
from .. import Part

TYPES = {
    "BF16": ElementType.BF16,
    "F16": ElementType.FP16,
    "F32": ElementType.FP32,
    "F8_E4M3": ElementType.FP8_E4M3,
    "F8_E5M2": ElementType.FP8_E5M2,
    "U8": ElementType.BYTES,
    "I8": ElementType.BYTES,
}
FILLER = 0xA5  # what the decode side's pages hold before a cache arrives, byte by byte


@dataclasses.dataclass
class CachedTensor:
    """K or V of one layer; `values` are its bits, [token, head, dim]."""

    name: str
    type: ElementType
    values: np.ndarray

    @property
    def layer(self) -> str:
        return self.name.rpartition(".")[0]


def load_cache(path: Path) -> list[CachedTensor]:
    """Tensors [head, token, dim] or [token, dim] of a safetensors file, in the order of the layers."""
    import safetensors

    try:
        tensors = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is no complete safetensors file: {error}") from error
    cache = []
    for name, fields in tensors:
        type = TYPES.get(fields["dtype"])
        shape = tuple(fields["shape"])
        if type is None:
            raise ValueError(f"{path}: tensor {name} is {fields['dtype']}, which is none of {', '.join(TYPES)}")
        if len(shape) not in (2, 3):
            raise ValueError(f"{path}: tensor {name} has shape {shape}, not [head, token, dim] or [token, dim]")
        values = np.frombuffer(fields["data"], f"u{_bytes(type)}").reshape(shape if len(shape) == 3 else (1, *shape))
        cache.append(CachedTensor(name, type, np.ascontiguousarray(values.transpose(1, 0, 2))))
    if not cache:
        raise ValueError(f"{path}: no tensors")
    if len({len(tensor.values) for tensor in cache}) != 1:
        raise ValueError(f"{path}: the tensors have different numbers of tokens, so they are not one cache")
    return sorted(
        cache,
        key=lambda tensor: [int(piece) if piece.isdigit() else piece for piece in re.split(r"(\d+)", tensor.name)],
    )


def _bytes(type: ElementType) -> int:
    return {ElementType.BF16: 2, ElementType.FP16: 2, ElementType.FP32: 4}.get(type, 1)


def calibrate(cache: list[CachedTensor]) -> CodebookSet:
    calibration = Calibration()
    for tensor in cache:
        calibration.add(tensor.name, Layout(tensor.values, "token,head,dim", type=tensor.type))
    return calibration.finish("the first tokens of the cache that is moved")


def gpu_for(settings: dict[str, Any]) -> tuple[int | None, str]:
    """The GPU that holds the pool and codes, if there is to be one, and what codes in words. Settings: `device` is auto,
    cpu or cuda, `gpu` the number of a GPU."""
    if settings["device"] == "cpu":
        return None, "CPU"
    problem = cuda.problem()
    if problem is None and not 0 <= settings["gpu"] < cuda.device_count():
        raise ValueError(f"there is no GPU {settings['gpu']}, only {cuda.device_count()} of them")
    if problem is None:
        return settings["gpu"], "GPU"
    if settings["device"] == "cuda":
        raise ValueError(f"--device cuda: {problem}")
    return None, f"CPU ({problem})"


class Pool:
    """Pages for all tensors of a cache, a quarter more than needed, and one page table: random page numbers.

    On a GPU, `gpu` is the pool, and `memory` pinned host memory of the same size, to fill it from and to look at it.
    """

    def __init__(self, cache: list[CachedTensor], page_tokens: int, seed: int, device: int | None = None) -> None:
        self.cache = cache
        self.page_tokens = page_tokens
        self.tokens = len(cache[0].values)
        count = -(-self.tokens // page_tokens)
        total = count + max(count // 4, 1)
        self.pages = np.random.default_rng(seed).permutation(total)[:count]
        self.unused = np.setdiff1d(np.arange(total), self.pages)
        shapes = [(total, page_tokens, *tensor.values.shape[1:]) for tensor in cache]
        # One piece of memory, as an engine has it and registers it.
        sizes = [int(np.prod(shape)) * tensor.values.itemsize for shape, tensor in zip(shapes, cache, strict=True)]
        self.memory = np.empty(sum(sizes), np.uint8) if device is None else cuda.pinned(sum(sizes), device)
        self.gpu = None if device is None else cuda.Memory(sum(sizes), device)
        self._stream = None if device is None else cuda.Stream(device)
        self.arrays = []
        self._starts = []
        start = 0
        for shape, size, tensor in zip(shapes, sizes, cache, strict=True):
            piece = self.memory[start : start + size]
            self.arrays.append(piece.view(tensor.values.dtype).reshape(shape))
            self._starts.append(start)
            start += size
        self.clear()

    def clear(self) -> None:
        self.memory.fill(FILLER)
        self._copy(self.gpu, self.memory)

    def fill(self) -> None:
        """Put the cache into its pages. What is unused holds noise, like the remains of other requests."""
        self.memory[:] = np.frombuffer(np.random.default_rng(0).bytes(len(self.memory)), np.uint8)
        for tensor, array in zip(self.cache, self.arrays, strict=True):
            for number, page in enumerate(self.pages):
                rows = tensor.values[number * self.page_tokens : (number + 1) * self.page_tokens]
                array[page, : len(rows)] = rows
        self._copy(self.gpu, self.memory)

    def look(self) -> None:
        """Before the pool's content is looked at."""
        self._copy(self.memory, self.gpu)

    def copy_pages(self, to_host: bool) -> list[tuple[float, float]]:
        """What engines that know only host memory need: each page of each tensor copied from or to the GPU. When."""
        if self.gpu is None or self._stream is None:
            return []
        begin = time.monotonic()
        for array, start in zip(self.arrays, self._starts, strict=True):
            size = array[0].nbytes
            for page in self.pages.tolist():
                on_gpu = cuda.Array(self.gpu, start + page * size, (size,), "|u1")
                on_host = array[page].reshape(-1).view(np.uint8)
                destination, source = (on_host, on_gpu) if to_host else (on_gpu, on_host)
                cuda.copy(destination, source, self._stream.handle)
        self._stream.synchronize()
        return [(begin, time.monotonic())]

    def _copy(self, destination: Any, source: Any) -> None:
        if self._stream is not None:
            cuda.copy(destination, source, self._stream.handle)
            self._stream.synchronize()

    def different_values(self) -> int:
        """How many values of the cache are not the same bits as in the dump."""
        return sum(
            int(np.count_nonzero(self._rows(array) != tensor.values))
            for tensor, array in zip(self.cache, self.arrays, strict=True)
        )

    def touched_bytes(self) -> int:
        """How many bytes of pages that are not the request's were written."""
        return sum(int(np.count_nonzero(array[self.unused].view(np.uint8) != FILLER)) for array in self.arrays)

    def _rows(self, array: np.ndarray) -> np.ndarray:
        pages = array[self.pages]
        return pages.reshape(-1, *pages.shape[2:])[: self.tokens]

    def part(self, number: int, codebook: Codebook | None = None) -> Part:
        array: Any = self.arrays[number]
        if self.gpu is not None:
            array = cuda.Array(self.gpu, self._starts[number], array.shape, array.dtype.str)
        return Part(
            array,
            "page,token,head,dim",
            key=number,
            pages=self.pages,
            tokens=self.tokens,
            type=self.cache[number].type,
            codebook=codebook,
        )

    def page_places(self) -> list[list[int]]:
        """Addresses in host memory of the cache's pages, in order, for each tensor."""
        return [[int(array.ctypes.data) + int(page) * array[0].nbytes for page in self.pages] for array in self.arrays]
