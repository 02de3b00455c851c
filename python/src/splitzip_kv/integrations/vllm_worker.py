# SPDX-License-Identifier: Apache-2.0
"""The part of the connector for vLLM that lives where the cache is: loads, saves and sends blocks."""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .. import CodebookSet, SplitzipError
from ..store import CacheStore, Learner, StoreError
from ..transfer import Receiver, Sender, TransferError
from .blocks import Blocks
from .prefill import NotSent, PrefillService, fetch
from .vllm_settings import Load, Settings, Step

log = logging.getLogger("vllm.splitzip")

# Called by the engine's thread, it returns what waits until all is done that the engine has launched so far.
Fence = Callable[[], Callable[[], None]]


def on_host() -> Callable[[], None]:
    """The fence of an engine that launches nothing."""
    return lambda: None


def launched_on(device: Any) -> Callable[[], None]:
    """The fence of an engine that works on the current stream of a GPU (torch.device)."""
    import torch

    event = torch.cuda.Event(blocking=True)
    event.record(torch.cuda.current_stream(device))
    wait: Callable[[], None] = event.synchronize
    return wait


class WorkerSide:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._blocks: Blocks | None = None
        self._fence: Fence = on_host
        self._lock = threading.Lock()
        self._loaded: set[str] = set()
        self._failed: set[int] = set()
        self._loading = 0
        self._worked = False
        self._counters: collections.Counter[str] = collections.Counter()
        self._reported: collections.Counter[str] = collections.Counter()
        self._pool = ThreadPoolExecutor(2, "splitzip-load")
        self._savers = ThreadPoolExecutor(1, "splitzip-save")
        self._unsaved_bytes = 0
        self._store: CacheStore | None = None
        self._sender: Sender | None = None
        self._receiver: Receiver | None = None
        self._service: PrefillService | None = None

    def register(self, blocks: Blocks, fence: Fence = on_host) -> None:
        """`fence` is for a cache in the memory of a GPU: blocks are read when they are written, and written when nobody
        reads them for their last owner any more."""
        self._blocks, self._fence = blocks, fence
        if self._settings.transfers:
            self._open_transfers()
        else:
            self._store = self._settings.make_store()
            self._learner = Learner(self._store, self._settings.learn_tokens, self._settings.codebooks)

    def _open_transfers(self) -> None:
        settings, blocks = self._settings, self._blocks
        assert blocks is not None
        options = blocks.options(settings.options, between_gpus=settings.between_gpus)
        codebooks = CodebookSet.load(settings.codebooks) if settings.codebooks else None
        if settings.receives:
            self._receiver = Receiver(settings.make_engine(blocks.device), codebooks, options)
        if settings.sends:
            find = codebooks.find if codebooks else None
            self._sender = Sender(settings.make_engine(blocks.device), codebooks, options)
            self._service = PrefillService(
                settings.host,
                settings.port + settings.rank,
                self._sender,
                lambda ids, tokens: blocks.parts(ids, tokens, find),
                blocks.raw_bytes,
                settings.block_tokens,
                settings.hold_seconds,
            )

    def start(self, step: Step) -> None:
        launched = self._fence() if step.held or step.loads else on_host()
        for held in step.held:
            if self._service is not None:
                self._service.hold(*held, launched)
        for load in step.loads:
            with self._lock:
                self._loading += 1
            self._pool.submit(self._load, load, launched)
        self._worked = bool(step.saves or step.loads)

    def _load(self, load: Load, launched: Callable[[], None]) -> None:
        begin = time.perf_counter()
        failed: list[int] = []
        try:
            launched()
            failed = self._fetch(load) if self._settings.transfers else self._get(load)
        except Exception:  # whatever it is, the scheduler is waiting
            log.exception("loading the cache of %s", load.request)
            failed = load.blocks
        with self._lock:
            self._loading -= 1
            self._failed.update(failed)
            self._loaded.add(load.request)
            self._counters["loads"] += 1
            self._counters["load_microseconds"] += int(1e6 * (time.perf_counter() - begin))
            self._counters["loaded_blocks"] += len(load.blocks) - len(failed)
            self._counters["failed_blocks"] += len(failed)

    def _get(self, load: Load) -> list[int]:
        assert self._store is not None and self._blocks is not None
        for index, (key, block) in enumerate(zip(load.keys, load.blocks, strict=True)):
            try:
                parts, finish = self._blocks.targets([block])
                if self._store.get(key, parts):
                    finish()
                    continue
                log.warning("block %s is not in the store any more", key)
            except (StoreError, SplitzipError) as error:
                log.warning("block %s was not loaded: %r", key, error)
            return load.blocks[index:]  # what follows is no use without it
        return []

    def _fetch(self, load: Load) -> list[int]:
        assert self._receiver is not None and self._blocks is not None
        parts, finish = self._blocks.targets(load.blocks, load.tokens)
        timeout = self._receiver.options.timeout
        host, _, port = load.address.rpartition(":")
        try:
            address = f"{host}:{int(port) + self._settings.rank}"
            report = fetch(self._receiver, address, load.remote_request, parts, load.skip, timeout)
        except (NotSent, TransferError, ValueError) as error:
            log.warning("the cache of %s was not loaded: %s", load.request, error)
            return load.blocks
        finish()
        with self._lock:
            self._counters["received_bytes"] += report["wire_bytes"]
            self._counters["received_raw_bytes"] += self._blocks.raw_bytes(load.tokens)
        return []

    def save(self, step: Step) -> None:
        """Encode what this step has completed, which may change after it, and store it behind the engine's back."""
        if self._store is None or self._blocks is None:
            return
        begin = time.perf_counter()
        if step.saves:
            self._fence()()
        for key, block in step.saves:
            try:
                if self._store.contains(key):
                    continue
                self._learner.see(self._blocks.layouts([block]), self._blocks.block_tokens)
                value = self._store.pack(key, list(self._blocks.parts([block], find=self._learner.find)))
            except (StoreError, SplitzipError) as error:
                log.warning("block %s was not stored: %r", key, error)
                continue
            with self._lock:
                if self._unsaved_bytes + len(value) > self._store.options.staging_bytes:
                    self._counters["skipped_blocks"] += 1  # the engine does not wait for a store
                    continue
                self._unsaved_bytes += len(value)
            self._savers.submit(self._put, key, value)
        if step.saves:
            with self._lock:
                self._counters["save_microseconds"] += int(1e6 * (time.perf_counter() - begin))

    def _put(self, key: str, value: memoryview) -> None:
        assert self._store is not None and self._blocks is not None
        try:
            self._store.put_packed(key, value)
            with self._lock:
                self._counters["stored_blocks"] += 1
                self._counters["stored_bytes"] += len(value)
                self._counters["stored_raw_bytes"] += self._blocks.raw_bytes(self._blocks.block_tokens)
        except StoreError as error:
            log.warning("block %s was not stored: %s", key, error)
        finally:
            with self._lock:
                self._unsaved_bytes -= len(value)

    def finished(self) -> tuple[set[str] | None, set[str] | None]:
        sent = self._service.over() if self._service is not None else set()
        with self._lock:
            loaded, self._loaded = self._loaded, set()
            idle = bool(self._loading or self._service) and not (loaded or sent or self._worked)
        if idle:
            time.sleep(0.001)  # else the engine spins, and takes the processor from those that it waits for
        return sent or None, loaded or None

    def failed_blocks(self) -> set[int]:
        with self._lock:
            failed, self._failed = self._failed, set()
        return failed

    def counts(self) -> dict[str, int]:
        """Since the last call."""
        with self._lock:
            now = collections.Counter(self._counters)
        if self._service is not None:
            now["sent_bytes"], now["sent_raw_bytes"] = self._service.wire_bytes, self._service.raw_bytes
            now["sends"], now["failed_sends"] = self._service.sent, self._service.failed
        if self._store is not None:
            now["damaged_blocks"] = self._store.counters["damaged_values"]
            now["shadow_mismatches"] = self._store.counters["shadow_mismatches"]
        new = {name: count - self._reported[name] for name, count in now.items() if count != self._reported[name]}
        self._reported = now
        return new

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._savers.shutdown(wait=True)
        if self._service is not None:
            self._service.close()
        for side in (self._sender, self._receiver):
            if side is not None:
                side.close()
        if self._store is not None:
            self._store.values.close()
