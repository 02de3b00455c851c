# SPDX-License-Identifier: Apache-2.0
"""An engine inside of one process that can be told to misbehave, for tests of what is built on engines.

Engines of one `Network` reach each other. `Faults` says what goes wrong with writes and messages, and how often; every
choice comes from its seed.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from .engine import Engine, Event, Link, Segment, address_of
from .errors import Code, TransferError

WRITE_FAULTS = ("early", "drop", "fail", "corrupt", "cut", "stale", "late_copy", "slow")
MESSAGE_FAULTS = ("lose", "twice", "swap", "wait", "damage", "shorten")


@dataclasses.dataclass
class Faults:
    """Probability of each fault, by name; at most one strikes a write or a message.

    Writes: `early` reports completion and delivers pieces later in any order; `drop` reports it and delivers nothing;
    `fail` reports an error after a part; `corrupt` flips bits; `cut` delivers a first part only; `stale` delivers what
    an earlier write to that place carried; `late_copy` delivers now and once more later; `slow` takes its time.
    Messages: `lose`, `twice`, `swap` (a later one overtakes it), `wait`, `damage` (a bit flips), `shorten`.
    """

    probabilities: dict[str, float] = dataclasses.field(default_factory=dict)
    seed: int = 0
    delay: float = 0.02
    """Longest delay of what comes later, in seconds."""

    def __post_init__(self) -> None:
        unknown = set(self.probabilities) - {*WRITE_FAULTS, *MESSAGE_FAULTS}
        if unknown:
            raise ValueError(f"unknown faults: {', '.join(sorted(unknown))}")
        self.random = random.Random(self.seed)
        self.struck: Counter[str] = Counter()

    def pick(self, names: Sequence[str]) -> str:
        dice = self.random.random()
        for name in names:
            dice -= self.probabilities.get(name, 0.0)
            if dice < 0:
                self.struck[name] += 1
                return name
        return ""

    def pause(self) -> float:
        return self.random.random() * self.delay


class Network:
    """What connects the engines: delivers now or later."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.lock = threading.RLock()
        self.engines: dict[str, InProcessEngine] = {}
        self._numbers = itertools.count(1)
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._wake = threading.Condition(self.lock)
        self._closed = False
        threading.Thread(target=self._deliver_later, name="splitzip-network", daemon=True).start()

    def engine(self) -> InProcessEngine:
        with self.lock:
            engine = InProcessEngine(self, f"inprocess:{next(self._numbers)}")
            self.engines[engine.address] = engine
            return engine

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        with self.lock:
            heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), action))
            self._wake.notify()

    def close(self) -> None:
        for engine in list(self.engines.values()):
            engine.close()
        with self.lock:
            self._closed = True
            self._wake.notify()

    def _deliver_later(self) -> None:
        with self.lock:
            while not self._closed:
                wait = self._later[0][0] - time.monotonic() if self._later else None
                if wait is None or wait > 0:
                    self._wake.wait(wait)
                else:
                    heapq.heappop(self._later)[2]()


class InProcessLink(Link):
    def __init__(self, owner: InProcessEngine, peer: str) -> None:
        self.owner = owner
        self.peer = peer
        self.other: InProcessLink
        self.closed = False

    def close(self, reason: str = "closed by the other side") -> None:
        with self.owner.network.lock:
            if self.closed:
                return
            self.closed = self.other.closed = True
            self.owner.events.put(Event(self, None, "closed"))
            self.other.owner.events.put(Event(self.other, None, reason))


class InProcessEngine(Engine):
    def __init__(self, network: Network, address: str) -> None:
        self.network = network
        self.address = self.data_address = address
        self.events: queue.Queue[Event] = queue.Queue()
        self.silent = False
        """Set it, and everything that this engine sends or is sent vanishes, as with a process that hangs."""
        self._memory: list[np.ndarray] = []
        self._links: list[InProcessLink] = []
        self._earlier: dict[int, bytes] = {}

    def register(self, memory: np.ndarray) -> None:
        with self.network.lock:
            self._memory.append(memory.view(np.uint8).reshape(-1))

    def unregister(self, memory: np.ndarray) -> None:
        with self.network.lock:
            self._memory = [own for own in self._memory if address_of(own) != address_of(memory)]

    def connect(self, address: str, timeout: float) -> Link:
        with self.network.lock:
            other = self.network.engines.get(address)
            if other is None:
                raise TransferError(Code.PEER_CLOSED, f"cannot connect to {address}: no such engine")
            link, far = InProcessLink(self, address), InProcessLink(other, self.address)
            link.other, far.other = far, link
            for engine, end in ((self, link), (other, far)):
                engine._links = [known for known in engine._links if not known.closed] + [end]
            return link

    def write(self, data_address: str, segments: Sequence[Segment], timeout: float, stop: threading.Event) -> None:
        for segment in segments:
            if stop.is_set():
                raise TransferError(Code.TIMEOUT, "write given up")
            self._write_one(data_address, segment)

    def _write_one(self, data_address: str, segment: Segment) -> None:
        network, faults = self.network, self.network.faults
        with network.lock:
            target = network.engines.get(data_address)
            data = bytearray(self.find(segment.local, segment.length))
            if target is None:
                raise TransferError(Code.TRANSPORT, f"{data_address} is gone")
            if self.silent or target.silent:
                return
            target.find(segment.remote, segment.length)
            before = target._earlier.get(segment.remote, bytes(segment.length))
            target._earlier[segment.remote] = bytes(data)
            fault = faults.pick(WRITE_FAULTS)
            part = faults.random.randrange(segment.length)
            pause = faults.pause()
            if fault == "early":
                piece = -(-segment.length // 4)
                starts = list(range(0, segment.length, piece))
                faults.random.shuffle(starts)
                for start in starts:
                    late = bytes(data[start : start + piece])
                    network.later(faults.pause(), target.storing(segment.remote + start, late))
                return
            if fault == "drop":
                return
            if fault == "fail":
                target.storing(segment.remote, bytes(data[:part]))()
                raise TransferError(Code.TRANSPORT, "write failed, as it was told to")
            if fault == "late_copy":
                network.later(pause, target.storing(segment.remote, bytes(data)))
            if fault == "corrupt":
                for _ in range(faults.random.randint(1, 3)):
                    data[faults.random.randrange(len(data))] ^= 1 << faults.random.randrange(8)
            if fault == "cut":
                del data[part:]
            if fault == "stale":
                data[:] = before[: segment.length]
            if fault != "slow":
                target.storing(segment.remote, bytes(data))()
                return
        time.sleep(pause)
        target.storing(segment.remote, bytes(data))()

    def find(self, address: int, length: int) -> np.ndarray:
        """The registered bytes there."""
        for memory in self._memory:
            start = address - address_of(memory)
            if start >= 0 and start + length <= memory.nbytes:
                return memory[start : start + length]
        raise TransferError(Code.TRANSPORT, f"{length} bytes at {address:#x} are not registered")

    def storing(self, address: int, data: bytes) -> Callable[[], None]:
        def store() -> None:
            with self.network.lock:
                for memory in self._memory:
                    start = address - address_of(memory)
                    if start >= 0 and start + len(data) <= memory.nbytes:
                        memory[start : start + len(data)] = np.frombuffer(data, np.uint8)

        return store

    def notify(self, link: Link, message: bytes) -> None:
        assert isinstance(link, InProcessLink)
        network, faults = self.network, self.network.faults
        with network.lock:
            fault = faults.pick(MESSAGE_FAULTS)
            if fault == "damage":
                damaged = bytearray(message)
                damaged[faults.random.randrange(len(damaged))] ^= 1 << faults.random.randrange(8)
                message = bytes(damaged)
            if fault == "shorten":
                message = message[: faults.random.randrange(len(message))]
            if fault in ("swap", "wait"):
                network.later(faults.pause() if fault == "wait" else 1e-3, lambda: self._deliver(link, message))
            elif fault != "lose":
                self._deliver(link, message)
            if fault == "twice":
                network.later(faults.pause(), lambda: self._deliver(link, message))

    def _deliver(self, link: InProcessLink, message: bytes) -> None:
        if not (link.closed or self.silent or link.other.owner.silent):
            link.other.owner.events.put(Event(link.other, message))

    def receive(self, timeout: float) -> Event | None:
        try:
            return self.events.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self) -> None:
        with self.network.lock:
            self.network.engines.pop(self.address, None)
            for link in self._links:
                link.close()
            self._memory.clear()
