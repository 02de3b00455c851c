# SPDX-License-Identifier: Apache-2.0
"""Redis, Valkey, and what speaks their protocol."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .values import StoreError, Values


class RedisValues(Values):
    """Strings of a server. `keep` has no meaning there: a server that evicts may evict codebooks, too."""

    def __init__(self, url: str = "redis://127.0.0.1:6379/0", *, timeout: float = 10.0) -> None:
        try:
            import redis
        except ImportError as error:
            raise StoreError(f"the client of Redis is not usable ({error}); install redis") from error
        self._errors = redis.RedisError
        self._client: Any = redis.Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout)
        with self._told():
            self._client.ping()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise StoreError(f"Redis: {error}") from error

    def put(self, key: str, value: memoryview, *, keep: bool = False) -> None:
        with self._told():
            self._client.set(key, value)

    def get(self, key: str) -> bytes | None:
        with self._told():
            value: bytes | None = self._client.get(key)
        return value

    def size(self, key: str) -> int | None:
        with self._told():
            # The length of what does not exist is 0; no value of ours is empty.
            return int(self._client.strlen(key)) or None

    def remove(self, key: str) -> None:
        with self._told():
            self._client.delete(key)

    def close(self) -> None:
        self._client.close()
