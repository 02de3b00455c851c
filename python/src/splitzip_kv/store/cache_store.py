# SPDX-License-Identifier: Apache-2.0
"""Caches in and out of a store of values."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import threading
from collections import Counter
from collections.abc import Sequence

import numpy as np

from .. import (
    Codebook,
    CodebookNotFound,
    CodebookSet,
    Frame,
    GeometryMismatch,
    SplitzipError,
    frame_sizes,
)
from .._layout import bytes_of
from ..transfer.coding import Coding
from ..transfer.parts import Part, decodes_to_itself
from .envelope import HEADER_BYTES, NO_SET, BadValue, nonce_of, open_value, set_id, write_header
from .options import StoreOptions
from .staging import Staging
from .values import StoreError, Values

log = logging.getLogger("splitzip_kv.store")


class CacheStore:
    """Puts parts of a cache under a key and gets them back, in any process that uses the same store.

        store = CacheStore(MooncakeValues("10.0.0.1:50051"), codebooks)
        store.put("prefix 1f3a", [Part(pool_k, "page,token,head,dim", key=0, pages=pages, codebook=books.find("k"))])
        found = store.get("prefix 1f3a", [Part(other_pool_k, "page,token,head,dim", key=0, pages=other_pages)])

    The set of codebooks is a value as well, which readers fetch when they meet it first: `codebooks` is for writers.
    All methods may be called by several threads.
    """

    def __init__(
        self,
        values: Values,
        codebooks: CodebookSet | None = None,
        options: StoreOptions | None = None,
        *,
        prefix: str = "",
        staging: Staging | None = None,
    ) -> None:
        """`prefix` begins all keys, so that several models can share a store; they may share `staging`, too."""
        self.values = values
        self.options = options or StoreOptions()
        self.coding = not self.options.raw
        """False: everything is put in mode raw. The breaker and the shadow mode clear it."""
        self.counters: Counter[str] = Counter()
        """puts, hits, misses, raw_bytes, stored_bytes (of what was put), damaged_values, missing_codebooks,
        shadow_mismatches."""
        self._prefix = prefix
        self._codec = Coding(self.options.threads)
        self._lock = threading.Lock()
        self._staging = staging or Staging(self.options.staging_bytes)
        self._sets: dict[bytes, CodebookSet] = {}
        self._current: CodebookSet | None = None
        self._current_id = NO_SET
        self._damaged_in_a_row = 0
        self._packed = itertools.count()
        if codebooks is not None:
            self.rotate(codebooks)

    @property
    def codebooks(self) -> CodebookSet | None:
        """What values are put with."""
        return self._current

    def rotate(self, codebooks: CodebookSet) -> None:
        """Put with other codebooks from now on. What was put before stays readable."""
        id = set_id(codebooks.to_bytes())
        with self._lock:
            self._sets[id] = codebooks
            self._current, self._current_id = codebooks, id

    def put(self, key: str, parts: Sequence[Part]) -> int:
        """Store the values of `parts`, whose codebooks come from `codebooks` or a set before it; the bytes it took.
        Parts without codebook go in mode raw."""
        with self._staging.use(HEADER_BYTES + frame_sizes([part.tensor for part in parts]).bound_bytes):
            value = self.pack(key, parts)
            self.put_packed(key, value)
        with self._lock:
            self.counters["raw_bytes"] += sum(part.raw_bytes for part in parts)
        return len(value)

    def put_packed(self, key: str, value: memoryview) -> None:
        """Store what `pack` made for this key."""
        self._publish(open_value(value)[1])
        self.values.put(self._prefix + key, value)
        with self._lock:
            self.counters["puts"] += 1
            self.counters["stored_bytes"] += len(value)

    def pack(self, key: str, parts: Sequence[Part]) -> memoryview:
        """What `put` stores, for those who store it later or elsewhere. They have to cap its memory themselves."""
        if not self.coding:
            parts = [part.raw() for part in parts]
        tensors, layouts = [part.tensor for part in parts], [part.layout for part in parts]
        id = self._set_for([tensor.codebook for tensor in tensors if tensor.codebook is not None])
        # The system gives only the pages that are used.
        out = bytes_of(np.empty(HEADER_BYTES + frame_sizes(tensors).bound_bytes, np.uint8))
        frame = self._codec.encode(tensors, layouts, out=out[HEADER_BYTES:], nonce=nonce_of(key))
        if id != NO_SET and self._shadow() and not decodes_to_itself(frame, (tensors, layouts), self._codec):
            log.error("the value of %r does not decode to what was encoded: going on in mode raw", key)
            with self._lock:
                self.counters["shadow_mismatches"] += 1
                self.coding = False
            tensors, id = [part.raw().tensor for part in parts], NO_SET
            frame = self._codec.encode(tensors, layouts, out=out[HEADER_BYTES:], nonce=nonce_of(key))
        write_header(out, len(frame), id)
        return out[: HEADER_BYTES + len(frame)]

    def get(self, key: str, parts: Sequence[Part]) -> bool:
        """Decode what was put under `key` into the memory of `parts`, after verifying it. False: there is nothing, or
        its codebooks are lost.

        Raises StoreError if the store fails, BadValue or SplitzipError if the value is damaged or holds other tensors.
        Then the parts hold anything, and a damaged value is removed, so that it can be put again.
        """
        size = self.values.size(self._prefix + key)
        if size is None:
            return self._missed()
        with self._staging.use(size):
            value = self.values.get(self._prefix + key)
            if value is None:
                return self._missed()
            try:
                self.unpack(key, bytes_of(value), parts)
            except CodebookNotFound as error:
                log.warning("the value of %r cannot be read: %s", key, error)
                with self._lock:
                    self.counters["missing_codebooks"] += 1
                return self._missed()
            except GeometryMismatch:
                raise  # sound, and not what was asked for
            except (SplitzipError, BadValue):
                self._found_damage(key)
                raise
        with self._lock:
            self.counters["hits"] += 1
            self._damaged_in_a_row = 0
        return True

    def unpack(self, key: str, value: memoryview, parts: Sequence[Part], *, padded: bool = False) -> None:
        """Decode what `pack` made, with zeros behind it if `padded`. Raises what `get` raises, and CodebookNotFound."""
        data, id = open_value(value, padded)
        frame = Frame(data, expected_nonce=nonce_of(key))
        coded = frame.tensors(_Lookup(self, id))
        if len(coded) != len(parts):
            raise GeometryMismatch(f"the value holds {len(coded)} tensors, and {len(parts)} are asked for")
        tensors = [
            dataclasses.replace(part.tensor, codebook=tensor.codebook, mode=tensor.mode)
            for part, tensor in zip(parts, coded, strict=True)
        ]
        self._codec.decode(frame, tensors, [part.layout for part in parts])

    def contains(self, key: str) -> bool:
        return self.values.size(self._prefix + key) is not None

    def remove(self, key: str) -> None:
        self.values.remove(self._prefix + key)

    def _missed(self) -> bool:
        with self._lock:
            self.counters["misses"] += 1
        return False

    def _found_damage(self, key: str) -> None:
        with self._lock:
            self.counters["damaged_values"] += 1
            self._damaged_in_a_row += 1
            if self._damaged_in_a_row == self.options.breaker:
                log.warning("%d damaged values in a row: going on in mode raw", self.options.breaker)
                self.coding = False
        with contextlib.suppress(StoreError):
            self.remove(key)

    def _shadow(self) -> bool:
        return self.options.shadow > 0 and next(self._packed) % self.options.shadow == 0

    # Sets of codebooks. Each is stored once, under the hash of its bytes.

    def _set_for(self, codebooks: list[Codebook]) -> bytes:
        if not codebooks:
            return NO_SET
        with self._lock:
            known = [(self._current_id, self._current), *reversed(self._sets.items())]
        for id, set in known:
            if set is not None and all(set.find_hash(codebook.hash) is not None for codebook in codebooks):
                return id
        raise ValueError("no set of codebooks that was given to this store has the codebooks of all parts")

    def _set_key(self, id: bytes) -> str:
        return f"{self._prefix}splitzip.codebooks.{id.hex()}"

    def _publish(self, id: bytes) -> None:
        # Asked each time: a store that was restarted has forgotten them.
        if id != NO_SET and self.values.size(self._set_key(id)) is None:
            self.values.put(self._set_key(id), memoryview(self._sets[id].to_bytes()), keep=True)

    def _fetch_set(self, id: bytes) -> CodebookSet | None:
        """The set with this hash, from the store if it is new here."""
        with self._lock:
            known = self._sets.get(id)
        if known is not None or id == NO_SET:
            return known
        data = self.values.get(self._set_key(id))
        if data is None:
            return None
        data = bytes(data)
        if set_id(data) != id:
            log.error("the codebooks %s are damaged in the store", id.hex())
            self.values.remove(self._set_key(id))
            return None
        found = CodebookSet(data)
        with self._lock:
            self._sets[id] = found
        return found


class _Lookup:
    """Codebooks by hash out of one set that is fetched when the first one is needed."""

    def __init__(self, store: CacheStore, id: bytes) -> None:
        self._store = store
        self._id = id
        self._set: CodebookSet | None = None

    def find_hash(self, hash: int, /) -> Codebook | None:
        if self._set is None:
            self._set = self._store._fetch_set(self._id)
        return None if self._set is None else self._set.find_hash(hash)
