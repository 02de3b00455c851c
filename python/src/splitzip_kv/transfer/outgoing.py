# SPDX-License-Identifier: Apache-2.0
"""A request on the sending side, and the session that its frames go through."""

from __future__ import annotations

import collections
import dataclasses
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .. import Mode, OverBudget, SplitzipError, Tensor, frame_sizes
from ..plan import Plan, plan_transfer
from . import messages
from .endpoint import log
from .engine import Link, Place, Route, Segment, piece_of
from .errors import Code, TransferError
from .metrics import trace
from .options import Options
from .parts import Frame, Part, cut_into_frames, decodes_to_itself, raw, raw_bytes_of, record_of, with_slots
from .report import Span, TransferReport
from .routes import RouteChoice

if TYPE_CHECKING:
    from .sender import Sender


# Speeds are measured alone. In a transfer threads wake each other for every frame, and both sides may share memory and processors:
# bench/planner has what that costs.
HAND_OVER = 1e-4
ALIGNMENT = 32  # of budgets, so that frames one after the other are encoded at full speed
LEAST_GAIN = 0.05


@dataclasses.dataclass
class OutgoingChunk:
    request: OutgoingRequest
    number: int
    route: Route
    remote: int  # slot of the receiver
    local: int | None  # slot of our staging memory; None: it is encoded straight to the receiver's
    nonce: int
    frame_bytes: int
    flags: int
    tensors: tuple[messages.TensorRecord, ...]
    coded: bool
    raw_bytes: int
    encode_seconds: float = 0.0
    attempt: int = 1
    busy: bool = False  # the writer is at it
    over: bool = False  # acknowledged or given up
    notified_at: float = 0.0  # 0: it is to be written
    pause: float = 0.0

    def message(self) -> messages.Chunk:
        return messages.Chunk(
            self.request.number,
            self.number,
            self.attempt,
            self.remote,
            self.nonce,
            self.frame_bytes,
            self.flags,
            self.tensors,
        )


class OutgoingRequest:
    """One cache on its way. `send` its parts as they become ready, then `finish`."""

    def __init__(self, session: Session, number: int, name: str, timeout: float) -> None:
        self.name = name
        self.number = number
        self.deadline = time.monotonic() + timeout
        self.report = TransferReport()
        self.plan: Plan | None = None
        """What the planner chose at the start, if it was asked."""
        self.error: TransferError | None = None
        self.accepted = False
        self.done = False
        self.ending = False
        self.chunks: dict[int, OutgoingChunk] = {}
        self.next_chunk = 0
        self.encoding = 0
        self.asked_at = 0.0
        self.pause = 0.0
        self._session = session
        self._sender = session.sender

    def send(self, parts: Iterable[Part]) -> None:
        """Encode these parts and queue them; on return their memory may change. Waits for free slots."""
        sender, session = self._sender, self._session
        with sender.lock:
            self._wait(lambda: self.accepted, "the receiver did not ask for this request")
        usable = session.usable
        if self.plan is not None:
            usable = usable if self.plan.speed is not None else set()
            parts = [self._planned(part) for part in parts]
        for frame in cut_into_frames(parts, session.frame_limit, sender.options.checksums, usable):
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

    def _wait(self, done: Callable[[], bool], what: str) -> None:
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

    def _planned(self, part: Part) -> Part:
        assert self.plan is not None
        coded = self.plan.speed is not None and part.tensor.codebook is not None and part.tensor.mode is not Mode.RAW
        return part.in_mode(self.plan.speed.mode) if coded and self.plan.speed is not None else part

    def _send_frame(self, frame: Frame) -> None:
        sender, session = self._sender, self._session
        tensors = [with_slots(tensor) for tensor in frame[0]]
        frame = tensors, frame[1]
        with sender.lock:
            self._wait(lambda: session.route_with_slots() is not None, "no free slot: nothing was acknowledged")
            if self.done:
                raise TransferError(Code.GEOMETRY, "the receiver has everything that it asked for already")
            route = session.route_with_slots()
            assert route is not None
            chunk = OutgoingChunk(
                request=self,
                number=self.next_chunk,
                route=route,
                remote=session.take_slot(route),
                local=sender.staging.take() if route.places is None else None,
                nonce=session.next_nonce(),
                frame_bytes=0,
                flags=0,
                tensors=tuple(record_of(tensor) for tensor in tensors),
                coded=any(tensor.codebook is not None for tensor in tensors),
                raw_bytes=raw_bytes_of(frame),
            )
            self.next_chunk += 1
            self.encoding += 1
            place = session.place_of(chunk)
        failure: TransferError | None = None
        begin = time.monotonic()
        try:
            with trace("encode"):
                self._encode(chunk, frame, place)
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
            sender.metrics.add_frame(chunk.coded, chunk.raw_bytes, chunk.frame_bytes, "encode", end - begin)
            sender.metrics.add("routed_frames_total", route=route.name)
            chunk.encode_seconds = end - begin
            self.chunks[chunk.number] = chunk
            if chunk.local is not None:
                session.to_write.append(chunk)
                return
            session.took(chunk, 0.0)
            chunk.notified_at = time.monotonic()
            message = chunk.message()
        sender.notify(session.link, message)

    def _encode(self, chunk: OutgoingChunk, frame: Frame, place: Place) -> None:
        sender, session = self._sender, self._session
        tensors, layouts = frame
        options = sender.options

        def encoded(tensors: list[Tensor], budget: int | None = None) -> int:
            to = place if budget is None else piece_of(place, 0, budget)
            in_budget, checksums = budget is not None, options.checksums
            return sender.coding.encode_to(
                to, tensors, layouts, nonce=chunk.nonce, checksums=checksums, budget=in_budget
            )

        def encoded_raw() -> int:
            as_they_are = [raw(tensor) for tensor in tensors]
            chunk.coded, chunk.tensors = False, tuple(record_of(tensor) for tensor in as_they_are)
            return encoded(as_they_are)

        budget = budget_of(tensors, options, place.nbytes) if chunk.coded else None
        try:
            size = encoded(tensors, budget)
        except OverBudget:
            with sender.lock:
                sender.counters["over_budget_frames"] += 1
            size, budget = encoded_raw(), None
        shadowed = chunk.coded and options.shadow and chunk.nonce % options.shadow == 0
        if shadowed and not decodes_to_itself(
            sender.coding.on_host(piece_of(place, 0, size)).data, frame, sender.coding
        ):
            log.error("a frame of request %r does not decode to what was encoded: going on in mode raw", self.name)
            sender.counters["shadow_mismatches"] += 1
            with sender.lock:
                session.go_raw("shadow")
            size, budget = encoded_raw(), None
        chunk.frame_bytes = size if budget is None else budget
        chunk.flags = 0 if budget is None else messages.IN_BUDGET


def budget_of(tensors: list[Tensor], options: Options, most: int) -> int | None:
    """Bytes that a frame is written as, at most `most`; None: as many as it has."""
    if options.budget_margin is None:
        return None
    known = frame_sizes(tensors, checksums=options.checksums).known_bytes
    return min(-(-math.ceil(known * (1 + options.budget_margin)) // ALIGNMENT) * ALIGNMENT, most)


class Session:
    """What was agreed with one receiver, and the thread that writes to it."""

    def __init__(self, sender: Sender, link: Link) -> None:
        self.sender = sender
        self.link = link
        self.id = secrets.randbits(32)
        self.counter = 0
        self.error: TransferError | None = None
        self.welcome: messages.Welcome | None = None
        self.free: list[int] = []
        self.routes = RouteChoice([])
        self.usable: set[int] = set()
        self.frame_limit = 0
        self.requests: dict[int, OutgoingRequest] = {}
        self.next_request = 1
        self.to_write: collections.deque[OutgoingChunk] = collections.deque()
        self.refused_in_a_row = 0
        self.write_rate = 0.0  # bytes/s, of late
        self.stop = threading.Event()
        self.writer = threading.Thread(target=self._write_all, name="splitzip-writer", daemon=True)

    def begin(self, welcome: messages.Welcome) -> None:
        """Raises TransferError where no route leads to the receiver's slots."""
        self.routes = RouteChoice(self.sender.engine.routes(welcome.data_address, welcome.slots, welcome.slot_bytes))
        self.welcome = welcome
        self.free = list(range(len(welcome.slots)))
        own = self.sender.options
        self.frame_limit = min(welcome.slot_bytes, own.slot_bytes)
        raw = own.raw or welcome.flags & messages.RAW_ONLY
        hashes = self.sender.codebook_hashes()
        self.usable = hashes & set(welcome.codebooks)
        if raw:
            self.go_raw("kill switch")
        elif hashes and not self.usable:
            self.go_raw("codebooks")
        self.writer.start()

    def route_with_slots(self) -> Route | None:
        """The next frame's route, if it has what it needs."""
        route = self.routes.next()
        staged = route.places is not None or self.sender.staging.free_count > 0
        return route if staged and not route.slots.isdisjoint(self.free) else None

    def take_slot(self, route: Route) -> int:
        self.routes.begin(route)
        slot = next(slot for slot in reversed(self.free) if slot in route.slots)
        self.free.remove(slot)
        return slot

    def place_of(self, chunk: OutgoingChunk) -> Place:
        """Where a frame is to be encoded to."""
        if chunk.local is not None:
            return self.sender.staging.view(chunk.local, self.frame_limit)
        assert chunk.route.places is not None
        return piece_of(chunk.route.places[chunk.remote], 0, self.frame_limit)

    def took(self, chunk: OutgoingChunk, write_seconds: float) -> None:
        """Tell the choice of routes, and operators what it came to."""
        if self.routes.add(chunk.route, chunk.raw_bytes, chunk.encode_seconds, write_seconds):
            route = self.routes.chosen
            assert route is not None
            self.sender.metrics.add("routes_total", route=route.name)
            self.sender.lock.notify_all()

    def go_raw(self, reason: str) -> None:
        """From now on nothing is coded."""
        self.usable = set()
        self.sender.metrics.add("fallbacks_total", reason=reason)

    def plan(self, raw_bytes: int) -> Plan | None:
        """None where nothing is known of the link yet, or nothing could be coded anyway."""
        options = self.sender.options
        rate = options.link_bytes_per_second or self.write_rate
        if not (options.speeds and rate and self.usable and self.frame_limit):
            return None
        speeds = [
            dataclasses.replace(
                speed, encode_seconds=speed.encode_seconds + HAND_OVER, decode_seconds=speed.decode_seconds + HAND_OVER
            )
            for speed in options.speeds
        ]
        plan = plan_transfer(
            raw_bytes,
            speeds,
            link_bytes_per_second=rate,
            raw_writes=-(-raw_bytes // self.frame_limit),
            smallest_slice_bytes=min(self.frame_limit, 1 << 16),
            largest_slice_bytes=self.frame_limit,
            least_gain=LEAST_GAIN,
        )
        self.sender.metrics.add("plans_total", mode="raw" if plan.speed is None else plan.speed.mode.name.lower())
        return plan

    def next_nonce(self) -> int:
        self.counter += 1
        if self.counter >> 32:
            raise TransferError(Code.PROTOCOL, "the session has used all its generation numbers")
        return self.id << 32 | self.counter

    def release(self, chunk: OutgoingChunk) -> None:
        """The chunk is over; its slots become free, if need be when the writer leaves it."""
        chunk.over = True
        chunk.request.chunks.pop(chunk.number, None)
        if not chunk.busy:
            self.free.append(chunk.remote)
            if chunk.local is not None:
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
            begin = time.monotonic()
            with trace("write"):
                failure = self._write(chunk)
            span = Span(chunk.number, begin, time.monotonic())
            if failure is not None:
                # If it is the end of the peer, the link says so in a moment.
                self.stop.wait(0.02 * chunk.attempt)
            with sender.lock:
                chunk.busy = False
                sender.metrics.add("seconds_total", span.end - span.begin, stage="write")
                if failure is None:
                    chunk.request.report.write.append(span)
                    rate = chunk.frame_bytes / max(span.end - span.begin, 1e-6)
                    self.took(chunk, span.end - span.begin)
                    self.write_rate = rate if self.write_rate == 0.0 else 0.9 * self.write_rate + 0.1 * rate
                if chunk.over:
                    self.release(chunk)
                    continue
                if failure is not None:
                    sender.write_again(self, chunk, failure)
                    continue
                chunk.notified_at = time.monotonic()
                message = chunk.message()
            sender.notify(self.link, message)

    def _write(self, chunk: OutgoingChunk) -> TransferError | None:
        assert self.welcome is not None and chunk.local is not None
        segment = Segment(self.sender.staging.address(chunk.local), self.welcome.slots[chunk.remote], chunk.frame_bytes)
        try:
            left = max(chunk.request.deadline - time.monotonic(), 0.0)
            self.sender.engine.write(self.welcome.data_address, [segment], left, self.stop)
        except TransferError as error:
            return error
        except Exception as error:  # an address that the engine cannot digest must not end this thread
            return TransferError(Code.TRANSPORT, repr(error))
        return None
