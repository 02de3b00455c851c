# SPDX-License-Identifier: Apache-2.0
"""Codebooks made of the first caches that a store sees, for those who have none."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from .. import Calibration, Codebook, CodebookSet, Layout
from .cache_store import CacheStore

log = logging.getLogger("splitzip_kv.store")


class Learner:
    """Gives a store the codebooks of a file, or counts `tokens` tokens and makes them; then it writes the file.

    What is put before they are made goes in mode raw.
    """

    def __init__(self, store: CacheStore, tokens: int, file: str | os.PathLike[str] | None = None) -> None:
        self._store = store
        self._left = tokens
        self._file = None if file is None else Path(file)
        self._calibration = Calibration()
        self._lock = threading.Lock()
        if self._file is not None and self._file.exists():
            store.rotate(CodebookSet.load(self._file))

    @property
    def done(self) -> bool:
        return self._store.codebooks is not None

    def find(self, name: str) -> Codebook | None:
        codebooks = self._store.codebooks
        return None if codebooks is None else codebooks.find(name)

    def see(self, tensors: Iterable[tuple[str, Layout]], tokens: int) -> None:
        """Count the values of a cache of `tokens` tokens, unless enough has been seen."""
        if self.done or self._left <= 0:
            return
        with self._lock:
            if self._left <= 0:
                return
            for name, layout in tensors:
                self._calibration.add(name, layout)
            self._left -= tokens
            if self._left > 0:
                return
            codebooks = self._calibration.finish("the first caches that were stored")
            self._calibration = Calibration()
        self._store.rotate(codebooks)
        log.info("codebooks for %d tensors were made of the first caches", len(codebooks))
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self._file.with_name(f".{self._file.name}.{os.getpid()}")
            codebooks.save(unfinished)
            os.replace(unfinished, self._file)
