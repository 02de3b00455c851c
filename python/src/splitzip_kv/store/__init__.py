# SPDX-License-Identifier: Apache-2.0
"""Caches as values of a key-value store, with the codebooks that they need beside them: docs/store.md."""

from .cache_store import CacheStore
from .envelope import BadValue
from .learning import Learner
from .options import StoreOptions
from .places import open_values
from .staging import Staging
from .values import DictValues, FileValues, StoreError, Values

__all__ = [
    "BadValue",
    "CacheStore",
    "DictValues",
    "FileValues",
    "Learner",
    "Staging",
    "StoreError",
    "StoreOptions",
    "Values",
    "open_values",
]
