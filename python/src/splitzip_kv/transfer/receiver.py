# SPDX-License-Identifier: Apache-2.0
"""The side that waits for caches: lends slots, and exposes nothing before it is verified."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterable

from .. import (
    FORMAT_VERSION,
    Codebook,
    CodebookSet,
    ElementType,
    InternalError,
    InvalidArgument,
    InvalidLayout,
    InvalidTensor,
    OutOfMemory,
    SplitzipError,
    __version__,
)
from . import messages
from .endpoint import Endpoint, check_name, log
from .engine import Engine, Link, Place
from .errors import Code, TransferError
from .incoming import IncomingChunk, IncomingRequest
from .metrics import trace
from .options import Options
from .parts import Part, raw_bytes_of
from .report import Span
from .staging import Staging

MAX_OFFERS = 1024  # of one session, for requests that are not expected yet
MAX_REMEMBERED = 1024  # of one session, requests whose outcome can still be told

# Nothing that another copy of the frame would change.
_FINAL = (InvalidArgument, InvalidTensor, InvalidLayout, OutOfMemory, InternalError)


class Session:
    """What was agreed with one sender."""

    def __init__(self, link: Link, hello: messages.Hello, slots: list[int]) -> None:
        self.link = link
        self.id = hello.session
        self.raw = bool(hello.flags & messages.RAW_ONLY)
        self.slots = slots
        self.welcome: messages.Welcome
        self.requests: dict[int, IncomingRequest] = {}
        self.offers: dict[str, int] = {}
        self.outcomes: collections.OrderedDict[int, messages.Message] = collections.OrderedDict()
        self.decoding = 0
        self.ended = False

    def remember(self, number: int, outcome: messages.Message) -> None:
        self.outcomes[number] = outcome
        if len(self.outcomes) > MAX_REMEMBERED:
            self.outcomes.popitem(last=False)


class Receiver(Endpoint):
    """Takes caches from senders.

    receiver = Receiver(MooncakeEngine(), codebooks)
    request = receiver.expect("request 7", [Part(pool_k[0], "page,token,head,dim", key=0, pages=pages), ...])
    request.wait()

    `on_offer` is called with the name of each request that a sender offers and nobody expects. It may `expect` it then
    and there, refuse it by raising TransferError or ValueError, which the sender is told before it writes anything, or
    do nothing: somebody will expect it later. It is called by the thread that takes messages and must not wait.
    """

    def __init__(
        self,
        engine: Engine,
        codebooks: CodebookSet | None = None,
        options: Options | None = None,
        on_offer: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__(engine, codebooks, options)
        self._on_offer = on_offer
        self.staging = Staging(engine, self.options, lent=True)
        self._sessions: dict[Link, Session] = {}
        self._expected: dict[str, IncomingRequest] = {}
        self._active: set[IncomingRequest] = set()
        self._given_up: collections.OrderedDict[str, tuple[Code, str]] = collections.OrderedDict()
        self._tasks: list[tuple[float, int, IncomingRequest, IncomingChunk]] = []
        self._order = itertools.count()
        self._decoder = threading.Thread(target=self._work, name="splitzip-decode", daemon=True)
        self._decoder.start()
        self._thread.start()

    def expect(self, name: str, parts: Iterable[Part], timeout: float | None = None) -> IncomingRequest:
        """Be ready for the request that a sender starts under `name`, and decode it into the memory of `parts`."""
        check_name(name)
        request = IncomingRequest(self, name, parts, timeout or self.options.timeout)
        with self.lock:
            if self._closed:
                raise TransferError(Code.CANCELLED, "this side was closed")
            if name in self._expected or any(active.name == name for active in self._active):
                raise ValueError(f"request {name!r} is expected already")
            self._given_up.pop(name, None)
            self._active.add(request)
            self._expected[name] = request
            for session in self._sessions.values():
                if name in session.offers:
                    self._bind(session, session.offers.pop(name), request)
                    break
        return request

    def close(self) -> None:
        with self.lock:
            for request in list(self._active):
                self.fail(request, TransferError(Code.CANCELLED, "the receiver was closed"))
        self.stop()
        self._decoder.join()
        for link in list(self._sessions):
            link.close()
        self.staging.close()
        self.engine.close()

    def gauges(self) -> dict[str, dict[str, float]]:
        able = [session for session in self._sessions.values() if session.welcome.codebooks and not session.raw]
        coded = 0 if self.options.raw else len(able)
        sessions: dict[str, float] = {"coded": coded, "raw": len(self._sessions) - coded}
        return {"sessions": sessions, "staging_bytes": self.staging.states()}

    def fail(self, request: IncomingRequest, error: TransferError) -> None:
        """The request is over. Belongs to the transfer layer."""
        if request.error is not None or request.done:
            return
        request.error = error
        self.counters["failed_requests"] += 1
        self.metrics.add("requests_total", outcome=error.code.name.lower())
        session = request.session
        if session is not None and not session.ended:
            outcome = messages.Fail(request.number, error.code, error.reason)
            if not error.remote:
                self.notify(session.link, outcome)
            self._forget(session, request, outcome)
        else:
            self._active.discard(request)
            if self._expected.pop(request.name, None) is not None:
                # A sender that offers it later learns at once that nobody waits.
                self._given_up[request.name] = error.code, error.reason
                if len(self._given_up) > MAX_REMEMBERED:
                    self._given_up.popitem(last=False)
        self.lock.notify_all()

    def _forget(self, session: Session, request: IncomingRequest, outcome: messages.Message) -> None:
        self._active.discard(request)
        session.requests.pop(request.number, None)
        session.remember(request.number, outcome)
        request.chunks.clear()

    def _bind(self, session: Session, number: int, request: IncomingRequest) -> None:
        del self._expected[request.name]
        request.session, request.number = session, number
        session.requests[number] = request
        self.notify(session.link, messages.Accept(number))
        self._complete_if_done(request)

    def _complete_if_done(self, request: IncomingRequest) -> None:
        if request.done:
            assert request.session is not None
            outcome = messages.Done(request.number)
            self._forget(request.session, request, outcome)
            self.metrics.add("requests_total", outcome="done")
            self.notify(request.session.link, outcome)
        self.lock.notify_all()

    # What arrives.

    def on_message(self, link: Link, message: messages.Message) -> None:
        session = self._sessions.get(link)
        if isinstance(message, messages.Hello):
            self._hello(link, session, message)
        elif session is None:
            raise messages.MessageError(f"{type(message).__name__} before Hello")
        elif isinstance(message, messages.Offer):
            self._offer(session, message)
        elif isinstance(message, (messages.Chunk, messages.End, messages.Fail)):
            request = session.requests.get(message.request)
            if request is None:
                self._late(session, message)
            elif isinstance(message, messages.Chunk):
                self._chunk(session, request, message)
            elif isinstance(message, messages.End):
                what = f"the sender sent {message.chunks} chunks, and {request.left} blocks are missing"
                self.fail(request, TransferError(Code.INCOMPLETE, what))
            else:
                self.fail(request, TransferError(Code(message.code), message.reason, remote=True))
        else:
            raise messages.MessageError(f"{type(message).__name__} is not a sender's to send")

    def _hello(self, link: Link, session: Session | None, hello: messages.Hello) -> None:
        if session is None:
            if hello.format_version != FORMAT_VERSION:
                reason = f"the sender writes format {hello.format_version}, the receiver reads format {FORMAT_VERSION}"
                self.notify(link, messages.Refuse(Code.VERSION, reason))
                return
            slots = self.staging.take_of_each(self.options.slots_per_session)
            if not slots:
                self.notify(
                    link, messages.Refuse(Code.REFUSED, "the receiver's staging memory is lent out to other senders")
                )
                return
            session = Session(link, hello, slots)
            session.welcome = messages.Welcome(
                flags=messages.RAW_ONLY if self.options.raw else 0,
                slot_bytes=self.options.slot_bytes,
                library=__version__,
                data_address=self.engine.data_address,
                slots=tuple(self.staging.address(slot) for slot in session.slots),
                codebooks=tuple(sorted(self.codebook_hashes() & set(hello.codebooks))),
            )
            self._sessions[link] = session
        elif session.id != hello.session:
            raise messages.MessageError("a second Hello with another session")
        self.notify(link, session.welcome)

    def _offer(self, session: Session, offer: messages.Offer) -> None:
        bound = session.requests.get(offer.request)
        if bound is not None:
            self.notify(session.link, messages.Accept(offer.request))
        elif offer.request in session.outcomes:
            self.notify(session.link, session.outcomes[offer.request])
        elif offer.name in self._expected:
            self._bind(session, offer.request, self._expected[offer.name])
        elif offer.name in self._given_up:
            self.notify(session.link, messages.Fail(offer.request, *self._given_up[offer.name]))
        elif (refusal := self._tell(offer.name)) is not None:
            self.notify(session.link, messages.Fail(offer.request, Code.REFUSED, refusal))
        elif offer.name in self._expected:
            self._bind(session, offer.request, self._expected[offer.name])
        elif len(session.offers) >= MAX_OFFERS and offer.name not in session.offers:
            self.notify(
                session.link, messages.Fail(offer.request, Code.REFUSED, "too many requests that nobody expects")
            )
        else:
            session.offers[offer.name] = offer.request

    def _tell(self, name: str) -> str | None:
        """Say that `name` is offered; returns why it is refused, if it is."""
        if self._on_offer is None:
            return None
        try:
            self._on_offer(name)
        except (TransferError, ValueError, SplitzipError) as error:
            return str(error)
        return None

    def _late(self, session: Session, message: messages.Chunk | messages.End | messages.Fail) -> None:
        if isinstance(message, messages.Fail):
            for name, number in list(session.offers.items()):
                if number == message.request:
                    del session.offers[name]
        elif message.request in session.outcomes:
            self.notify(session.link, session.outcomes[message.request])
        else:
            self.notify(session.link, messages.Fail(message.request, Code.PROTOCOL, "no such request"))

    def _chunk(self, session: Session, request: IncomingRequest, message: messages.Chunk) -> None:
        chunk = request.chunks.get(message.chunk)
        if chunk is None:
            try:
                chunk = self._new_chunk(session, request, message)
            except TransferError as error:
                self.fail(request, error)
                return
            request.chunks[message.chunk] = chunk
        elif dataclasses.replace(message, attempt=0) != dataclasses.replace(chunk.message, attempt=0):
            self.fail(request, TransferError(Code.PROTOCOL, f"chunk {message.chunk} was announced twice, differently"))
            return
        elif chunk.done:
            self.notify(session.link, messages.Ack(request.number, message.chunk, message.nonce))
            return
        if message.attempt > chunk.message.attempt:
            chunk.message = message
        if not chunk.scheduled:
            chunk.give_up_at = time.monotonic() + self.options.settle_time
            self._schedule(request, chunk, 0.0)

    def _new_chunk(self, session: Session, request: IncomingRequest, message: messages.Chunk) -> IncomingChunk:
        if message.slot >= len(session.slots) or not 0 < message.frame_bytes <= self.options.slot_bytes:
            raise TransferError(
                Code.PROTOCOL, f"chunk {message.chunk}: {message.frame_bytes} bytes in slot {message.slot}"
            )
        if message.nonce >> 32 != session.id:
            raise TransferError(Code.PROTOCOL, f"chunk {message.chunk}: its generation is not of this session")
        chunk = IncomingChunk(message, [], [], [], 0.0)
        for record in message.tensors:
            incoming = request.parts.get(record.tensor_key)
            if incoming is None:
                raise TransferError(Code.GEOMETRY, f"tensor {record.tensor_key} is not expected")
            tensor, layout = incoming.take(record, self._codebook(record))
            chunk.tensors.append(tensor)
            chunk.layouts.append(layout)
            chunk.blocks.append((incoming, -(-record.tokens // record.tokens_per_unit)))
        return chunk

    def _codebook(self, record: messages.TensorRecord) -> Codebook | None:
        if record.codebook_hash == 0:
            return None
        codebook = self.codebooks.find_hash(record.codebook_hash) if self.codebooks is not None else None
        if codebook is None or codebook.type != ElementType(record.type):
            what = (
                f"tensor {record.tensor_key}: codebook {record.codebook_hash:016x} is unknown here, or of another type"
            )
            raise TransferError(Code.PROTOCOL, what)
        return codebook

    def on_end(self, link: Link, error: TransferError) -> None:
        session = self._sessions.pop(link, None)
        if session is None:
            return
        session.ended = True
        for request in list(session.requests.values()):
            self._active.discard(request)
            self.fail(request, error)
        self._return_slots(session)

    def _return_slots(self, session: Session) -> None:
        if session.ended and session.decoding == 0:
            for slot in session.slots:
                self.staging.give_back(slot)
            session.slots = []

    def on_tick(self, now: float) -> None:
        for request in list(self._active):
            if now >= request.deadline:
                self.fail(request, TransferError(Code.TIMEOUT, f"{request.left} blocks did not arrive in time"))

    # Decoding.

    def _schedule(self, request: IncomingRequest, chunk: IncomingChunk, delay: float) -> None:
        chunk.scheduled = True
        heapq.heappush(self._tasks, (time.monotonic() + delay, next(self._order), request, chunk))
        self.lock.notify_all()

    def _work(self) -> None:
        while True:
            with self.lock:
                while not self._closed and not (self._tasks and self._tasks[0][0] <= time.monotonic()):
                    self.lock.wait(self._tasks[0][0] - time.monotonic() if self._tasks else None)
                if self._closed:
                    return
                _, _, request, chunk = heapq.heappop(self._tasks)
                chunk.scheduled = False
                session = request.session
                assert session is not None
                if request.error is not None or session.ended:
                    continue
                message = chunk.message
                data = self.staging.view(session.slots[message.slot], message.frame_bytes)
                request.decoding += 1
                session.decoding += 1
                chunk.scheduled = True
            begin = time.monotonic()
            with trace("decode"):
                problem = self._decode(data, message, chunk)
            end = time.monotonic()
            with self.lock:
                request.decoding -= 1
                session.decoding -= 1
                chunk.scheduled = False
                self._return_slots(session)
                if request.error is None:
                    self._decoded(session, request, chunk, message, problem, Span(message.chunk, begin, end))
                self.lock.notify_all()

    def _decode(self, data: Place, message: messages.Chunk, chunk: IncomingChunk) -> Exception | None:
        budget = bool(message.flags & messages.IN_BUDGET)
        try:
            self.coding.decode_from(data, message.nonce, chunk.tensors, chunk.layouts, budget=budget)
        except Exception as error:  # whatever it is, the thread goes on
            return error
        return None

    def _decoded(
        self,
        session: Session,
        request: IncomingRequest,
        chunk: IncomingChunk,
        message: messages.Chunk,
        problem: Exception | None,
        span: Span,
    ) -> None:
        now = time.monotonic()
        if problem is None:
            chunk.done = True
            self.counters["late_frames"] += chunk.tries > 0
            coded = any(tensor.codebook is not None for tensor in chunk.tensors)
            raw_bytes = raw_bytes_of((chunk.tensors, chunk.layouts))
            self.metrics.add_frame(coded, raw_bytes, message.frame_bytes, "decode", span.end - span.begin)
            chunk.tensors, chunk.layouts = [], []
            for incoming, blocks in chunk.blocks:
                incoming.left -= blocks
                request.left -= blocks
            request.report.decode.append(span)
            request.report.frames += 1
            request.report.wire_bytes += message.frame_bytes
            self.notify(session.link, messages.Ack(request.number, message.chunk, message.nonce))
            self._complete_if_done(request)
        elif isinstance(problem, _FINAL) or not isinstance(problem, SplitzipError):
            self.fail(request, TransferError(Code.CODEC, f"chunk {message.chunk}: {problem!r}"))
        elif now < chunk.give_up_at:
            chunk.tries += 1
            self._schedule(request, chunk, min(0.001 * 2**chunk.tries, 0.02))
        else:
            self.counters["refused_frames"] += 1
            log.info("chunk %d of %r refused: %r", message.chunk, request.name, problem)
            self.notify(
                session.link, messages.Nak(request.number, message.chunk, message.attempt, message.nonce, repr(problem))
            )
