# SPDX-License-Identifier: Apache-2.0
"""LMCache 0.5: an L2 adapter that stores compressed chunks, and a serde for adapters of its own: docs/lmcache.md.

--l2-adapter '{"type": "plugin", "module_path": "splitzip_kv.integrations.lmcache",
               "class_name": "SplitZipL2Adapter", "adapter_params": {"store": "redis://127.0.0.1:6379/0"}}'
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.distributed.serde import (
    AsyncSerdeProcessor,
    Deserializer,
    Serializer,
    get_registered_serde_types,
    register_serde_factory,
)
from lmcache.v1.platform import create_event_notifier

from .. import CodebookNotFound, SplitzipError
from ..store import DictValues, StoreError, StoreOptions, open_values
from .objects import Scopes, Tensors

log = logging.getLogger("splitzip_kv.lmcache")

LEARN_TOKENS = 2048


def scope_of(key: Any) -> str:
    """Whose codebooks: the tensors of one rank and group of one model."""
    return f"{key.model_name}/{key.kv_rank:x}.{key.object_group_id}"


def name_of(key: Any) -> str:
    salt = f"@{key.cache_salt}" if key.cache_salt else ""
    return str(key.chunk_hash.hex()) + salt


def tensors_of(object: Any) -> Tensors:
    return Tensors([object.get_tensor(index) for index in range(len(object.get_shapes()))])


class SplitZipL2Adapter(L2AdapterInterface):
    """Chunks in a store of values.

    `adapter_params`: "store" (an address for `open_values`), "codebooks" (folder that keeps them; without it each
    process makes its own), "learn_tokens" (how many tokens they are made of), "max_workers", "max_capacity_bytes" (for
    LMCache's eviction), and the fields of `StoreOptions`.
    """

    def __init__(self, params: dict[str, Any], l1_memory_desc: Any = None) -> None:
        params = dict(params)
        super().__init__(max_capacity_bytes=int(params.pop("max_capacity_bytes", 0)))
        self._values = open_values(params.pop("store"))
        folder = params.pop("codebooks", None)
        learn_tokens = int(params.pop("learn_tokens", LEARN_TOKENS))
        self._pool = ThreadPoolExecutor(int(params.pop("max_workers", 2)), "splitzip-l2")
        self._scopes = Scopes(self._values, folder, learn_tokens, StoreOptions(**params))
        self._store_event, self._lookup_event, self._load_event = (create_event_notifier() for _ in range(3))
        self._lock = threading.Lock()
        self._next_task = 0
        self._stored: dict[int, L2StoreResult] = {}
        self._looked_up: dict[int, Bitmap] = {}
        self._loaded: dict[int, Bitmap] = {}

    def get_store_event_fd(self) -> int:
        return int(self._store_event.fileno())

    def get_lookup_and_lock_event_fd(self) -> int:
        return int(self._lookup_event.fileno())

    def get_load_event_fd(self) -> int:
        return int(self._load_event.fileno())

    def submit_store_task(self, keys: list[Any], objects: list[Any]) -> int:
        def store() -> L2StoreResult:
            sizes = [self._store(key, object) for key, object in zip(keys, objects, strict=True)]
            new = [(key, size) for key, size in zip(keys, sizes, strict=True) if size]
            if new:
                self._notify_keys_stored([key for key, _ in new], [size for _, size in new])
            return L2StoreResult(None not in sizes, sum(size for _, size in new))

        return self._submit(store, self._stored, self._store_event, L2StoreResult(False, 0))

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        with self._lock:
            done, self._stored = dict(self._stored), self._stored
            self._stored.clear()
        return done

    def submit_lookup_and_lock_task(self, keys: list[Any], group_layout_descs: dict[int, Any]) -> int:
        def look_up() -> Bitmap:
            return self._each(keys, lambda index: self._store_of(keys[index]).contains(name_of(keys[index])))

        return self._submit(look_up, self._looked_up, self._lookup_event, Bitmap(len(keys)))

    def query_lookup_and_lock_result(self, task_id: int) -> Bitmap | None:
        with self._lock:
            return self._looked_up.pop(task_id, None)

    def submit_unlock(self, keys: list[Any]) -> None:
        """Nothing is locked: a chunk that is deleted before it was loaded is a miss."""

    def submit_load_task(self, keys: list[Any], objects: list[Any]) -> int:
        def load() -> Bitmap:
            found = self._each(keys, lambda index: self._load(keys[index], objects[index]))
            self._notify_keys_accessed([key for index, key in enumerate(keys) if found.test(index)])
            return found

        return self._submit(load, self._loaded, self._load_event, Bitmap(len(keys)))

    def query_load_result(self, task_id: int) -> Bitmap | None:
        with self._lock:
            return self._loaded.pop(task_id, None)

    def delete(self, keys: list[Any]) -> None:
        removed, sizes = [], []
        for key in keys:
            store = self._store_of(key)
            size = self._values.size(f"{scope_of(key)}/{name_of(key)}")
            if size is not None:
                store.remove(name_of(key))
                removed.append(key)
                sizes.append(size)
        if removed:
            self._notify_keys_deleted(removed, sizes)

    def report_status(self) -> dict[str, Any]:
        return {"is_healthy": True, "type": type(self).__name__, **self._scopes.counters()}

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        for event in (self._store_event, self._lookup_event, self._load_event):
            event.close()
        self._values.close()

    def _submit(self, work: Callable[[], Any], results: dict[int, Any], event: Any, failed: Any) -> int:
        with self._lock:
            task = self._next_task
            self._next_task += 1

        def run() -> None:
            try:
                result = work()
            except Exception:  # whatever it is, the controller is waiting
                log.exception("a task failed")
                result = failed
            with self._lock:
                results[task] = result
            event.notify()

        self._pool.submit(run)
        return task

    def _each(self, keys: list[Any], found: Callable[[int], bool]) -> Bitmap:
        bitmap = Bitmap(len(keys))
        for index in range(len(keys)):
            if found(index):
                bitmap.set(index)
        return bitmap

    def _store_of(self, key: Any) -> Any:
        return self._scopes.get(scope_of(key))[0]

    def _store(self, key: Any, object: Any) -> int | None:
        """Bytes that were stored, 0 if it was there, None if it failed."""
        store, learner = self._scopes.get(scope_of(key))
        tensors = tensors_of(object)
        try:
            learner.see(tensors.layouts(), tensors.tokens)
            return 0 if store.contains(name_of(key)) else store.put(name_of(key), tensors.parts(learner.find))
        except (StoreError, SplitzipError, ValueError) as error:
            log.warning("chunk %s was not stored: %s", name_of(key), error)
            return None

    def _load(self, key: Any, object: Any) -> bool:
        store, _ = self._scopes.get(scope_of(key))
        try:
            return bool(store.get(name_of(key), tensors_of(object).parts()))
        except (StoreError, SplitzipError) as error:
            log.warning("chunk %s was not loaded: %r", name_of(key), error)
            return False


class SplitZipSerde(Serializer, Deserializer):
    """Chunks for LMCache's own adapters, which want to know a chunk's size beforehand.

    Each takes `budget` times its raw bytes, whatever it needed; what needs more is not stored. "codebooks" is the
    folder that keeps the codebooks: they are made of the first chunks, which are not stored.
    """

    def __init__(
        self, codebooks: str, *, budget: float = 0.72, learn_tokens: int = LEARN_TOKENS, **options: Any
    ) -> None:
        if not budget > 0:
            raise ValueError("budget has to be positive")
        self._budget = budget
        self._options = StoreOptions(**options)
        self._folder, self._learn_tokens = codebooks, learn_tokens
        # What they hold is taken out at once: the values of LMCache's adapter are those that count.
        self._values = DictValues()
        self._scopes = Scopes(self._values, codebooks, learn_tokens, self._options)

    def estimate_serialized_size(self, layout_desc: Any) -> int:
        raw = 0
        for shape, dtype in zip(layout_desc.shapes, layout_desc.dtypes, strict=True):
            raw += shape.numel() * dtype.itemsize
        return int(raw * self._budget) + 4096

    def serialize(self, src: Any, dst: Any, key: Any) -> int:
        store, learner = self._scopes.get(scope_of(key))
        tensors, room = tensors_of(src), memoryview(dst.byte_array).cast("B")
        learner.see(tensors.layouts(), tensors.tokens)
        if not learner.done:
            raise StoreError("no codebooks yet: the first chunks go into them and are not stored")
        value = store.pack(name_of(key), tensors.parts(learner.find))
        if len(value) > len(room):
            raise StoreError(f"the chunk needs {len(value)} bytes, and the budget is {len(room)}")
        room[: len(value)] = value
        room[len(value) :] = bytes(len(room) - len(value))  # else what was there before would be stored
        return len(room)

    def deserialize(self, src: Any, dst: Any, key: Any) -> None:
        store, _ = self._scopes.get(scope_of(key))
        try:
            store.unpack(name_of(key), memoryview(src.byte_array).cast("B"), tensors_of(dst).parts(), padded=True)
        except CodebookNotFound as error:
            raise StoreError(f"codebooks of another process or time: {error}") from error


def _create_serde(kwargs: dict[str, Any]) -> AsyncSerdeProcessor:
    kwargs = dict(kwargs)
    workers = int(kwargs.pop("max_workers", 1))
    serde = SplitZipSerde(**kwargs)
    return AsyncSerdeProcessor(serde, serde, max_workers=workers)


if "splitzip" not in get_registered_serde_types():
    register_serde_factory("splitzip", _create_serde)
