# SPDX-License-Identifier: Apache-2.0
"""A request on the receiving side: what is expected, and how much of it is there."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .. import Codebook, Layout, Mode, Tensor
from . import messages
from .errors import Code, TransferError
from .parts import Part
from .report import TransferReport

if TYPE_CHECKING:
    from .receiver import Receiver, Session


class ExpectedPart:
    """One expected part and which of its blocks are spoken for."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.left = part.blocks
        self._taken: list[tuple[int, int]] = []

    def take(self, record: messages.TensorRecord, codebook: Codebook | None) -> tuple[Tensor, Layout]:
        """What to decode this entry as, and to where. Raises TransferError unless it is a part of what is expected."""
        expected = self.part.tensor
        for name in ("type", "channels", "ranges", "first_channel", "tokens_per_unit"):
            theirs, ours = getattr(record, name), getattr(expected, name)
            if theirs != ours:
                raise TransferError(
                    Code.GEOMETRY, f"tensor {record.tensor_key}: {name} is {theirs}, expected is {int(ours)}"
                )
        first = record.first_block - expected.first_block
        count = -(-record.tokens // record.tokens_per_unit)
        if record.tokens == 0 or first < 0 or first + count > self.part.blocks:
            raise TransferError(
                Code.GEOMETRY,
                f"tensor {record.tensor_key}: {record.tokens} tokens from block {record.first_block}, expected are "
                f"{expected.tokens} from block {expected.first_block}",
            )
        tensor, layout = self.part.run(first, count)
        if tensor.tokens != record.tokens:
            raise TransferError(
                Code.GEOMETRY, f"tensor {record.tensor_key}: {record.tokens} tokens where {tensor.tokens} belong"
            )
        if any(first < end and begin < first + count for begin, end in self._taken):
            raise TransferError(
                Code.GEOMETRY, f"tensor {record.tensor_key}: blocks from {record.first_block} on were sent before"
            )
        self._mark(first, first + count)
        mode = Mode(record.mode)
        slot_words = None if mode is Mode.RAW else record.slot_words
        return dataclasses.replace(tensor, codebook=codebook, mode=mode, slot_words=slot_words), layout

    def _mark(self, begin: int, end: int) -> None:
        runs: list[tuple[int, int]] = []
        for run in sorted([*self._taken, (begin, end)]):
            if runs and runs[-1][1] == run[0]:
                runs[-1] = (runs[-1][0], run[1])
            else:
                runs.append(run)
        self._taken = runs


@dataclasses.dataclass
class IncomingChunk:
    message: messages.Chunk
    tensors: list[Tensor]
    layouts: list[Layout]
    blocks: list[tuple[ExpectedPart, int]]
    give_up_at: float
    scheduled: bool = False
    done: bool = False
    tries: int = 0


class IncomingRequest:
    """One cache that is to arrive. `wait` returns when all of it is in its place and verified."""

    def __init__(self, receiver: Receiver, name: str, parts: Iterable[Part], timeout: float) -> None:
        self.name = name
        self.deadline = time.monotonic() + timeout
        self.report = TransferReport()
        self.error: TransferError | None = None
        self.parts: dict[int, ExpectedPart] = {}
        for part in parts:
            if part.layout.readonly:
                raise ValueError(f"memory of tensor {part.tensor.tensor_key} is read-only")
            if self.parts.setdefault(part.tensor.tensor_key, incoming := ExpectedPart(part)) is not incoming:
                raise ValueError(f"two parts have the key {part.tensor.tensor_key}")
        self.left = sum(part.left for part in self.parts.values())
        self.chunks: dict[int, IncomingChunk] = {}
        self.decoding = 0
        self.session: Session | None = None
        self.number = 0
        self._receiver = receiver

    @property
    def done(self) -> bool:
        return self.left == 0 and self.session is not None

    def wait(self) -> TransferReport:
        """Raises TransferError if it failed: the parts then hold anything, and nothing writes to them any more."""
        return self._wait(lambda: self.done)

    def wait_for(self, key: int) -> None:
        """Wait for one part, for those who start with the first layer while the last one is under way."""
        self._wait(lambda: self.parts[key].left == 0)

    def cancel(self, reason: str = "cancelled by the receiver") -> None:
        """Give it up. On return nothing writes to the memory of the parts any more. Does nothing after the end."""
        receiver = self._receiver
        with receiver.lock:
            receiver.fail(self, TransferError(Code.CANCELLED, reason))
            while self.decoding:
                receiver.lock.wait()

    def _wait(self, done: Callable[[], bool]) -> TransferReport:
        receiver = self._receiver
        with receiver.lock:
            try:
                receiver.wait(lambda: self.error is not None or done(), self.deadline, "it did not arrive in time")
            except TransferError as error:
                receiver.fail(self, error)
            if self.error is None:
                return self.report
            while self.decoding:
                receiver.lock.wait()
            raise self.error
