# SPDX-License-Identifier: Apache-2.0
"""Pools whose pages go from one request to the next at once, over an engine that misbehaves.

SPLITZIP_TRANSFERS=10000 python -m pytest python/tests/test_transfer_reuse.py -s
"""

import collections
import os
import random
import threading

import ml_dtypes
import numpy as np

from splitzip_kv.transfer import Part, TransferError
from splitzip_kv.transfer.inprocess import MESSAGE_FAULTS, WRITE_FAULTS, Faults
from transfer_cases import Pair

TRANSFERS = int(os.environ.get("SPLITZIP_TRANSFERS", "400"))
THREADS = 4
PAGES, PAGE_TOKENS, HEADS, DIM = 480, 16, 3, 64
RESIDENT = 3  # requests of a thread that keep their pages while others come and go


class Pool:
    """Pages of one side; what is freed is the next to be taken, so that anything that comes late hits somebody else's request."""

    def __init__(self) -> None:
        self.memory = np.zeros((PAGES, PAGE_TOKENS, HEADS, DIM), ml_dtypes.bfloat16)
        self._free = list(range(PAGES))
        self._lock = threading.Lock()

    def take(self, tokens: int, dice: random.Random) -> list[int]:
        with self._lock:
            pages = [self._free.pop() for _ in range(-(-tokens // PAGE_TOKENS))]
        dice.shuffle(pages)
        return pages

    def give_back(self, pages: list[int]) -> None:
        with self._lock:
            self._free += pages

    def rows(self, pages: list[int], tokens: int) -> np.ndarray:
        return self.memory.view(np.uint16)[pages].reshape(-1, HEADS, DIM)[:tokens]

    def part(self, key: int, pages: list[int], tokens: int, codebook=None) -> Part:
        return Part(
            self.memory,
            "page,token,head,dim",
            key=key,
            pages=pages,
            tokens=tokens,
            codebook=codebook,
            tokens_per_unit=64,
        )


class Worker:
    def __init__(self, pair: Pair, prefill: Pool, decode: Pool) -> None:
        self.pair, self.prefill, self.decode = pair, prefill, decode
        self.resident: collections.deque = collections.deque()
        self.outcomes: collections.Counter[str] = collections.Counter()

    def evict(self) -> None:
        for pages, values in self.resident.popleft():
            assert np.array_equal(self.decode.rows(pages, len(values)), values), (
                "pages of a request that had arrived were written"
            )
            self.decode.give_back(pages)

    def move(self, number: int) -> None:
        dice, rng = random.Random(number), np.random.default_rng(number)
        scale = np.exp2(np.arange(HEADS * DIM) % 7 - 3.0).reshape(HEADS, DIM)
        name = f"request {number}"
        # Half of the frames are as long as many others, so that one of earlier would pass for them but for its nonce.
        alike = dice.random() < 0.5
        codebook = None if alike else self.pair.codebooks.find("kv")
        lengths = [128 if alike else dice.randint(1, 250) for _ in range(dice.randint(1, 2))]
        wanted = [(rng.normal(size=(tokens, HEADS, DIM)) * scale).astype(ml_dtypes.bfloat16) for tokens in lengths]
        targets = [self.decode.take(tokens, dice) for tokens in lengths]
        parts = [self.decode.part(key, pages, tokens) for key, (pages, tokens) in enumerate(zip(targets, lengths))]
        incoming = self.pair.receiver.expect(name, parts, 10.0)
        errors: list[TransferError | None] = [None, None]

        def receive() -> None:
            try:
                incoming.wait()
            except TransferError as error:
                errors[1] = error

        waiting = threading.Thread(target=receive)
        waiting.start()
        trouble = dice.random()
        try:
            request = self.pair.sender.start(self.pair.receiver.address, name, 10.0)
            for key, (tokens, values) in enumerate(zip(lengths, wanted)):
                pages = self.prefill.take(tokens, dice)
                try:
                    filled = self.prefill.memory[pages].reshape(-1, HEADS, DIM)
                    filled[:tokens] = values
                    self.prefill.memory[pages] = filled.reshape(len(pages), PAGE_TOKENS, HEADS, DIM)
                    request.send([self.prefill.part(key, pages, tokens, codebook)])
                finally:  # on return nothing reads them any more
                    self.prefill.memory[pages] = np.nan
                    self.prefill.give_back(pages)
            if trouble < 0.02:
                request.cancel()
            elif trouble < 0.04:
                incoming.cancel()
            elif trouble < 0.06:
                request._session.link.close()
            request.finish()
        except TransferError as error:
            errors[0] = error
            incoming.cancel()
        waiting.join()
        sent, received = errors
        assert sent is not None or received is None, "the sender reports success, the receiver does not"
        if received is None:
            for pages, values in zip(targets, wanted):
                assert np.array_equal(self.decode.rows(pages, len(values)), values.view(np.uint16)), (
                    "wrong bits were exposed"
                )
            self.resident.append([(pages, values.view(np.uint16)) for pages, values in zip(targets, wanted)])
            if len(self.resident) > RESIDENT:
                self.evict()
        else:
            for pages in targets:
                self.decode.give_back(pages)
        self.outcomes["arrived" if sent is None else "unconfirmed" if received is None else "failed"] += 1


def test_page_reuse_with_faults():
    faults = Faults(dict.fromkeys(WRITE_FAULTS + MESSAGE_FAULTS, 0.02), seed=17, delay=0.03)
    numbers, lock = iter(range(TRANSFERS)), threading.Lock()
    problems: list[tuple[int, str]] = []

    def work(worker: Worker) -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                break
            try:
                worker.move(number)
            except Exception as error:
                problems.append((number, repr(error)))
        try:
            while worker.resident:
                worker.evict()
        except AssertionError as error:
            problems.append((-1, repr(error)))

    with Pair(faults, attempts=6) as pair:
        prefill, decode = Pool(), Pool()
        workers = [Worker(pair, prefill, decode) for _ in range(THREADS)]
        threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pair.works()
        counters = pair.sender.counters + pair.receiver.counters
        assert pair.sender.staging.free_count == 16
    outcomes = sum((worker.outcomes for worker in workers), collections.Counter())
    print(dict(outcomes), dict(faults.struck), dict(counters))
    assert not problems
    assert sum(outcomes.values()) == TRANSFERS
    assert outcomes["arrived"] > 0.75 * TRANSFERS and outcomes["failed"] > 0
    assert all(faults.struck[name] > 0 for name in WRITE_FAULTS + MESSAGE_FAULTS)
