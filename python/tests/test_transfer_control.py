# SPDX-License-Identifier: Apache-2.0
"""The message channel over TCP: what strangers send, and what happens to a session whose link breaks."""

import contextlib
import ctypes
import random
import socket
import time

import numpy as np
import pytest

from splitzip_kv.transfer import Code, Engine, Options, Receiver, Sender, TransferError, messages
from splitzip_kv.transfer.control import MAX_LINKS, TcpControl
from transfer_cases import QUICK, make_codebooks, some_tensors


class LocalEngine(Engine):
    """Memory of one process, messages over TCP."""

    def __init__(self):
        self.control = TcpControl()
        self.address = self.data_address = self.control.address

    def register(self, memory):
        pass

    def unregister(self, memory):
        pass

    def connect(self, address, timeout):
        return self.control.connect(address, timeout)

    def write(self, data_address, segments, timeout, stop):
        for segment in segments:
            ctypes.memmove(segment.remote, segment.local, segment.length)

    def notify(self, link, message):
        link.send(message)

    def receive(self, timeout):
        return self.control.receive(timeout)

    def close(self):
        self.control.close()


@pytest.fixture
def pair():
    codebooks = make_codebooks()
    receiver = Receiver(LocalEngine(), codebooks, Options(**QUICK))
    sender = Sender(LocalEngine(), codebooks, Options(**QUICK))
    yield sender, receiver
    sender.close()
    receiver.close()


def works(sender, receiver, seed=1):
    tensors = some_tensors(np.random.default_rng(seed))
    incoming = receiver.expect("again", [tensor.part(tensor.target) for tensor in tensors])
    request = sender.start(receiver.address, "again")
    request.send([tensor.part(tensor.source, sender.codebooks.find("kv")) for tensor in tensors])
    request.finish()
    incoming.wait()
    assert all(tensor.arrived() for tensor in tensors)


def stranger(receiver):
    host, port = receiver.address.split(":")
    return socket.create_connection((host, int(port)), 2.0)


def is_closed(connection) -> bool:
    connection.settimeout(2.0)
    try:
        return connection.recv(100) == b""
    except ConnectionError:
        return True


def test_it_listens_on_the_loopback_interface_alone(pair):
    assert all(side.address.startswith("127.0.0.1:") for side in pair)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(100),
        messages.HEADER.pack(messages.MAGIC, 1, 0, 2**32 - 1, 0),
        messages.HEADER.pack(messages.MAGIC, 1, 1, 0, 0),
        messages.pack(messages.Accept(1)),
        messages.pack(messages.Offer(1, "before hello")),
    ],
    ids=["http", "zeros", "too long", "reserved", "not a sender's", "too early"],
)
def test_strangers_are_cut_off(pair, data):
    with stranger(pair[1]) as connection:
        connection.sendall(data)
        assert is_closed(connection)
    works(*pair)


def test_a_message_cut_in_the_middle_and_silence(pair):
    hello = messages.pack(messages.Hello(messages.PROTOCOL, 0, 0, 1, "x", ()))
    with stranger(pair[1]) as half, stranger(pair[1]) as silent:
        half.sendall(hello[:20])
        works(*pair)
        half.shutdown(socket.SHUT_WR)
        assert is_closed(half)
        works(*pair)
        silent.sendall(hello)
        assert silent.recv(16)[:4] == messages.MAGIC


def test_random_bytes(pair):
    dice = random.Random(4)
    hello = messages.pack(messages.Hello(messages.PROTOCOL, 0, 0, 1, "x", ()))
    for _ in range(100):
        with stranger(pair[1]) as connection, contextlib.suppress(ConnectionError, BrokenPipeError):
            data = bytearray(hello + messages.pack(messages.Offer(1, "a")) + messages.pack(messages.End(1, 1)))
            for _ in range(dice.randrange(1, 4)):
                data[dice.randrange(len(data))] = dice.randrange(256)
            connection.sendall(data)
    works(*pair)


def test_too_many_links(pair):
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(stranger(pair[1])) for _ in range(MAX_LINKS + 5)]
        assert is_closed(links[-1])
    deadline = time.monotonic() + 5
    while True:
        try:
            works(*pair)
            break
        except TransferError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize("how", ["cut", "garbage", "half a message"])
def test_a_link_that_breaks_in_the_middle(pair, how):
    sender, receiver = pair
    tensors = some_tensors(np.random.default_rng(2), most_parts=1)
    incoming = receiver.expect("a", [tensor.part(tensor.target) for tensor in tensors])
    request = sender.start(receiver.address, "a")
    connection = next(iter(sender._sessions.values())).link._connection
    if how == "garbage":
        connection.sendall(bytes(64))
    elif how == "half a message":
        connection.sendall(messages.pack(messages.End(1, 1))[:-2])
        connection.shutdown(socket.SHUT_RDWR)
    else:
        connection.shutdown(socket.SHUT_RDWR)
    begin = time.monotonic()
    for wait in (request.finish, incoming.wait):
        with pytest.raises(TransferError) as caught:
            wait()
        assert caught.value.code is Code.PEER_CLOSED
    assert time.monotonic() - begin < 2.0
    works(sender, receiver)


def test_nobody_listens(pair):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(TransferError) as caught:
        pair[0].start(address, "a")
    assert caught.value.code is Code.PEER_CLOSED
    for nonsense in ("", "nowhere", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:x"):
        with pytest.raises(TransferError):
            pair[0].start(nonsense, "a")


def test_somebody_listens_and_says_nothing(pair):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        begin = time.monotonic()
        with pytest.raises(TransferError) as caught:
            pair[0].start(f"127.0.0.1:{mute.getsockname()[1]}", "a")
        assert caught.value.code is Code.TIMEOUT
        assert time.monotonic() - begin < QUICK["connect_timeout"] + 1
    works(*pair)


def test_a_peer_that_does_not_read_is_given_up():
    control = TcpControl()
    host, port = control.address.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(messages.pack(messages.Accept(1)))
        link = control.receive(2.0).link
        begin = time.monotonic()
        for _ in range(200):
            link.send(bytes(1 << 20))
        assert 1 < time.monotonic() - begin < 15
        assert control.receive(5.0).message is None
    control.close()


def test_an_end_is_noticed_while_messages_wait():
    control = TcpControl()
    host, port = control.address.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(messages.pack(messages.Accept(1)) * 3)
    events = [control.receive(2.0) for _ in range(4)]
    assert [event.message is None for event in events] == [False, False, False, True]
    assert "closed by the other side" in events[3].reason
    control.close()
    assert control.receive(0.05) is None
