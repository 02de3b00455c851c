# SPDX-License-Identifier: Apache-2.0
"""What a store of bytes has to offer, and two that need no server."""

from __future__ import annotations

import abc
import contextlib
import os
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any


class StoreError(Exception):
    """The store did not do what it was asked for: it is not reachable, or it is full."""


class Values(abc.ABC):
    """Bytes under keys. May be used by several threads. Every method raises StoreError if the store fails."""

    @abc.abstractmethod
    def put(self, key: str, value: memoryview, *, keep: bool = False) -> None:
        """Store a copy of `value`, whole or not at all. A value that is there already may stay instead. `keep` asks a
        store that forgets values when it is full not to forget this one."""

    @abc.abstractmethod
    def get(self, key: str) -> Any:
        """The bytes, as anything with the buffer protocol, or None if there are none."""

    @abc.abstractmethod
    def size(self, key: str) -> int | None:
        """Bytes under this key, or None."""

    @abc.abstractmethod
    def remove(self, key: str) -> None:
        """Best effort: a store may keep what is being read. Nothing happens where nothing is."""

    def close(self) -> None:  # noqa: B027
        """Leave the store."""


class DictValues(Values):
    """In this process, for tests."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def put(self, key: str, value: memoryview, *, keep: bool = False) -> None:
        self.values[key] = bytes(value)

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    def size(self, key: str) -> int | None:
        value = self.values.get(key)
        return None if value is None else len(value)

    def remove(self, key: str) -> None:
        self.values.pop(key, None)


class FileValues(Values):
    """A file for each value in one folder, which any number of processes may share. Nothing is ever forgotten."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        name = urllib.parse.quote(key, safe=" ") + ".value"
        if len(name) > 255:
            raise ValueError(f"the key is too long for a file name: {key!r}")
        return self._folder / name

    def put(self, key: str, value: memoryview, *, keep: bool = False) -> None:
        path = self.path(key)
        try:
            # Readers see nothing or all of it.
            with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".", delete=False) as file:
                try:
                    file.write(value)
                    file.close()
                    os.replace(file.name, path)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(file.name)
                    raise
        except OSError as error:
            raise StoreError(f"{path}: {error}") from error

    def get(self, key: str) -> bytes | None:
        try:
            return self.path(key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(str(error)) from error

    def size(self, key: str) -> int | None:
        try:
            return self.path(key).stat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(str(error)) from error

    def remove(self, key: str) -> None:
        try:
            self.path(key).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(str(error)) from error
