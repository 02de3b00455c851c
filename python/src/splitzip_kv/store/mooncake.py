# SPDX-License-Identifier: Apache-2.0
"""Mooncake Store: values in the memory of the machines that have joined it."""

from __future__ import annotations

import os
import socket
import time

from .values import StoreError, Values

# What its calls return.
OBJECT_NOT_FOUND = -704
NO_SPACE = -200


class MooncakeValues(Values):
    """A client of a running `mooncake_master`."""

    def __init__(
        self,
        master: str = "127.0.0.1:50051",
        *,
        host: str = "127.0.0.1",
        metadata: str = "P2PHANDSHAKE",
        protocol: str = "tcp",
        device: str = "",
        segment_bytes: int = 256 << 20,
        buffer_bytes: int = 256 << 20,
        patience: float = 1.0,
    ) -> None:
        """`segment_bytes` is memory of this process that the store may fill, 0 to contribute none; a value needs
        room in `buffer_bytes` on its way. A full store evicts in the background: a put tries again for `patience`
        seconds."""
        if protocol == "tcp":
            # Otherwise Mooncake takes RDMA wherever it sees a device, whatever protocol it is given.
            os.environ.setdefault("MC_FORCE_TCP", "1")
        os.environ.setdefault("MC_LOG_LEVEL", "ERROR")
        try:
            from mooncake.store import MooncakeDistributedStore, ReplicateConfig
        except ImportError as error:
            raise StoreError(
                f"the Mooncake Store is not usable ({error}); install mooncake-transfer-engine, or "
                "mooncake-transfer-engine-non-cuda on a machine without CUDA, and the system library libibverbs1"
            ) from error
        try:
            # Mooncake itself would try for a minute and a half.
            address, _, port = master.rpartition(":")
            socket.create_connection((address.strip("[]"), int(port)), timeout=5).close()
        except (OSError, ValueError) as error:
            raise StoreError(f"there is no Mooncake Store with its master at {master}: {error}") from error
        self._usual, self._keep = ReplicateConfig(), ReplicateConfig()
        self._keep.with_hard_pin = True
        self._patience = patience
        self._store = MooncakeDistributedStore()
        result = self._store.setup(host, metadata, segment_bytes, buffer_bytes, protocol, device, master)
        if result != 0:
            raise StoreError(f"Mooncake Store with its master at {master}: setup failed (result {result})")

    def put(self, key: str, value: memoryview, *, keep: bool = False) -> None:
        deadline = time.monotonic() + self._patience
        while (result := self._store.put(key, value, self._keep if keep else self._usual)) != 0:
            if result != NO_SPACE or time.monotonic() >= deadline:
                raise StoreError(f"Mooncake Store does not take {len(value)} bytes for {key!r} (result {result})")
            time.sleep(0.02)

    def get(self, key: str) -> bytes | None:
        value: bytes = self._store.get(key)  # empty, too, where the store fails
        if value:
            return value
        if self.size(key) is None:
            return None
        raise StoreError(f"Mooncake Store does not give the value of {key!r}")

    def size(self, key: str) -> int | None:
        result = int(self._store.get_size(key))
        if result == OBJECT_NOT_FOUND:
            return None
        if result < 0:
            raise StoreError(f"Mooncake Store does not answer for {key!r} (result {result})")
        return result

    def remove(self, key: str) -> None:
        self._store.remove(key, True)

    def close(self) -> None:
        self._store.close()
