# SPDX-License-Identifier: Apache-2.0
"""Caches to move in tests: paged pools with different pages on the two sides, and a comparison bit for bit."""

from __future__ import annotations

import dataclasses
import threading

import ml_dtypes
import numpy as np

from splitzip_kv import Calibration, CodebookSet, ElementType, Layout
from splitzip_kv.transfer import Options, Part, Receiver, Sender, TransferError
from splitzip_kv.transfer.inprocess import Faults, Network

QUICK = {
    "staging_bytes": 1 << 20,
    "slot_bytes": 1 << 16,
    "slots_per_session": 4,
    "timeout": 5.0,
    "connect_timeout": 2.0,
    "resend_interval": 0.02,
    "settle_time": 0.03,
}
CHANNELS = 192


def values(rng: np.random.Generator, tokens: int, channels: int) -> np.ndarray:
    """Like keys: every channel has a magnitude of its own."""
    scale = np.exp2(np.arange(channels) % 7 - 3.0)
    return (rng.normal(size=(tokens, channels)) * scale).astype(ml_dtypes.bfloat16)


def make_codebooks(seed: int = 1) -> CodebookSet:
    rng = np.random.default_rng(seed)
    calibration = Calibration()
    calibration.add("kv", Layout(values(rng, 256, CHANNELS), "token,channel"))
    return calibration.finish()


@dataclasses.dataclass
class Side:
    pool: np.ndarray  # [page, token, head, dim]
    pages: np.ndarray
    tokens: int

    def rows(self) -> np.ndarray:
        used = self.pool.view(np.uint16)[self.pages]
        return used.reshape(-1, *used.shape[2:])[: self.tokens]

    def others(self) -> np.ndarray:
        """Everything that is not a row of the request."""
        rest = self.pool.view(np.uint16).copy()
        page_tokens = rest.shape[1]
        for token in range(self.tokens):
            rest[self.pages[token // page_tokens], token % page_tokens] = 0
        return rest


class Tensor:
    """One tensor on both sides, with page sizes, page numbers and unused memory of their own."""

    def __init__(self, rng: np.random.Generator, key: int, tokens: int, heads: int = 3, unit: int = 64) -> None:
        self.key, self.tokens, self.heads, self.unit = key, tokens, heads, unit
        self.source = self._side(rng)
        self.target = self._side(rng)
        self.untouched = self.target.others()

    def _side(self, rng: np.random.Generator) -> Side:
        page_tokens = int(rng.choice([1, 4, 16, 64]))
        count = -(-self.tokens // page_tokens)
        total = count + int(rng.integers(0, 4))
        pool = values(rng, total * page_tokens, CHANNELS)[:, : self.heads * 64]
        pool = np.ascontiguousarray(pool).reshape(total, page_tokens, self.heads, 64)
        return Side(pool, rng.permutation(total)[:count], self.tokens)

    def part(self, side: Side, codebook=None) -> Part:
        return self.part_of(side.pool, side, codebook)

    def part_of(self, array, side: Side, codebook, type: ElementType | None = None) -> Part:
        """Of memory that has the pool of a side."""
        return Part(
            array,
            "page,token,head,dim",
            key=self.key,
            pages=side.pages,
            tokens=self.tokens,
            codebook=codebook,
            type=type,
            tokens_per_unit=self.unit,
        )

    def arrived(self) -> bool:
        return bool(np.array_equal(self.source.rows(), self.target.rows()))

    def only_there(self) -> bool:
        return bool(np.array_equal(self.untouched, self.target.others()))


def some_tensors(rng: np.random.Generator, most_parts: int = 4, most_tokens: int = 400) -> list[Tensor]:
    unit = int(rng.choice([16, 64, 128]))
    return [
        Tensor(rng, key, int(rng.integers(1, most_tokens + 1)), int(rng.integers(1, 4)), unit)
        for key in range(int(rng.integers(1, most_parts + 1)))
    ]


class Pair:
    """A sender and a receiver in one process, on a network that can misbehave."""

    def __init__(self, faults: Faults | None = None, receiver: dict | None = None, **options) -> None:
        self.codebooks = make_codebooks()
        self.network = Network(faults)
        self.options = QUICK | options
        self.receiver = Receiver(self.network.engine(), self.codebooks, Options(**(self.options | (receiver or {}))))
        self.sender = Sender(self.network.engine(), self.codebooks, Options(**self.options))

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_) -> None:
        self.sender.close()
        self.receiver.close()
        self.network.close()

    def expect(self, name: str, tensors: list[Tensor], timeout: float | None = None):
        return self.receiver.expect(name, [tensor.part(tensor.target) for tensor in tensors], timeout)

    def parts(self, tensors: list[Tensor]) -> list[Part]:
        codebook = self.codebooks.find("kv")
        return [tensor.part(tensor.source, codebook) for tensor in tensors]

    def move(self, name: str, tensors: list[Tensor], timeout: float | None = None):
        """Both sides of a transfer; gives (error or None) of the sender and of the receiver."""
        errors: list[TransferError | None] = [None, None]
        incoming = self.expect(name, tensors, timeout)

        def receive() -> None:
            try:
                incoming.wait()
            except TransferError as error:
                errors[1] = error

        waiting = threading.Thread(target=receive)
        waiting.start()
        try:
            request = self.sender.start(self.receiver.address, name, timeout)
            for part in self.parts(tensors):
                request.send([part])
            request.finish()
        except TransferError as error:
            errors[0] = error
        waiting.join()
        return errors

    def works(self, seed: int = 99) -> None:
        """A transfer on a network that behaves."""
        self.network.faults = Faults()
        tensors = some_tensors(np.random.default_rng(seed))
        assert self.move("afterwards", tensors) == [None, None]
        assert all(tensor.arrived() and tensor.only_there() for tensor in tensors)
