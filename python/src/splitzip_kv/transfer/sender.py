# SPDX-License-Identifier: Apache-2.0
"""The side that has a cache: encodes it and writes it into slots of the receiver."""

from __future__ import annotations

import collections
import dataclasses
import secrets
import threading
import time
from collections.abc import Iterable

from .. import FORMAT_VERSION, CodebookSet, SplitzipError, __version__, encode
from . import messages
from .endpoint import Endpoint, log
from .engine import Engine, Link, Segment
from .errors import Code, TransferError
from .options import Options
from .parts import Frame, Part, cut_into_frames, record_of
from .report import Span, TransferReport
from .staging import Staging


@dataclasses.dataclass
class _Chunk:
    request: OutgoingRequest
    number: int
    remote: int  # slot of the receiver
    local: int  # slot of our staging memory
    nonce: int
    frame_bytes: int
    tensors: tuple[messages.TensorRecord, ...]
    coded: bool
    attempt: int = 1
    busy: bool = False  # the writer is at it
    over: bool = False  # acknowledged or given up
    notified_at: float = 0.0  # 0: it is to be written
    pause: float = 0.0

    def message(self) -> messages.Chunk:
        return messages.Chunk(
            self.request.number, self.number, self.attempt, self.remote, self.nonce, self.frame_bytes, self.tensors
        )


class OutgoingRequest:
    """One cache on its way. `send` its parts as they become ready, then `finish`."""

    def __init__(self, session: _Session, number: int, name: str, timeout: float) -> None:
        self.name = name
        self.number = number
        self.deadline = time.monotonic() + timeout
        self.report = TransferReport()
        self.error: TransferError | None = None
        self.accepted = False
        self.done = False
        self.ending = False
        self.chunks: dict[int, _Chunk] = {}
        self.next_chunk = 0
        self.encoding = 0
        self.asked_at = 0.0
        self.pause = 0.0
        self._session = session
        self._sender = session.sender

    def send(self, parts: Iterable[Part]) -> None:
        """Encode these parts and queue them. On return their memory may change. Waits while the staging memory is full."""
        sender, session = self._sender, self._session
        with sender.lock:
            self._wait(lambda: self.accepted, "the receiver did not ask for this request")
        for frame in cut_into_frames(parts, session.frame_limit, sender.options.checksums, session.usable):
            self._send_frame(frame)

    def finish(self) -> TransferReport:
        """Wait until the receiver has verified everything. Raises TransferError if it failed."""
        sender = self._sender
        with sender.lock:
            self._wait(lambda: self.done or (self.accepted and not self.chunks), "not all chunks were acknowledged")
            if not self.done:
                self.ending = True
                self.asked_at = 0.0
                sender.ask(self, time.monotonic())
                self._wait(lambda: self.done, "the receiver did not confirm the end")
            return self.report

    def cancel(self, reason: str = "cancelled by the sender") -> None:
        """Give it up. On return nothing reads the parts any more. Does nothing after the end."""
        with self._sender.lock:
            if not self.done:
                self._sender.fail(self, TransferError(Code.CANCELLED, reason))
            while self.encoding:
                self._sender.lock.wait()

    def _wait(self, done, what: str) -> None:
        def check() -> bool:
            if self.error is not None:
                raise self.error
            return done()

        try:
            self._sender.wait(check, self.deadline, what)
        except TransferError as error:
            if self.error is None:
                self._sender.fail(self, error)
            raise

    def _send_frame(self, frame: Frame) -> None:
        sender, session = self._sender, self._session
        tensors, layouts = frame
        with sender.lock:
            self._wait(lambda: session.free and sender.staging.free_count, "no free slot: nothing was acknowledged")
            if self.done:
                raise TransferError(Code.GEOMETRY, "the receiver has everything that it asked for already")
            chunk = _Chunk(
                request=self,
                number=self.next_chunk,
                remote=session.free.pop(),
                local=sender.staging.take(),
                nonce=session.next_nonce(),
                frame_bytes=0,
                tensors=tuple(record_of(tensor) for tensor in tensors),
                coded=any(tensor.codebook is not None for tensor in tensors),
            )
            self.next_chunk += 1
            self.encoding += 1
            view = sender.staging.view(chunk.local)[: session.frame_limit]
        failure: TransferError | None = None
        begin = time.monotonic()
        try:
            chunk.frame_bytes = len(
                encode(tensors, layouts, out=view, nonce=chunk.nonce, checksums=sender.options.checksums)
            )
        except SplitzipError as error:
            failure = TransferError(Code.CODEC, f"encoding failed: {error!r}")
        end = time.monotonic()
        with sender.lock:
            self.encoding -= 1
            sender.lock.notify_all()
            if failure is not None and self.error is None:
                sender.fail(self, failure)
            if self.error is not None:
                session.release(chunk)
                raise self.error
            self.report.encode.append(Span(chunk.number, begin, end))
            self.report.wire_bytes += chunk.frame_bytes
            self.report.frames += 1
            self.chunks[chunk.number] = chunk
            session.to_write.append(chunk)


class _Session:
    """What was agreed with one receiver, and the thread that writes to it."""

    def __init__(self, sender: Sender, link: Link) -> None:
        self.sender = sender
        self.link = link
        self.id = secrets.randbits(32)
        self.counter = 0
        self.error: TransferError | None = None
        self.welcome: messages.Welcome | None = None
        self.free: list[int] = []
        self.usable: set[int] = set()
        self.frame_limit = 0
        self.requests: dict[int, OutgoingRequest] = {}
        self.next_request = 1
        self.to_write: collections.deque[_Chunk] = collections.deque()
        self.refused_in_a_row = 0
        self.stop = threading.Event()
        self.writer = threading.Thread(target=self._write_all, name="splitzip-writer", daemon=True)

    def begin(self, welcome: messages.Welcome) -> None:
        self.welcome = welcome
        self.free = list(range(len(welcome.slots)))
        own = self.sender.options
        self.frame_limit = min(welcome.slot_bytes, own.slot_bytes)
        raw = own.raw or welcome.flags & messages.RAW_ONLY
        self.usable = set() if raw else self.sender.codebook_hashes() & set(welcome.codebooks)
        self.writer.start()

    def next_nonce(self) -> int:
        self.counter += 1
        if self.counter >> 32:
            raise TransferError(Code.PROTOCOL, "the session has used all its generation numbers")
        return self.id << 32 | self.counter

    def release(self, chunk: _Chunk) -> None:
        """The chunk is over; its slots become free, if need be when the writer leaves it."""
        chunk.over = True
        chunk.request.chunks.pop(chunk.number, None)
        if not chunk.busy:
            self.free.append(chunk.remote)
            self.sender.staging.give_back(chunk.local)
            self.sender.lock.notify_all()

    def _write_all(self) -> None:
        sender = self.sender
        while True:
            with sender.lock:
                while not self.to_write and not self.stop.is_set():
                    sender.lock.wait()
                if self.stop.is_set():
                    return
                chunk = self.to_write.popleft()
                if chunk.over:
                    continue
                chunk.busy = True
            failure = self._write(chunk)
            if failure is not None:
                # If it is the end of the peer, the link says so in a moment.
                self.stop.wait(0.02 * chunk.attempt)
            with sender.lock:
                chunk.busy = False
                if chunk.over:
                    self.release(chunk)
                    continue
                if failure is not None:
                    sender.write_again(self, chunk, failure)
                    continue
                chunk.notified_at = time.monotonic()
                message = chunk.message()
            sender.notify(self.link, message)

    def _write(self, chunk: _Chunk) -> TransferError | None:
        assert self.welcome is not None
        segment = Segment(
            self.sender.staging.address(chunk.local), self.welcome.slots[chunk.remote], chunk.frame_bytes
        )
        begin = time.monotonic()
        try:
            left = max(chunk.request.deadline - begin, 0.0)
            self.sender.engine.write(self.welcome.data_address, [segment], left, self.stop)
        except TransferError as error:
            return error
        chunk.request.report.write.append(Span(chunk.number, begin, time.monotonic()))
        return None


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
        self.staging = Staging(engine, self.options.staging_bytes, self.options.slot_bytes)
        self._sessions: dict[str, _Session] = {}
        self._connecting: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)
        self._thread.start()

    def start(self, address: str, name: str, timeout: float | None = None) -> OutgoingRequest:
        """Begin the request that the receiver at `address` expects, or will soon, under `name`."""
        session = self._session(address)
        with self.lock:
            if session.error is not None:
                raise session.error
            request = OutgoingRequest(session, session.next_request, name, timeout or self.options.timeout)
            session.next_request += 1
            session.requests[request.number] = request
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
        session.requests.pop(request.number, None)
        for chunk in list(request.chunks.values()):
            session.release(chunk)
        if not error.remote and session.error is None:
            self.notify(session.link, messages.Fail(request.number, error.code, error.reason))
        self.lock.notify_all()

    def write_again(self, session: _Session, chunk: _Chunk, error: TransferError) -> None:
        if chunk.coded:
            session.refused_in_a_row += 1
            if session.refused_in_a_row == self.options.breaker:
                log.warning("%d frames in a row were refused by %s: going on in mode raw", self.options.breaker, session.link.peer)
                session.usable = set()
        if chunk.attempt >= self.options.attempts:
            reason = f"chunk {chunk.number} failed {chunk.attempt} times, at last: {error.reason}"
            self.fail(chunk.request, TransferError(error.code, reason))
            return
        self.counters["rewritten_frames"] += 1
        chunk.attempt += 1
        chunk.notified_at = chunk.pause = 0.0
        session.to_write.append(chunk)
        self.lock.notify_all()

    def _session(self, address: str) -> _Session:
        with self._connecting[address]:  # a receiver that does not answer holds up nobody else
            with self.lock:
                if self._closed:
                    raise TransferError(Code.CANCELLED, "this side was closed")
                session = self._sessions.get(address)
                if session is not None and session.error is None:
                    return session
            return self._open(address)

    def _open(self, address: str) -> _Session:
        deadline = time.monotonic() + self.options.connect_timeout
        session = _Session(self, self.engine.connect(address, self.options.connect_timeout))
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

    def _wait_for_welcome(self, session: _Session, again: float, deadline: float) -> None:
        def answered() -> bool:
            if session.error is not None:
                raise session.error
            return session.welcome is not None

        try:
            self.wait(answered, again, f"{session.link.peer} does not answer")
        except TransferError as error:
            if error.code is not Code.TIMEOUT or time.monotonic() >= deadline:
                raise

    def _break(self, session: _Session, error: TransferError) -> None:
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
                session.begin(message)
                self.lock.notify_all()
            return
        if isinstance(message, messages.Refuse):
            self._break(session, TransferError(_code(message.code), message.reason, remote=True))
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
            self.fail(request, TransferError(_code(message.code), message.reason, remote=True))
        else:
            self._answered(session, request, message)

    def _done(self, session: _Session, request: OutgoingRequest) -> None:
        request.done = True
        del session.requests[request.number]
        for chunk in list(request.chunks.values()):
            session.release(chunk)
        self.lock.notify_all()

    def _answered(self, session: _Session, request: OutgoingRequest, message: messages.Ack | messages.Nak) -> None:
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


def _code(number: int) -> Code:
    try:
        return Code(number)
    except ValueError:
        return Code.PROTOCOL
