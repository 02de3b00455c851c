# SPDX-License-Identifier: Apache-2.0
"""The Mooncake Transfer Engine: peer-to-peer handshake, over TCP or RDMA.

It moves the frames. Messages go over a TCP connection of our own, because the end of a process shows there at once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .control import TcpControlledEngine
from .engine import Segment, address_of
from .errors import Code, TransferError

# More transfers than this in one call make the TCP transport fail: it opens a connection for each.
MAX_BATCH = 512


def has_rdma_device() -> bool:
    return any(Path("/sys/class/infiniband").glob("*"))


class MooncakeEngine(TcpControlledEngine):
    def __init__(self, host: str = "127.0.0.1", *, protocol: str = "tcp", device: str = "") -> None:
        """`host` is where peers reach this process; `protocol` is "tcp" or "rdma", `device` Mooncake's name of one ("mlx5_0").

        Raises TransferError where Mooncake is not installed or cannot start, and for "rdma" on a machine without a device:
        Mooncake would take TCP and say nothing."""
        if protocol not in ("tcp", "rdma"):
            raise ValueError(f'protocol {protocol!r} is neither "tcp" nor "rdma"')
        if protocol == "rdma" and not has_rdma_device():
            raise TransferError(Code.TRANSPORT, "this machine has no RDMA device")
        if protocol == "tcp":
            # Otherwise Mooncake takes RDMA wherever it sees a device, whatever protocol it is given.
            os.environ.setdefault("MC_FORCE_TCP", "1")
        # Messages about every step would drown those of the program; half a minute is long for a peer that hangs.
        # An environment that sets these keeps its say.
        os.environ.setdefault("MC_LOG_LEVEL", "ERROR")
        os.environ.setdefault("MC_TRANSFER_TIMEOUT", "10")
        try:
            from mooncake.engine import TransferEngine
        except ImportError as error:
            raise TransferError(
                Code.TRANSPORT,
                f"the Mooncake Transfer Engine is not usable ({error}); install mooncake-transfer-engine, or "
                "mooncake-transfer-engine-non-cuda on a machine without CUDA, and the system library libibverbs1",
            ) from error
        self._engine = TransferEngine()
        if self._engine.initialize(host, "P2PHANDSHAKE", protocol, device) != 0:
            raise TransferError(Code.TRANSPORT, f"Mooncake cannot start at {host} with protocol {protocol!r}")
        super().__init__(host)
        self._registered: dict[int, np.ndarray] = {}
        self.data_address = f"{host}:{self._engine.get_rpc_port()}"

    def register(self, memory: np.ndarray) -> None:
        address = address_of(memory)
        if self._engine.register_memory(address, memory.nbytes) != 0:
            raise TransferError(Code.TRANSPORT, f"Mooncake cannot register {memory.nbytes} bytes")
        self._registered[address] = memory

    def unregister(self, memory: np.ndarray) -> None:
        if self._registered.pop(address_of(memory), None) is not None:
            self._engine.unregister_memory(address_of(memory))

    def write(self, data_address: str, segments: Sequence[Segment], timeout: float, stop: threading.Event) -> None:
        # A transfer that has begun is waited for whatever happens: the engine reads from the caller's memory until its
        # end. A dead peer ends it at once, one that hangs after MC_TRANSFER_TIMEOUT.
        deadline = time.monotonic() + timeout
        for first in range(0, len(segments), MAX_BATCH):
            if stop.is_set() or time.monotonic() > deadline:
                raise TransferError(Code.TIMEOUT, f"write to {data_address} given up")
            batch = segments[first : first + MAX_BATCH]
            write = self._write_one if len(batch) == 1 else self._write_batch
            result = write(data_address, batch)
            if result < 0:
                raise TransferError(Code.TRANSPORT, f"Mooncake cannot write to {data_address} (result {result})")

    def _write_one(self, data_address: str, batch: Sequence[Segment]) -> int:
        # The synchronous call spins on a core that encoding and decoding can use.
        (segment,) = batch
        transfer = self._engine.transfer_submit_write(data_address, segment.local, segment.remote, segment.length)
        if transfer == 0:
            return -1
        pause = 20e-6
        while (result := int(self._engine.transfer_check_status(transfer))) == 0:
            time.sleep(pause)
            pause = min(pause * 1.2, 1e-3)
        return result

    def _write_batch(self, data_address: str, batch: Sequence[Segment]) -> int:
        result = self._engine.batch_transfer_sync_write(
            data_address,
            [segment.local for segment in batch],
            [segment.remote for segment in batch],
            [segment.length for segment in batch],
        )
        return int(result)

    def close(self) -> None:
        super().close()
        for memory in list(self._registered.values()):
            self.unregister(memory)
