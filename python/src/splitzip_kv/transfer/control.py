# SPDX-License-Identifier: Apache-2.0
"""Messages over TCP, for engines without a message channel of their own that notices a dead peer.

It binds to the loopback interface unless another host is asked for. Everything is bounded: the size of a message, the
number of links, the messages waiting to be read, and the time that a peer which does not read can hold a writer up.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading

from . import messages
from .engine import Engine, Event, Link
from .errors import Code, TransferError

MAX_LINKS = 256
MAX_WAITING = 4096
SEND_TIMEOUT = 2


class TcpLink(Link):
    def __init__(self, connection: socket.socket, peer: str) -> None:
        self.peer = peer
        self._connection = connection
        self._sending = threading.Lock()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", 5),
            ("TCP_KEEPINTVL", 2),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", 10_000),
        ):
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        # Python's timeouts are for both directions, and only sending must end; reading ends when the link is shut down.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", SEND_TIMEOUT, 0))

    def close(self) -> None:
        # Shutting down wakes the thread that reads, which then closes the socket.
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def send(self, message: bytes) -> None:
        try:
            with self._sending:
                self._connection.sendall(message)
        except OSError:
            # Part of the message may have left, so the stream is of no use any more.
            self.close()

    def read_message(self) -> bytes:
        header = self._read(messages.HEADER.size)
        return header + self._read(messages.body_bytes(header))

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._connection.recv(min(count - len(data), 1 << 16))
            if not piece:
                raise ConnectionError("closed by the other side" if not data else "closed in the middle of a message")
            data += piece
        return bytes(data)

    def release(self) -> None:
        self._connection.close()


class TcpControl:
    """A listening socket, its links and those to other processes, and one queue of what arrives on all of them."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._events: queue.Queue[Event] = queue.Queue(MAX_WAITING)
        self._links: set[TcpLink] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._listener = socket.create_server((host, port))
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name="splitzip-accept", daemon=True).start()

    def connect(self, address: str, timeout: float) -> TcpLink:
        host, _, port = address.rpartition(":")
        try:
            connection = socket.create_connection((host, int(port)), timeout)
        except (OSError, ValueError, OverflowError) as error:
            raise TransferError(Code.PEER_CLOSED, f"cannot connect to {address}: {error}") from error
        connection.settimeout(None)
        link = self._add(connection, address)
        if link is None:
            raise TransferError(Code.REFUSED, f"cannot connect to {address}: closed, or {MAX_LINKS} links are open")
        return link

    def receive(self, timeout: float) -> Event | None:
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, peer = self._listener.accept()
            except OSError:
                # Out of descriptors, or a connection that was gone before it was taken; or the listener is closed.
                self._closed.wait(0.05)
                continue
            self._add(connection, f"{peer[0]}:{peer[1]}")

    def _add(self, connection: socket.socket, peer: str) -> TcpLink | None:
        link = TcpLink(connection, peer)
        with self._lock:
            full = self._closed.is_set() or len(self._links) >= MAX_LINKS
            if not full:
                self._links.add(link)
        if full:
            link.release()
            return None
        threading.Thread(target=self._read, args=(link,), name="splitzip-link", daemon=True).start()
        return link

    def _read(self, link: TcpLink) -> None:
        try:
            while True:
                self._put(Event(link, link.read_message()))
        except (messages.MessageError, OSError) as error:
            reason = str(error)
        link.close()
        with self._lock:
            self._links.discard(link)
        self._put(Event(link, None, reason))
        link.release()

    def _put(self, event: Event) -> None:
        # A full queue holds the peer up by TCP; nothing is read any more once this side is closed.
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._events.put(event, timeout=0.5)
                return


class TcpControlledEngine(Engine):
    """What engines have in common whose messages go over a `TcpControl`."""

    def __init__(self, host: str) -> None:
        self._control = TcpControl(host)
        self.address = self._control.address

    def connect(self, address: str, timeout: float) -> Link:
        return self._control.connect(address, timeout)

    def notify(self, link: Link, message: bytes) -> None:
        assert isinstance(link, TcpLink)
        link.send(message)

    def receive(self, timeout: float) -> Event | None:
        return self._control.receive(timeout)

    def close(self) -> None:
        self._control.close()
