# SPDX-License-Identifier: Apache-2.0
"""Coding in the memory of a GPU, without another framework."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import splitzip_kv
from conftest import bits, values
from splitzip_kv import ElementType, Frame, InvalidLayout, Layout, Mode, cuda, encode

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason=cuda.problem() or "")
# The last one: where there are several it is not the thread's current device, which must not matter.
DEVICE = cuda.device_count() - 1 if cuda.is_available() else 0


def on_device(array: np.ndarray) -> cuda.Array:
    """A copy in the GPU's memory."""
    memory = cuda.Memory(array.nbytes, DEVICE)
    cuda.copy(memory, np.ascontiguousarray(array))
    return cuda.Array(memory, 0, array.shape, f"<u{array.dtype.itemsize}")


def on_host(array: cuda.Array) -> np.ndarray:
    found = np.empty(array.shape, array.typestr)
    stream = cuda.Stream(DEVICE)
    cuda.copy(found, array, stream.handle)
    stream.synchronize()
    return found


@pytest.fixture(scope="module")
def coder():
    return cuda.Coder(DEVICE)


@pytest.fixture(scope="module")
def pool():
    """Pages of two tensors: [K or V, page, token, head, dim]."""
    return bits(values((2, 12, 16, 2, 64)))


LAYOUTS = {
    "NHD": (lambda pool: pool, "page,token,head,dim"),
    "HND": (lambda pool: np.ascontiguousarray(pool.transpose(0, 1, 3, 2, 4)), "page,head,token,dim"),
    "slots": (lambda pool: pool.reshape(2, -1, 2, 64), "page,head,dim"),
    "one piece": (lambda pool: pool.reshape(2, -1, 2, 64), "token,head,dim"),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("mode", [Mode.RAW, Mode.FIXED4, Mode.TIERED])
def test_frames_are_those_of_the_cpu(books, coder, pool, name, mode):
    arrange, axes = LAYOUTS[name]
    host = arrange(pool)
    paged = axes.startswith("page")
    pages = np.random.default_rng(1).permutation(host.shape[1])[: host.shape[1] // 2] if paged else None
    device = on_device(host)
    target = on_device(np.full_like(host, 0xA5A5))

    def layouts(array, pages):
        return [Layout(part(array, kv), axes, pages=pages, type=ElementType.BF16) for kv in (0, 1)]

    def part(array, kv):
        if isinstance(array, np.ndarray):
            return array[kv]
        bytes_each = int(np.prod(array.shape[1:])) * 2
        return cuda.Array(array.memory, kv * bytes_each, array.shape[1:], array.typestr)

    tensors = [
        layout.tensor(books.find("BF16"), mode=mode, tokens=layout.tokens - 3, tokens_per_unit=16, tensor_key=key)
        for key, layout in enumerate(layouts(host, pages))
    ]
    if mode == Mode.RAW:
        tensors = [dataclasses.replace(tensor, codebook=None) for tensor in tensors]
    expected = encode(tensors, layouts(host, pages), nonce=5)
    frame = coder.encode(tensors, layouts(device, pages), nonce=5)
    assert frame == expected
    other = None if pages is None else np.random.default_rng(2).permutation(host.shape[1])[: len(pages)]
    coder.decode(Frame(frame, expected_nonce=5), tensors, layouts(target, other))
    reference = np.full_like(host, 0xA5A5)
    Frame(expected).decode(tensors, layouts(reference, other))
    assert np.array_equal(on_host(target), reference)


def test_a_range_of_tokens(books, coder, pool):
    host, device = pool[0], on_device(pool[0])
    for first, tokens in ((0, 0), (3, 40), (17, 1), (64, 100)):
        for array in (host, device):
            layout = Layout(
                array, "page,token,head,dim", pages=range(11, -1, -1), first_token=first, type=ElementType.BF16
            )
            tensor = layout.tensor(books.find("BF16"), tokens=tokens, tokens_per_unit=7, first_block=9)
            coded = encode([tensor], [layout]) if array is host else coder.encode([tensor], [layout])
            if array is host:
                expected = coded
        assert coded == expected


def test_a_copy_on_the_host(coder, pool):
    layout = Layout(on_device(pool[0]), "page,token,head,dim", pages=[7, 3], type=ElementType.BF16)
    for tokens in (None, 0, 1, 20):
        copied = coder.on_host(layout, tokens=tokens)
        assert copied.device is None and copied.type is ElementType.BF16
        count = layout.tokens if tokens is None else tokens
        expected = Layout(pool[0], "page,token,head,dim", pages=[7, 3], type=ElementType.BF16)
        assert copied.tokens == count
        assert encode([copied.tensor()], [copied]) == encode([expected.tensor(tokens=count)], [expected])


def test_what_is_wrong(books, coder, pool):
    device = on_device(pool[0])
    host = Layout(pool[0], "page,token,head,dim", pages=[0], type=ElementType.BF16)
    layout = Layout(device, "page,token,head,dim", pages=[0, 5], type=ElementType.BF16)
    tensor = layout.tensor(books.find("BF16"))
    assert (host.device, layout.device) == (None, DEVICE)
    with pytest.raises(InvalidLayout, match="of a GPU"):
        encode([tensor], [layout])
    with pytest.raises(InvalidLayout, match="of the host"):
        coder.encode([host.tensor()], [host])
    with pytest.raises(InvalidLayout, match="page number 12"):
        Layout(device, "page,token,head,dim", pages=[12], type=ElementType.BF16)
    frame = coder.encode([tensor], [layout], nonce=1)
    with pytest.raises(InvalidLayout, match="twice"):
        same_page = Layout(device, "page,token,head,dim", pages=[3, 3], type=ElementType.BF16)
        coder.decode(Frame(frame), [tensor], [same_page])
    # Kernels report what has the lowest number: where the geometry differs, a directory may look damaged.
    with pytest.raises((splitzip_kv.GeometryMismatch, splitzip_kv.CorruptDirectory)):
        coder.decode(Frame(frame), [dataclasses.replace(tensor, tokens=31)], [layout])
    with pytest.raises(splitzip_kv.OutputTooSmall):
        coder.encode([tensor], [layout], out=np.empty(len(frame) - 1, np.uint8))
    damaged = np.frombuffer(frame, np.uint8).copy()
    damaged[-9] ^= 1
    with pytest.raises((splitzip_kv.ChecksumMismatch, splitzip_kv.CorruptPayload)):
        coder.decode(Frame(damaged), [tensor], [layout])
    with pytest.raises(TypeError, match="one piece"):
        cuda.place_of(np.zeros((4, 4))[:, :2])


def test_slots_of_another_length_than_the_codebook_says(books, coder, pool):
    """A codebook may be found by its identity, which says nothing of slots: frames are read as they are."""
    host = Layout(pool[0], "page,token,head,dim", pages=[4, 1], type=ElementType.BF16)
    tensor = host.tensor(books.find("BF16"), tokens_per_unit=16)
    for slot_words in (0, 3, 1536):
        frame = encode([dataclasses.replace(tensor, slot_words=slot_words)], [host])
        target = on_device(np.zeros_like(pool[0]))
        back = Layout(target, "page,token,head,dim", pages=[4, 1], type=ElementType.BF16)
        coder.decode(Frame(frame), [tensor], [back])
        assert np.array_equal(on_host(target)[[4, 1]], pool[0][[4, 1]])
        with pytest.raises(splitzip_kv.SplitzipError):
            coder.decode(Frame(frame), [dataclasses.replace(tensor, slot_words=7)], [back])


def test_budgets(books, coder, pool):
    """All bytes of a budget are those that the CPU writes, the mark's included."""
    layouts = [
        Layout(array, "page,token,head,dim", pages=[4, 1], type=ElementType.BF16)
        for array in (pool[0], on_device(pool[0]))
    ]
    tensor = layouts[0].tensor(books.find("BF16"), tokens_per_unit=16)
    size = len(encode([tensor], layouts[:1]))
    for budget in (size + 1000, size, size - 1, 48):
        places = [np.full(budget, 0xA5, np.uint8) for _ in layouts]
        over = []
        for code, layout, place in zip((encode, coder.encode), layouts, places, strict=True):
            try:
                assert len(code([tensor], [layout], out=place, nonce=6, budget=True)) == size
            except splitzip_kv.OverBudget:
                over.append(layout)
        assert len(over) == (0 if budget >= size else 2)
        assert np.array_equal(*places)
        if over:
            with pytest.raises(splitzip_kv.OverBudget):
                Frame(places[1], expected_nonce=6, budget=True)
        else:
            target = on_device(np.zeros_like(pool[0]))
            back = Layout(target, "page,token,head,dim", pages=[4, 1], type=ElementType.BF16)
            coder.decode(Frame(places[1], expected_nonce=6, budget=True), [tensor], [back])
            assert np.array_equal(on_host(target)[[4, 1]], pool[0][[4, 1]])


def test_many_requests_in_one_call(books, pool):
    """Table and Batch: requests of different lengths, one of them damaged, one skipped."""
    host, device = pool[0], on_device(pool[0])
    target = on_device(np.zeros_like(pool[0]))
    axes = "page,token,head,dim"
    layout = Layout(host, axes, pages=range(12), type=ElementType.BF16)
    tensor = layout.tensor(books.find("BF16"), tokens_per_unit=16, tensor_key=7)
    tables = [
        cuda.Table([tensor], [Layout(array, axes, pages=[], type=ElementType.BF16)]) for array in (device, target)
    ]
    lengths, lists = (40, 0, 16, 33), ([4, 1, 9], [], [0], [2, 7, 3])
    count, bound = len(lengths), splitzip_kv.frame_sizes([tensor]).bound_bytes // 16 * 16 + 16
    frames, results = cuda.Memory(count * bound, DEVICE), cuda.pinned(cuda.RESULT.itemsize * count)
    failed, pages = cuda.pinned(4), cuda.pinned(4 * 12 * count).view(np.int32).reshape(count, 12)
    requests, rows = np.zeros(count, cuda.REQUEST), np.zeros(count, cuda.ROWS)
    for i, (length, numbers) in enumerate(zip(lengths, lists, strict=True)):
        pages[i, : len(numbers)] = numbers
        requests[i] = (frames.address + i * bound, bound, 100 + i)
        rows[i] = (pages[i].ctypes.data, 0, len(numbers), i, 0, 0, length)
    stream = cuda.Stream(DEVICE)

    def run(decoding):
        table = tables[decoding]
        given = [cuda.pinned(array.nbytes) for array in (requests, rows)]
        for to, array in zip(given, (requests, rows), strict=True):
            to[:] = array.view(np.uint8)
        size = table.decode_workspace(count, sum(lengths)) if decoding else table.encode_workspace(count, sum(lengths))
        batch = cuda.Batch(
            requests=given[0],
            rows=given[1],
            results=results,
            failed=failed,
            workspace=cuda.Memory(size, DEVICE),
            request_count=count,
            max_total_tokens=sum(lengths),
        )
        for name in ("requests", "rows", "results", "failed", "workspace"):
            memory = getattr(batch, name)
            short = cuda.Array(memory, 0, (size - 1,), "|u1") if name == "workspace" else memory[:-1]
            with pytest.raises((splitzip_kv.InvalidArgument, splitzip_kv.OutputTooSmall)):
                (table.decode if decoding else table.encode)(dataclasses.replace(batch, **{name: short}), stream.handle)
        (table.decode if decoding else table.encode)(batch, stream.handle)
        stream.synchronize()
        return results.view(cuda.RESULT).copy(), int(failed.view(np.uint32)[0])

    encoded, wrong = run(False)
    assert wrong == 0 and not encoded["status"].any()
    coded = on_host(cuda.Array(frames, 0, (count, bound), "|u1"))
    for i, (length, numbers) in enumerate(zip(lengths, lists, strict=True)):
        one = dataclasses.replace(tensor, tokens=length, first_block=i)
        expected = encode([one], [Layout(host, axes, pages=numbers, type=ElementType.BF16)], nonce=100 + i)
        assert coded[i, : encoded["frame_bytes"][i]].tobytes() == bytes(expected)

    requests["capacity"] = encoded["frame_bytes"]
    requests["nonce"][0] = 1
    requests["frame"][2] = 0
    decoded, wrong = run(True)
    assert wrong == 1 and decoded["status"].tolist() == [splitzip_kv.NonceMismatch.status, 0, 0, 0]
    found, expected = on_host(target), np.zeros_like(host)
    expected[[2, 7]], expected[3, 0] = host[[2, 7]], host[3, 0]
    found[[4, 1, 9]] = 0  # of the request that failed: anything
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("budgets", [False, True])
def test_page_tables(books, pool, budgets):
    """What the operators for PyTorch call: requests as rows of a page table, with lengths, or as budgets."""
    lengths, numbers = (40, -1, 16, 33), [[4, 1, 9], [0, 0, 0], [0, 0, 0], [2, 7, 3]]
    layout = Layout(pool[0], "page,token,head,dim", pages=range(12), type=ElementType.BF16)
    tensor = layout.tensor(books.find("BF16"), tokens_per_unit=16, tensor_key=7)
    frames = []
    for number, (length, pages) in enumerate(zip(lengths, numbers, strict=True)):
        one = dataclasses.replace(tensor, tokens=max(length, 0), first_block=5 + number)
        place = Layout(pool[0], "page,token,head,dim", pages=pages, type=ElementType.BF16)
        frames.append(bytes(encode([one], [place], nonce=90 + number)) if length >= 0 else b"")
    count, capacity = len(lengths), (len(frames[3]) + 15) // 16 * 16  # too little for the longest one
    source, target = on_device(pool[0]), on_device(np.zeros_like(pool[0]))
    page_table, counts, nonces, blocks = map(
        on_device,
        (
            np.array(numbers, np.uint32),
            np.array(lengths, np.int32).view(np.uint32),
            np.arange(90, 90 + count, dtype=np.uint64),
            np.arange(5, 5 + count, dtype=np.uint64),
        ),
    )
    rows = on_device(np.full((count, capacity), 0xA5, np.uint8))
    results, failed = cuda.Memory(16 * count, DEVICE), cuda.Memory(4, DEVICE)
    stream = cuda.Stream(DEVICE)

    def code(decoding, array, sizes):
        place = Layout(array, "page,token,head,dim", pages=[], type=ElementType.BF16)
        table = splitzip_kv._core.CudaTable([tensor], [place], [0], [array.address], 0)
        workspace = cuda.Memory(table.paged_workspace(count, 0, decoding), DEVICE)
        table.code_paged(
            decoding,
            [array.address],
            page_table.address,
            3,
            3,
            counts.address,
            False,
            rows.address,
            capacity,
            capacity,
            0 if sizes is None else sizes.address,
            0 if sizes is None else 1,
            nonces.address,
            blocks.address,
            results.address,
            failed.address,
            workspace.address,
            workspace.nbytes,
            count,
            0,
            0,
            True,
            stream.handle,
            budgets,
        )
        stream.synchronize()
        return on_host(cuda.Array(results, 0, (count, 2), "<u8"))

    made = code(False, source, None)
    over = splitzip_kv.OverBudget if budgets else splitzip_kv.OutputTooSmall
    assert made[:, 1].tolist() == [over.status, 0, 0, 0]
    assert made[:, 0].tolist() == [48 if budgets else 0, 0, len(frames[2]), len(frames[3])]
    written = on_host(rows)
    for row, frame in list(zip(written, frames, strict=True))[2:]:
        assert row[: len(frame)].tobytes() == frame
        assert (row[len(frame) :] == (0 if budgets else 0xA5)).all()
    assert (written[1] == 0xA5).all()
    back = code(True, target, None if budgets else on_device(made[:, 0].copy()))
    if budgets:
        assert back[:, 1].tolist() == [over.status, 0, 0, 0]
    else:
        assert back[0, 1] != 0 and back[1:, 1].tolist() == [0, 0, 0]
    found = on_host(target)
    assert np.array_equal(found[[0, 2, 7]], pool[0][[0, 2, 7]]) and np.array_equal(found[3, 0], pool[0][3, 0])


def test_dlpack(books, coder, pool):
    cupy = pytest.importorskip("cupy")

    class DlpackOnly:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    with cupy.cuda.Device(DEVICE):
        array = cupy.asarray(pool[0].view(np.int16))
    expected = encode(*described(books, pool[0]))
    for wrapped in (array, DlpackOnly(array)):
        tensors, layouts = described(books, wrapped)
        assert layouts[0].device == DEVICE and coder.encode(tensors, layouts) == expected


def described(books, array):
    layout = Layout(array, "page,token,head,dim", pages=[3, 0], type=ElementType.BF16)
    return [layout.tensor(books.find("BF16"))], [layout]


def test_tables_are_kept_and_dropped(books, pool):
    coder = cuda.Coder(DEVICE)
    coder.TABLES = 2
    device = on_device(pool[0])
    layout = Layout(device, "page,token,head,dim", pages=[1, 2], type=ElementType.BF16)
    frames = set()
    for key in (0, 1, 2, 0, 1, 2):
        frames.add(bytes(coder.encode([layout.tensor(books.find("BF16"), tensor_key=key)], [layout])))
        assert len(coder._tables) <= 2
    assert len(frames) == 3


def test_the_example():
    example = Path(__file__).resolve().parents[2] / "examples/gpu/coder.py"
    if not example.exists():
        pytest.skip("only the package is here")
    done = subprocess.run([sys.executable, "-B", example], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) > 1.3
