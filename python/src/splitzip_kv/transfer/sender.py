# SPDX-License-Identifier: Apache-2.0
"""The side that has a cache: encodes it and writes it into slots of the receiver."""

from __future__ import annotations

import collections
import threading
import time

from .. import FORMAT_VERSION, CodebookSet, __version__
from . import messages
from .endpoint import Endpoint, check_name, log
from .engine import Engine, Link
from .errors import Code, TransferError
from .options import Options
from .outgoing import OutgoingChunk, OutgoingRequest, Session
from .staging import Staging


class Sender(Endpoint):
    """Moves caches to receivers. A session with each is opened when it is first needed, and again after it broke.

    sender = Sender(MooncakeEngine(), codebooks)
    request = sender.start(receiver_address, "request 7")
    for layer in range(layers):
        request.send([Part(pool_k[layer], "page,token,head,dim", key=2 * layer, pages=pages, codebook=...), ...])
    request.finish()
    """

    def __init__(self, engine: Engine, codebooks: CodebookSet | None = None, options: Options | None = None) -> None:
        super().__init__(engine, codebooks, options)
        self.staging = Staging(engine, self.options, lent=False)
        self._sessions: dict[str, Session] = {}
        self._connecting: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)
        self._thread.start()

    def start(
        self, address: str, name: str, timeout: float | None = None, *, raw_bytes: int | None = None
    ) -> OutgoingRequest:
        """Begin the request that the receiver at `address` expects, or will soon, under `name`. With `raw_bytes`,
        those of all its parts together, and `Options.speeds` it is planned."""
        check_name(name)
        session = self._session(address)
        with self.lock:
            if session.error is not None:
                raise session.error
            request = OutgoingRequest(session, session.next_request, name, timeout or self.options.timeout)
            session.next_request += 1
            session.requests[request.number] = request
            if raw_bytes:
                request.plan = session.plan(raw_bytes)
            self.ask(request, time.monotonic())
        return request

    def close(self) -> None:
        with self.lock:
            sessions = list(self._sessions.values())
            for session in sessions:
                self._break(session, TransferError(Code.CANCELLED, "this side was closed"))
        self.stop()
        for session in sessions:
            if session.writer.ident is not None:
                session.writer.join()
            session.link.close()
        self.staging.close()
        self.engine.close()

    def gauges(self) -> dict[str, dict[str, float]]:
        open_ones = [session for session in self._sessions.values() if session.welcome is not None]
        coded = sum(bool(session.usable) for session in open_ones)
        return {"sessions": {"coded": coded, "raw": len(open_ones) - coded}, "staging_bytes": self.staging.states()}

    # The methods below belong to the transfer layer.

    def ask(self, request: OutgoingRequest, now: float) -> None:
        """Send, for the first time or again, the message to which the request lacks an answer."""
        again = request.asked_at != 0.0
        request.pause = request.pause * 2 if again else self.options.resend_interval
        request.asked_at = now
        self.counters["resent_messages"] += again
        link = request._session.link
        if request.ending:
            self.notify(link, messages.End(request.number, request.next_chunk))
        else:
            self.notify(link, messages.Offer(request.number, request.name))

    def fail(self, request: OutgoingRequest, error: TransferError) -> None:
        session = request._session
        if request.error is not None or request.done:
            return
        request.error = error
        self.counters["failed_requests"] += 1
        self.metrics.add("requests_total", outcome=error.code.name.lower())
        session.requests.pop(request.number, None)
        for chunk in list(request.chunks.values()):
            session.release(chunk)
        if not error.remote and session.error is None:
            self.notify(session.link, messages.Fail(request.number, error.code, error.reason))
        self.lock.notify_all()

    def write_again(self, session: Session, chunk: OutgoingChunk, error: TransferError) -> None:
        if chunk.coded:
            session.refused_in_a_row += 1
            if session.refused_in_a_row == self.options.breaker:
                log.warning(
                    "%d frames in a row were refused by %s: going on in mode raw",
                    self.options.breaker,
                    session.link.peer,
                )
                session.go_raw("breaker")
        if chunk.local is None:
            # Its values may have changed since, so that it cannot be encoded again; what comes next goes another way.
            session.routes.avoid(chunk.route)
            reason = f"chunk {chunk.number} was encoded straight into the receiver's memory: {error.reason}"
            self.fail(chunk.request, TransferError(error.code, reason))
            return
        if chunk.attempt >= self.options.attempts:
            session.routes.avoid(chunk.route)
            reason = f"chunk {chunk.number} failed {chunk.attempt} times, at last: {error.reason}"
            self.fail(chunk.request, TransferError(error.code, reason))
            return
        self.counters["rewritten_frames"] += 1
        chunk.attempt += 1
        chunk.notified_at = chunk.pause = 0.0
        session.to_write.append(chunk)
        self.lock.notify_all()

    def _session(self, address: str) -> Session:
        with self._connecting[address]:  # a receiver that does not answer holds up nobody else
            with self.lock:
                if self._closed:
                    raise TransferError(Code.CANCELLED, "this side was closed")
                session = self._sessions.get(address)
                if session is not None and session.error is None:
                    return session
            return self._open(address)

    def _open(self, address: str) -> Session:
        deadline = time.monotonic() + self.options.connect_timeout
        session = Session(self, self.engine.connect(address, self.options.connect_timeout))
        flags = messages.RAW_ONLY if self.options.raw else 0
        hashes = tuple(sorted(self.codebook_hashes()))[: messages.MAX_CODEBOOKS]
        hello = messages.Hello(messages.PROTOCOL, FORMAT_VERSION, flags, session.id, __version__, hashes)
        with self.lock:
            self._sessions[address] = session
            try:
                while session.welcome is None:
                    self.notify(session.link, hello)
                    again = min(time.monotonic() + self.options.resend_interval, deadline)
                    self._wait_for_welcome(session, again, deadline)
            except TransferError as error:
                self._break(session, error)
                session.link.close()
                raise
        return session

    def _wait_for_welcome(self, session: Session, again: float, deadline: float) -> None:
        def answered() -> bool:
            if session.error is not None:
                raise session.error
            return session.welcome is not None

        try:
            self.wait(answered, again, f"{session.link.peer} does not answer")
        except TransferError as error:
            if error.code is not Code.TIMEOUT or time.monotonic() >= deadline:
                raise

    def _break(self, session: Session, error: TransferError) -> None:
        if session.error is not None:
            return
        for request in list(session.requests.values()):
            self.fail(request, error)
        session.error = error
        session.stop.set()
        for address, known in list(self._sessions.items()):
            if known is session:
                del self._sessions[address]
        self.lock.notify_all()

    def on_end(self, link: Link, error: TransferError) -> None:
        for session in list(self._sessions.values()):
            if session.link is link:
                self._break(session, error)

    def on_tick(self, now: float) -> None:
        for session in list(self._sessions.values()):
            for request in list(session.requests.values()):
                if now >= request.deadline:
                    what = f"{len(request.chunks)} of {request.next_chunk} chunks were not acknowledged in time"
                    self.fail(request, TransferError(Code.TIMEOUT, what))
                    continue
                if (request.ending or not request.accepted) and now - request.asked_at >= request.pause:
                    self.ask(request, now)
                for chunk in request.chunks.values():
                    pause = chunk.pause or self.options.resend_interval
                    if chunk.notified_at and not chunk.busy and now - chunk.notified_at >= pause:
                        chunk.notified_at, chunk.pause = now, pause * 2
                        self.counters["resent_messages"] += 1
                        self.notify(link=session.link, message=chunk.message())

    def on_message(self, link: Link, message: messages.Message) -> None:
        session = next((known for known in self._sessions.values() if known.link is link), None)
        if session is None:
            return
        if isinstance(message, messages.Welcome):
            if session.welcome is None:
                if message.slot_bytes == 0 or not message.slots:
                    raise messages.MessageError("a session without slots")
                try:
                    session.begin(message)
                except TransferError as error:
                    self._break(session, error)
                self.lock.notify_all()
            return
        if isinstance(message, messages.Refuse):
            self._break(session, TransferError(Code(message.code), message.reason, remote=True))
            return
        if isinstance(message, (messages.Hello, messages.Offer, messages.Chunk, messages.End)):
            raise messages.MessageError(f"{type(message).__name__} is not a receiver's to send")
        request = session.requests.get(message.request)
        if request is None:
            return  # late, for one that is over
        if isinstance(message, messages.Accept):
            if not request.accepted:
                request.accepted = True
                self.lock.notify_all()
        elif isinstance(message, messages.Done):
            self._done(session, request)
        elif isinstance(message, messages.Fail):
            self.fail(request, TransferError(Code(message.code), message.reason, remote=True))
        else:
            self._answered(session, request, message)

    def _done(self, session: Session, request: OutgoingRequest) -> None:
        request.done = True
        self.metrics.add("requests_total", outcome="done")
        del session.requests[request.number]
        for chunk in list(request.chunks.values()):
            session.release(chunk)
        self.lock.notify_all()

    def _answered(self, session: Session, request: OutgoingRequest, message: messages.Ack | messages.Nak) -> None:
        chunk = request.chunks.get(message.chunk)
        if chunk is None or chunk.nonce != message.nonce:
            return  # a duplicate
        if isinstance(message, messages.Ack):
            if chunk.coded:
                session.refused_in_a_row = 0
            session.release(chunk)
        elif chunk.notified_at and not chunk.busy and message.attempt == chunk.attempt:
            self.counters["refused_frames"] += 1
            self.write_again(session, chunk, TransferError(Code.CORRUPT, message.reason))
