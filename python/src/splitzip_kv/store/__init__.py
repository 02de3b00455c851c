# SPDX-License-Identifier: Apache-2.0
"""Caches as values of a key-value store, with the codebooks that they need beside them: docs/store.md."""

from .cache_store import CacheStore
from .envelope import BadValue
from .options import StoreOptions
from .values import DictValues, FileValues, StoreError, Values

__all__ = ["BadValue", "CacheStore", "DictValues", "FileValues", "StoreError", "StoreOptions", "Values"]
