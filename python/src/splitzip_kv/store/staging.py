# SPDX-License-Identifier: Apache-2.0
"""A cap on memory for values under way."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from .values import StoreError


class Staging:
    """So many bytes, which several stores may share."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._free = total_bytes
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def use(self, size: int) -> Iterator[None]:
        """Wait until `size` bytes are free, and have them until the end of the block."""
        if size > self.total_bytes:
            raise StoreError(f"the value may need {size} bytes, and staging_bytes is {self.total_bytes}")
        with self._changed:
            while self._free < size:
                self._changed.wait()
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()
