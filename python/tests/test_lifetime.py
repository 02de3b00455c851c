# SPDX-License-Identifier: Apache-2.0
"""Objects keep what they need; calls run beside each other."""

import gc
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import splitzip_kv
from conftest import same, values
from splitzip_kv import Calibration, CodebookSet, Frame, Layout, Workers, encode, frame_sizes


class Owner(np.ndarray):
    """An array that can be watched."""


def test_a_layout_keeps_its_array():
    array = values((100, 64)).view(Owner)
    alive = weakref.ref(array)
    layout = Layout(array[::-1], "token,dim")
    expected = array.tobytes()
    del array
    gc.collect()
    assert alive() is not None
    target = np.zeros((100, 64), np.uint16)
    tensor = layout.tensor()
    Frame(encode([tensor], [layout])).decode([tensor], [Layout(target[::-1], "token,dim")])
    assert target.tobytes() == expected
    del layout
    gc.collect()
    assert alive() is None


def test_a_codebook_keeps_its_set(books):
    book = CodebookSet(books.to_bytes()).find("channels")
    gc.collect()
    layout = Layout(values((10, 64)), "token,dim")
    assert encode([layout.tensor(book)], [layout]) == encode([layout.tensor(books.find("channels"))], [layout])


def test_a_frame_keeps_its_bytes():
    layout = Layout(values((10, 64)), "token,dim")
    data = bytearray(encode([layout.tensor()], [layout]))
    frame = Frame(data)
    for change in (data.clear, lambda: data.extend(b"x")):
        with pytest.raises(BufferError):
            change()
    del frame
    gc.collect()
    data.clear()

    memory = bytearray(640)
    held = Layout(memory, "token")
    with pytest.raises(BufferError):
        memory.clear()
    del held
    gc.collect()
    memory.clear()


def test_nothing_leaks(books):
    array = values((10, 64))
    for _ in range(3):
        counts = []
        for _ in range(2):
            for _ in range(50):
                layout = Layout(array, "token,dim")
                tensor = layout.tensor(books.find("channels"))
                frame = Frame(encode([tensor], [layout]))
                frame.decode(frame.tensors(books), [Layout(np.zeros_like(array), "token,dim")])
                with pytest.raises(splitzip_kv.InvalidArgument):
                    frame.decode([tensor], [])
            del layout, tensor, frame
            gc.collect()
            counts.append((sys.getrefcount(array), sys.getrefcount(books), len(gc.get_objects())))
        if counts[0] == counts[1]:
            return
    assert counts[0] == counts[1]


@pytest.fixture
def no_forced_switches():
    """No thread has to give the GIL up: another one runs only when this one releases it by itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


def test_calls_release_the_gil(books, no_forced_switches):
    source = values((4000, 8, 64))
    layout = Layout(source, "token,head,dim")
    tensor = layout.tensor(books.find("BF16"))
    frame = Frame(encode([tensor], [layout]))
    out = np.empty(frame_sizes([tensor]).bound_bytes, np.uint8)
    target = Layout(np.empty_like(source), "token,head,dim")
    row = Layout(np.empty((4000, 64), source.dtype), "token,dim")
    calibration, other = Calibration(), Calibration()
    other.add("k", layout)
    calls = {
        "encode": lambda: encode([tensor], [layout], out=out),
        "decode": lambda: frame.decode([tensor], [target]),
        "decode_unit": lambda: frame.decode_unit(0, tensor, 0, row),
        "add": lambda: calibration.add("k", layout),
        "merge": lambda: calibration.merge(other),
        "finish": calibration.finish,
        "hold": lambda: sum(range(10**6)),
    }
    ticks = 0
    stop = False

    def tick():
        nonlocal ticks
        while not stop:
            ticks += 1
            time.sleep(0)

    thread = threading.Thread(target=tick)
    thread.start()
    seen = {}
    for name, call in calls.items():
        deadline = time.monotonic() + 20
        seen[name] = 0
        while seen[name] == 0 and time.monotonic() < deadline:
            before = ticks
            call()
            seen[name] += ticks - before
            if name == "hold":
                break
            time.sleep(0)
    stop = True
    thread.join()
    # What does not release the GIL shows that the test can fail.
    assert seen.pop("hold") == 0
    assert all(seen.values()), seen


def test_many_threads_share_all_objects(books):
    source = values((300, 64))
    layout = Layout(source, "token,dim")
    tensor = layout.tensor(books.find("channels"), tokens_per_unit=16)
    expected = bytes(encode([tensor], [layout]))
    shared = Frame(expected)
    workers = Workers(2)
    calibration = Calibration()
    failures = []

    def work(seed):
        try:
            for _ in range(20):
                assert encode([tensor], [layout], workers=workers) == expected
                target = np.zeros_like(source)
                shared.decode([tensor], [Layout(target, "token,dim")], workers=workers)
                assert same(target, source)
                calibration.add("k", layout)
                calibration.merge(calibration if seed == 99 else Calibration())
                calibration.finish()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert calibration.finish()[0].sample_values == 8 * 20 * source.size


def test_lists_and_frames_that_change_meanwhile(books):
    """What another thread does to lists, sources and frames leads to errors or other values, never to a fault."""
    source = values((2000, 64))
    layouts = [Layout(source, "token,dim") for _ in range(4)]
    tensors = [layout.tensor(books.find("channels")) for layout in layouts]
    data = np.frombuffer(encode(tensors, layouts), np.uint8).copy()
    good = data.copy()
    frame = Frame(data)
    stop = threading.Event()

    def disturb():
        random = np.random.default_rng(0)
        while not stop.is_set():
            data[random.integers(0, len(data), 50)] = random.integers(0, 256, 50)
            source.view(np.uint16)[random.integers(0, 2000, 50)] ^= 0x5555
            layouts.append(layouts.pop(0))
            tensors.append(tensors.pop(0))
            data[:] = good

    thread = threading.Thread(target=disturb)
    thread.start()
    target = np.zeros_like(source)
    for _ in range(40):
        for call in (
            lambda: encode(tensors, layouts),
            lambda: frame.decode(tensors, [Layout(target, "token,dim")] * 4),
        ):
            try:
                call()
            except Exception as error:
                assert type(error).__module__.startswith("splitzip_kv"), error
    stop.set()
    thread.join()
