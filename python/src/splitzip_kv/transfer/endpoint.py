# SPDX-License-Identifier: Apache-2.0
"""What senders and receivers have in common: one thread that takes what arrives and keeps the time."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

from .. import CodebookSet
from . import messages
from .coding import Coding
from .engine import Engine, Event, Link
from .errors import Code, TransferError
from .metrics import Metrics
from .options import Options

log = logging.getLogger("splitzip_kv.transfer")

TICK = 0.02


def check_name(name: str) -> None:
    if len(name.encode("utf-8")) > messages.MAX_TEXT:
        raise ValueError(f"the name of a request may have {messages.MAX_TEXT} bytes")


class Endpoint:
    """One side of transfers over an engine, which it closes at its end.

    `lock` guards everything that threads share; encoding, decoding and writing happen outside of it.
    """

    def __init__(self, engine: Engine, codebooks: CodebookSet | None, options: Options | None) -> None:
        self.engine = engine
        self.codebooks = codebooks
        self.options = options or Options()
        self.coding = Coding(self.options.threads)
        self.lock = threading.Condition(threading.RLock())
        self.counters: Counter[str] = Counter()
        """damaged_messages, resent_messages, rewritten_frames, refused_frames, late_frames, failed_requests,
        shadow_mismatches, over_budget_frames."""
        self.metrics = Metrics()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"splitzip-{type(self).__name__.lower()}", daemon=True)

    @property
    def address(self) -> str:
        """Where this side is reached."""
        return self.engine.address

    def metrics_text(self) -> str:
        """What this side has done so far, in Prometheus' text format, for whatever serves `/metrics` in this process."""
        with self.lock:
            return self.metrics.text(type(self).__name__.lower(), self.gauges(), self.counters)

    def gauges(self) -> dict[str, dict[str, float]]:
        """Sessions and staging memory by state, the lock being held."""
        raise NotImplementedError

    def codebook_hashes(self) -> set[int]:
        return set() if self.codebooks is None else {codebook.hash for codebook in self.codebooks}

    def notify(self, link: Link, message: messages.Message) -> None:
        self.engine.notify(link, messages.pack(message))

    def wait(self, done: Callable[[], bool], deadline: float, what: str) -> None:
        """Wait, the lock being held, until `done()`. It may raise, too. Raises TransferError at the deadline."""
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TransferError(Code.TIMEOUT, what)
            if self._closed:
                raise TransferError(Code.CANCELLED, "this side was closed")
            self.lock.wait(left)

    def stop(self) -> None:
        with self.lock:
            self._closed = True
            self.lock.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        next_tick = 0.0
        while not self._closed:
            event = self.engine.receive(TICK)
            if event is not None:
                self._take(event)
            now = time.monotonic()
            if now >= next_tick:
                next_tick = now + TICK
                with self.lock:
                    self._tick(now)

    def _tick(self, now: float) -> None:
        try:
            self.on_tick(now)
        except Exception:  # a bug must not stop the thread that everybody waits for
            log.exception("keeping the time")

    def _take(self, event: Event) -> None:
        if event.message is None:
            with self.lock:
                self.on_end(event.link, TransferError(Code.PEER_CLOSED, f"link to {event.link.peer}: {event.reason}"))
            return
        try:
            message = messages.unpack(event.message)
            with self.lock:
                self.on_message(event.link, message)
        except messages.DamagedMessage as error:
            # Whoever sent it sends it again when no answer comes.
            self.counters["damaged_messages"] += 1
            log.info("message from %s dropped: %s", event.link.peer, error)
        except messages.UnsupportedProtocol as error:
            self.notify(event.link, messages.Refuse(Code.VERSION, str(error)))
            self.end_link(event.link, TransferError(Code.VERSION, str(error)))
        except messages.MessageError as error:
            self.end_link(event.link, TransferError(Code.PROTOCOL, f"link to {event.link.peer}: {error}"))
        except Exception as error:  # a bug must not stop the thread that everybody waits for
            log.exception("message from %s", event.link.peer)
            self.end_link(event.link, TransferError(Code.PROTOCOL, f"internal error: {error!r}"))

    def end_link(self, link: Link, error: TransferError) -> None:
        log.warning("%s", error)
        with self.lock:
            self.on_end(link, error)
        link.close()

    def on_message(self, link: Link, message: messages.Message) -> None:
        raise NotImplementedError

    def on_end(self, link: Link, error: TransferError) -> None:
        raise NotImplementedError

    def on_tick(self, now: float) -> None:
        raise NotImplementedError
