# SPDX-License-Identifier: Apache-2.0
"""Caches that an engine hands over as whole tensors, [..., token, channel], and their codebooks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import Codebook, ElementType, Layout
from .._layout import TYPES, bits_of
from ..store import CacheStore, Learner, Staging, StoreOptions, Values
from ..transfer import Part
from ..transfer.parts import TOKENS_PER_UNIT


class Tensors:
    """The tensors of one object: each leading index (layer, K or V) of each array is a tensor of its own."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._rows: list[tuple[str, np.ndarray, ElementType]] = []
        self.tokens = 0
        for group, array in enumerate(arrays):
            memory, type_name = bits_of(array)
            bits = memory
            type = TYPES.get(type_name)
            if type is None or bits.ndim < 2:
                type, bits = ElementType.BYTES, bits.reshape(-1, 1).view(np.uint8)  # not values of a cache
            else:
                self.tokens = max(self.tokens, bits.shape[-2])
            rows = bits.reshape(-1, *bits.shape[-2:])
            if not np.may_share_memory(rows, memory):
                raise TypeError("an object has to be in one piece, but for its last two axes")
            self._rows += [(f"{group}.{index}", rows[index], type) for index in range(len(rows))]

    def layouts(self) -> Iterator[tuple[str, Layout]]:
        return ((name, Layout(rows, "token,channel", type=type)) for name, rows, type in self._rows)

    def parts(self, find: Callable[[str], Codebook | None] = lambda name: None) -> list[Part]:
        return [
            Part(
                rows,
                "token,channel",
                key=key,
                type=type,
                codebook=_fitting(find(name), rows, type),
                tokens_per_unit=min(TOKENS_PER_UNIT, max(len(rows), 1)),
            )
            for key, (name, rows, type) in enumerate(self._rows)
        ]


def _fitting(codebook: Codebook | None, rows: np.ndarray, type: ElementType) -> Codebook | None:
    """Codebooks that were made of other tensors under the same name are no use."""
    if codebook is None or codebook.type != type or len(codebook.bases) not in (1, rows.shape[-1]):
        return None
    return codebook


class Scopes:
    """A CacheStore with its codebooks for each part of a deployment (model, rank, group of layers)."""

    def __init__(
        self, values: Values, folder: str | os.PathLike[str] | None, learn_tokens: int, options: StoreOptions
    ) -> None:
        self._values = values
        self._folder = None if folder is None else Path(folder)
        self._learn_tokens = learn_tokens
        self._options = options
        self._staging = Staging(options.staging_bytes)
        self._lock = threading.Lock()
        self._scopes: dict[str, tuple[CacheStore, Learner]] = {}

    def get(self, name: str) -> tuple[CacheStore, Learner]:
        with self._lock:
            if name not in self._scopes:
                store = CacheStore(self._values, None, self._options, prefix=f"{name}/", staging=self._staging)
                file = None if self._folder is None else self._folder / f"{name.replace('/', '_')}.szcb"
                self._scopes[name] = store, Learner(store, self._learn_tokens, file)
            return self._scopes[name]

    def counters(self) -> dict[str, int]:
        total: dict[str, int] = {}
        with self._lock:
            for store, _ in self._scopes.values():
                for name, count in store.counters.items():
                    total[name] = total.get(name, 0) + count
        return total
