# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode processes over the transfer layer: the prefill side holds finished caches, and the decode side
asks for one to be sent to its receiver."""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..transfer import Part, Receiver, Sender, TransferError

log = logging.getLogger("splitzip_kv.prefill")

MAX_LINE = 1 << 16


class NotSent(Exception):
    """The prefill side did not send what it was asked for."""


class PrefillService:
    """Answers a line of JSON with another: "request", "receiver", "name" and "skip" with "wire_bytes" or "error"."""

    def __init__(
        self,
        host: str,
        port: int,
        sender: Sender,
        parts: Callable[[Sequence[int], int], Iterable[Part]],
        raw_bytes: Callable[[int], int],
        block_tokens: int,
        hold_seconds: float,
    ) -> None:
        self._sender = sender
        self._parts = parts
        self._raw_bytes = raw_bytes
        self._block_tokens = block_tokens
        self._hold_seconds = hold_seconds
        self._changed = threading.Condition()
        self._held: dict[str, tuple[Sequence[int], int, float, Callable[[], None]]] = {}
        self._sending: set[str] = set()
        self._over: set[str] = set()
        self.wire_bytes = self.raw_bytes = self.sent = self.failed = 0
        self._listener = socket.create_server((host, port))
        self.port = self._listener.getsockname()[1]
        self._closed = False
        threading.Thread(target=self._accept, name="splitzip-prefill", daemon=True).start()

    def hold(
        self, request: str, blocks: Sequence[int], tokens: int, complete: Callable[[], None] = lambda: None
    ) -> None:
        """The cache of `request` stays where it is until `over` names it. It is complete when `complete` returns, which
        is called before it is read, by another thread."""
        with self._changed:
            self._held[request] = (blocks, tokens, time.monotonic() + self._hold_seconds, complete)
            self._changed.notify_all()

    def over(self) -> set[str]:
        """Requests whose blocks are not needed any more, each once: they were sent, failed, or nobody came for them."""
        now = time.monotonic()
        with self._changed:
            for request, (_, _, deadline, _) in list(self._held.items()):
                if now > deadline and request not in self._sending:
                    log.warning("nobody came for the cache of %s", request)
                    del self._held[request]
                    self._over.add(request)
            over, self._over = self._over, set()
        return over

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                time.sleep(0.05)
                continue
            threading.Thread(target=self._serve, args=(connection,), name="splitzip-send", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(self._hold_seconds)
            try:
                with connection.makefile("rb") as lines:
                    asked = json.loads(lines.readline(MAX_LINE))
                answer: dict[str, Any] = self._send(
                    asked["request"], asked["receiver"], asked["name"], int(asked["skip"])
                )
            except (ValueError, KeyError, TypeError, NotSent, TransferError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            connection.sendall(json.dumps(answer).encode() + b"\n")

    def _send(self, request: str, receiver: str, name: str, skip: int) -> dict[str, int]:
        with self._changed:
            # The engine's next step says that it is complete; the question may be here before.
            self._changed.wait_for(lambda: request in self._held, timeout=min(10.0, self._hold_seconds))
            if request not in self._held or request in self._sending:
                raise NotSent(f"there is no cache of request {request}")
            blocks, tokens, _, complete = self._held[request]
            if skip % self._block_tokens or not 0 <= skip < tokens:
                raise NotSent(f"{skip} of {tokens} tokens are to be skipped")
            self._sending.add(request)
        wire_bytes = 0
        try:
            complete()
            parts = self._parts(blocks[skip // self._block_tokens :], tokens - skip)
            outgoing = self._sender.start(receiver, name)
            try:
                outgoing.send(parts)
                wire_bytes = outgoing.finish().wire_bytes
            finally:
                outgoing.cancel()  # on return nothing reads the blocks any more
        finally:
            with self._changed:
                self.sent += wire_bytes > 0
                self.failed += wire_bytes == 0
                self.wire_bytes += wire_bytes
                self.raw_bytes += self._raw_bytes(tokens - skip) if wire_bytes else 0
                self._sending.discard(request)
                self._held.pop(request, None)
                self._over.add(request)
        return {"wire_bytes": wire_bytes}


def fetch(
    receiver: Receiver, address: str, request: str, parts: Sequence[Part], skip: int, timeout: float
) -> dict[str, int]:
    """Get the cache of `request` from the prefill side at `address` into the memory of `parts`. Raises NotSent or
    TransferError; then the parts hold anything, and nothing writes to them any more."""
    name = f"{request}/{secrets.token_hex(8)}"
    incoming = receiver.expect(name, parts, timeout)
    try:
        host, _, port = address.rpartition(":")
        question = {"request": request, "receiver": receiver.address, "name": name, "skip": skip}
        with socket.create_connection((host, int(port)), timeout) as connection:
            connection.sendall(json.dumps(question).encode() + b"\n")
            with connection.makefile("rb") as lines:
                line = lines.readline(MAX_LINE)
        answer = json.loads(line) if line else {"error": "it closed the connection"}
        if "error" in answer:
            raise NotSent(f"the prefill side at {address}: {answer['error']}")
        return {"wire_bytes": incoming.wait().wire_bytes}
    except (OSError, ValueError) as error:
        raise NotSent(f"the prefill side at {address}: {error}") from error
    finally:
        incoming.cancel()
