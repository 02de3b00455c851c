# SPDX-License-Identifier: Apache-2.0
"""Plugin for SGLang: caches on their way from prefill to decode servers, over Mooncake (docs/sglang.md).

SGLang calls `activate` in each of its processes (entry point of the group "sglang.srt.plugins"). It does nothing
unless SPLITZIP_SGLANG holds the settings, and nothing if the kill switch is on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .sglang_settings import VARIABLE, log, settings

MODULE = "sglang.srt.disaggregation"


def activate() -> None:
    """Register the hooks with SGLang. Raises ValueError for settings that are wrong; SGLang then logs it and goes on
    without the plugin."""
    if not os.environ.get(VARIABLE):
        return
    if settings().options.raw:
        log.info("the kill switch is on: caches go SGLang's own way")
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(f"{MODULE}.utils.get_kv_class", _get_kv_class, HookType.AROUND)
    for queue in ("prefill.PrefillBootstrapQueue", "decode.DecodePreallocQueue"):
        HookRegistry.register(f"{MODULE}.{queue}._init_kv_manager", _init_kv_manager, HookType.AROUND)


def _get_kv_class(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    found = original(*arguments, **named)
    # Late: only processes that have a cache need what this imports.
    from . import sglang_manager

    return sglang_manager.OURS.get(found, found)


def _init_kv_manager(original: Callable[..., Any], queue: Any) -> Any:
    manager = original(queue)
    from . import sglang_manager

    if isinstance(manager, sglang_manager.SplitZipKVManager):
        manager.attach(queue.token_to_kv_pool, settings())
    return manager
