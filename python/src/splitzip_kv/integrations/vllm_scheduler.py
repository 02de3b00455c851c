# SPDX-License-Identifier: Apache-2.0
"""The part of the connector for vLLM that lives in its scheduler: which blocks are to be loaded and saved."""

from __future__ import annotations

import logging
from typing import Any

from ..store import StoreError
from .blocks import block_keys
from .vllm_settings import Load, Settings, Step

log = logging.getLogger("vllm.splitzip")


class SchedulerSide:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._block = settings.block_tokens
        self._store = None if settings.transfers else settings.make_store()
        self._loads: list[Load] = []
        self._matched: dict[str, Load] = {}
        self._asked: set[str] = set()
        self._keys: dict[str, list[str]] = {}
        self._blocks: dict[str, list[int]] = {}
        self._held_now: list[tuple[str, list[int], int]] = []
        self.held: set[str] = set()

    def matched(self, request: Any, computed: int) -> tuple[int, bool]:
        if self._settings.transfers:
            return self._matched_remote(request, computed)
        if self._store is None or computed % self._block:
            return 0, False
        keys = self._keys_of(request)
        # The last token is computed here in any case: its output is wanted.
        usable = (request.num_prompt_tokens - 1) // self._block
        first = last = computed // self._block
        try:
            while last < usable and self._store.contains(keys[last]):
                last += 1
        except StoreError as error:
            log.warning("the store does not answer: %s", error)
            return 0, False
        if last == first or request.request_id in self._asked:
            return 0, False
        self._matched[request.request_id] = Load(request.request_id, [], keys[first:last], skip=computed)
        return (last - first) * self._block, True

    def _matched_remote(self, request: Any, computed: int) -> tuple[int, bool]:
        params = request.kv_transfer_params or {}
        if not (params.get("do_remote_prefill") and self._settings.receives) or request.request_id in self._asked:
            return 0, False
        address, remote, tokens = (params.get(f"splitzip_{name}") for name in ("address", "request", "tokens"))
        if not (isinstance(address, str) and isinstance(remote, str)) or tokens != request.num_prompt_tokens:
            log.warning("request %s: these kv_transfer_params are no use: %s", request.request_id, params)
            return 0, False
        if tokens <= computed or computed % self._block:
            return 0, False
        self._matched[request.request_id] = Load(
            request.request_id, [], address=address, remote_request=remote, tokens=tokens - computed, skip=computed
        )
        return tokens - computed, True

    def allocated(self, request: Any, blocks: list[int], external: int) -> None:
        load = self._matched.pop(request.request_id, None)
        if load is None or external == 0:
            return
        self._asked.add(request.request_id)  # what could not be loaded is computed, and not asked for again
        first = load.skip // self._block
        load.blocks = list(blocks[first : first - (-external // self._block)])
        self._loads.append(load)

    def step(self, output: Any) -> Step:
        made = Step(self._loads, [], self._held_now)
        self._loads, self._held_now = [], []
        if self._settings.transfers or not self._settings.sends:
            return made
        for new in output.scheduled_new_reqs:
            self._blocks[new.req_id] = list(new.block_ids[0])
            self._save(made, new.req_id, new.num_computed_tokens, output)
        cached = output.scheduled_cached_reqs
        for number, request in enumerate(cached.req_ids):
            new_blocks = cached.new_block_ids[number]
            if request in cached.resumed_req_ids:
                self._blocks[request] = []
            self._blocks.setdefault(request, []).extend(new_blocks[0] if new_blocks else [])
            self._save(made, request, cached.num_computed_tokens[number], output)
        return made

    def _save(self, made: Step, request: str, computed: int, output: Any) -> None:
        keys, blocks = self._keys.get(request, []), self._blocks[request]
        end = (computed + output.num_scheduled_tokens[request]) // self._block
        for index in range(computed // self._block, min(end, len(keys), len(blocks))):
            made.saves.append((keys[index], blocks[index]))

    def finished(self, request: Any, blocks: list[int]) -> tuple[bool, dict[str, Any] | None]:
        name = request.request_id
        for known in (self._keys, self._blocks, self._matched):
            known.pop(name, None)
        self._asked.discard(name)
        params = request.kv_transfer_params or {}
        if not (self._settings.transfers and self._settings.sends and params.get("do_remote_decode")):
            return False, None
        if request.num_computed_tokens < request.num_prompt_tokens:
            return False, None  # it was aborted
        self.held.add(name)
        self._held_now.append((name, list(blocks), request.num_prompt_tokens))
        return True, {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "splitzip_address": f"{self._settings.host}:{self._settings.port}",
            "splitzip_request": name,
            "splitzip_tokens": request.num_prompt_tokens,
        }

    def _keys_of(self, request: Any) -> list[str]:
        if request.request_id not in self._keys:
            salt = [request.cache_salt or "", request.lora_request.lora_name if request.lora_request else ""]
            salt += [f"{feature.identifier}@{feature.mm_position.offset}" for feature in request.mm_features or ()]
            tokens = request.prompt_token_ids
            keys = [] if tokens is None else block_keys(tokens, self._block, "\0".join(salt))
            self._keys[request.request_id] = keys
        return self._keys[request.request_id]
