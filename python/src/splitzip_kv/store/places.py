# SPDX-License-Identifier: Apache-2.0
"""Stores by address, for configurations that are text."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from .values import DictValues, FileValues, StoreError, Values


def open_values(address: str) -> Values:
    """`file:///folder`, `redis://host:port/0`, `mooncake://master:port?segment_bytes=N&buffer_bytes=N&host=H&protocol=P
    &device=D`, or `memory:` for this process alone."""
    parts = urlsplit(address)
    if parts.scheme == "file" and parts.path.startswith("/"):
        return FileValues(unquote(parts.path))
    if parts.scheme == "memory":
        return DictValues()
    if parts.scheme in ("redis", "rediss", "unix"):
        from .redis import RedisValues

        return RedisValues(address)
    if parts.scheme == "mooncake":
        from .mooncake import MooncakeValues

        numbers, texts = ("segment_bytes", "buffer_bytes"), ("host", "metadata", "protocol", "device")
        settings = dict(parse_qsl(parts.query))
        if wrong := set(settings) - {*numbers, *texts}:
            raise StoreError(f"{address}: no such setting: {', '.join(sorted(wrong))}")
        try:
            arguments: dict[str, Any] = {name: int(settings[name]) for name in numbers if name in settings}
        except ValueError as error:
            raise StoreError(f"{address}: {error}") from error
        arguments |= {name: settings[name] for name in texts if name in settings}
        return MooncakeValues(parts.netloc, **arguments)
    raise StoreError(f"{address}: a store is file:///folder, redis://host:port/0, mooncake://master:port or memory:")
