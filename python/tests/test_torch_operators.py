# SPDX-License-Identifier: Apache-2.0
"""Operators for PyTorch against the frames of the package for host memory: on the CPU, and on a GPU where there is
one."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import splitzip_kv
from conftest import bits, values
from splitzip_kv import ElementType, Layout, Mode, cuda, encode

torch = pytest.importorskip("torch", reason="tools/test_torch.sh installs torch and runs these tests")
import splitzip_kv.torch as operators
from splitzip_kv.torch import Entry, Table

HAS_GPU = torch.cuda.is_available() and cuda.is_available()
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not HAS_GPU, reason="no GPU, or built without CUDA"))]
if HAS_GPU and torch.cuda.device_count() > 1:
    DEVICES.append("cuda:1")  # which is not the current device
PAGES, PAGE_TOKENS, HEADS, DIM = 24, 16, 2, 64
COUNTS = [70, 1, -1, 128, 0]
FILLER = 0x5A5A


def as_torch(array, device="cpu"):
    """BF16 values of the same bits."""
    return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).to(device)


def as_numpy(tensor):
    return tensor.detach().cpu().view(torch.int16).numpy().view(np.uint16)


def kv_pool(shape, seed=0):
    return bits(values((*shape, DIM), seed=seed))


def views_of_two(pool):
    return [(pool[0], "page,token,head,dim"), (pool[1], "page,token,head,dim")]


# As engines keep K and V: a pool, and the views of it that are K and V with their axes. The same for numpy and torch.
CACHES = {
    # vLLM, FlashAttention
    "pages of K, pages of V, NHD": ((2, PAGES, PAGE_TOKENS, HEADS), views_of_two),
    # vLLM, FlashInfer
    "K and V in each page, NHD": (
        (PAGES, 2, PAGE_TOKENS, HEADS),
        lambda pool: [(pool[:, kv], "page,token,head,dim") for kv in (0, 1)],
    ),
    "K and V in each page, HND": (
        (PAGES, 2, HEADS, PAGE_TOKENS),
        lambda pool: [(pool[:, kv], "page,head,token,dim") for kv in (0, 1)],
    ),
    # vLLM, K and V packed in one row
    "K|V in a row, NHD": (
        (PAGES, PAGE_TOKENS, HEADS, 2),
        lambda pool: [(pool[..., kv, :], "page,token,head,dim") for kv in (0, 1)],
    ),
    "K|V in a row, HND": (
        (PAGES, HEADS, PAGE_TOKENS, 2),
        lambda pool: [(pool[..., kv, :], "page,head,token,dim") for kv in (0, 1)],
    ),
    # SGLang: slots of one token
    "slots": (
        (2, PAGES * PAGE_TOKENS, HEADS),
        lambda pool: [(pool[kv], "page,head,dim") for kv in (0, 1)],
    ),
    # Multi-head latent attention: one row a token, in pages (vLLM) and in slots (SGLang)
    "latent rows in pages": ((PAGES, PAGE_TOKENS), lambda pool: [(pool, "page,token,dim")]),
    "latent rows in slots": ((PAGES * PAGE_TOKENS, 1), lambda pool: [(pool, "page,head,dim")]),
}


def paged_requests(page_tokens, pages, seed):
    """A page table with other pages for each request, and noise where no page is needed."""
    random = np.random.default_rng(seed)
    numbers = random.permutation(pages).astype(np.int32)
    width = -(-max(COUNTS) // page_tokens)
    table = random.integers(0, pages, (len(COUNTS), width), np.int32)
    start = 0
    for row, count in zip(table, COUNTS, strict=True):
        needed = -(-max(count, 0) // page_tokens)
        row[:needed] = numbers[start : start + needed]
        start += needed
    return table


class Case:
    """A cache in numpy and in torch, and what the package for host memory makes of it."""

    def __init__(self, name, books, device, seed=1, mode=Mode.TIERED):
        shape, self.views = CACHES[name]
        self.books, self.device, self.mode = books, device, mode
        self.host = kv_pool(shape)
        page_axes = self.views(self.host)[0]
        self.page_tokens = (
            page_axes[0].shape[1 if page_axes[1].startswith("page,token") else 2] if "token" in page_axes[1] else 1
        )
        self.page_count = page_axes[0].shape[0]
        self.page_table = paged_requests(self.page_tokens, self.page_count, seed)
        self.nonces = np.arange(len(COUNTS), dtype=np.int64) * 2**40 - 3
        self.first_blocks = np.arange(len(COUNTS), dtype=np.int64) + 5

    def table(self, pool):
        book = self.books.find("BF16")
        entries = [
            Entry(view, axes, book, mode=self.mode, tensor_key=key) for key, (view, axes) in enumerate(self.views(pool))
        ]
        return Table([pool], entries, max_tokens=max(COUNTS), tokens_per_unit=16)

    def expected(self, request):
        layouts = self.layouts(self.host, request)
        tensors = [
            layout.tensor(
                self.books.find("BF16"),
                mode=self.mode,
                tokens=COUNTS[request],
                tokens_per_unit=16,
                tensor_key=key,
                first_block=int(self.first_blocks[request]),
            )
            for key, layout in enumerate(layouts)
        ]
        return bytes(encode(tensors, layouts, nonce=int(self.nonces[request]) % 2**64))

    def layouts(self, host, request):
        pages = self.page_table[request][: -(-COUNTS[request] // self.page_tokens)]
        return [Layout(view, axes, pages=pages, type=ElementType.BF16) for view, axes in self.views(host)]

    def on_device(self, array):
        return torch.from_numpy(array.copy()).to(self.device)

    def options(self):
        return {"nonces": self.on_device(self.nonces), "first_blocks": self.on_device(self.first_blocks)}

    def counts(self, dtype=torch.int32):
        return torch.tensor(COUNTS, dtype=dtype, device=self.device)


def frames_of(buffers):
    rows, sizes = buffers.frames.cpu().numpy(), buffers.frame_bytes.tolist()
    return [rows[i, :size].tobytes() for i, size in enumerate(sizes)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CACHES)
def test_frames_and_caches(books, name, device):
    case = Case(name, books, device)
    pool = as_torch(case.host, device)
    table = case.table(pool)
    buffers = table.buffers(len(COUNTS))
    table.encode(case.on_device(case.page_table), case.counts(), buffers, **case.options())
    buffers.check()
    assert int(buffers.failed[0]) == 0
    expected = [case.expected(request) if count >= 0 else b"" for request, count in enumerate(COUNTS)]
    assert frames_of(buffers) == expected

    target = as_torch(np.full_like(case.host, FILLER), device)
    other = Case(name, books, device, seed=2)
    written = table.buffers(len(COUNTS))
    case.table(target).decode(
        other.on_device(other.page_table),
        case.counts(torch.int64),
        buffers.frames,
        buffers.frame_bytes,
        written,
        **case.options(),
    )
    written.check()
    reference = np.full_like(case.host, FILLER)
    for request, count in enumerate(COUNTS):
        if count > 0:
            tensors = splitzip_kv.Frame(expected[request]).tensors(books)
            splitzip_kv.Frame(expected[request]).decode(tensors, other.layouts(reference, request))
    assert np.array_equal(as_numpy(target), reference)


@pytest.mark.parametrize("device", DEVICES)
def test_many_layers(books, device):
    """More caches than one launch of the kernel that prepares a batch takes, each a tensor of its own."""
    layers = 20 if device == "cpu" else 300
    host = bits(values((layers, 6, 4, 1, DIM)))
    pools = [as_torch(layer, device) for layer in host]
    book = books.find("BF16")
    entries = [Entry(pool, "page,token,head,dim", book, tensor_key=key) for key, pool in enumerate(pools)]
    table = Table(pools, entries, max_tokens=24)
    pages = np.array([[3, 0, 5], [1, 2, 4]], np.int32)
    buffers = table.buffers(2)
    table.encode(torch.from_numpy(pages).to(device), torch.tensor([9, 12], device=device), buffers, checksums=False)
    buffers.check()
    for request, count in enumerate((9, 12)):
        layouts = [Layout(layer, "page,token,head,dim", pages=pages[request], type=ElementType.BF16) for layer in host]
        tensors = [
            layout.tensor(book, tokens=count, tokens_per_unit=256, tensor_key=key) for key, layout in enumerate(layouts)
        ]
        assert frames_of(buffers)[request] == bytes(encode(tensors, layouts, checksums=False))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", [Mode.RAW, Mode.FIXED4])
def test_modes_and_one_failure(books, mode, device):
    case = Case("pages of K, pages of V, NHD", books, device, mode=mode)
    pool = as_torch(case.host, device)
    table = case.table(pool)
    buffers = table.buffers(len(COUNTS))
    pages, counts = case.on_device(case.page_table), case.counts()
    table.encode(pages, counts, buffers, **case.options())
    assert frames_of(buffers)[0] == case.expected(0)

    buffers.frames[3, 0] += 1  # no magic number any more
    case.nonces[0] += 1
    target = as_torch(np.zeros_like(case.host), device)
    written = table.buffers(len(COUNTS))
    case.table(target).decode(pages, counts, buffers.frames, buffers.frame_bytes, written, **case.options())
    failures = [splitzip_kv.NonceMismatch.status, 0, 0, splitzip_kv.BadMagic.status, 0]
    assert written.statuses.tolist() == failures and int(written.failed[0]) == 2
    with pytest.raises(splitzip_kv.NonceMismatch, match="request 0"):
        written.check()

    counts[0] = max(COUNTS) + 1
    small = table.buffers(len(COUNTS), frame_bytes=len(case.expected(1)))
    table.encode(pages, counts, small, **case.options())
    too_large, too_small = splitzip_kv.TooLarge.status, splitzip_kv.OutputTooSmall.status
    assert small.statuses.tolist()[:2] == [too_large, 0] and small.statuses.tolist()[3] == too_small
    assert small.frame_bytes.tolist()[:2] == [0, len(case.expected(1))]


@pytest.mark.parametrize("device", DEVICES)
def test_budgets(books, device):
    """Rows of one length, of which all is written: frames that fit and zeros, marks, nothing where a request is skipped."""
    case = Case("K and V in each page, NHD", books, device)
    table = case.table(as_torch(case.host, device))
    budget = len(case.expected(0)) + 1000
    buffers = table.buffers(len(COUNTS), frame_bytes=budget)
    buffers.frames.fill_(0xA5)
    pages, counts = case.on_device(case.page_table), case.counts()
    with pytest.raises(splitzip_kv.InvalidArgument, match="nonces"):
        table.encode(pages, counts, buffers, budgets=True)
    table.encode(pages, counts, buffers, budgets=True, **case.options())
    over = splitzip_kv.OverBudget.status
    assert buffers.statuses.tolist() == [0, 0, 0, over, 0] and int(buffers.failed[0]) == 1
    with pytest.raises(splitzip_kv.OverBudget, match="request 3"):
        buffers.check()
    rows, sizes = buffers.frames.cpu().numpy(), buffers.frame_bytes.tolist()
    for request, (row, size, count) in enumerate(zip(rows, sizes, COUNTS, strict=True)):
        if count < 0:
            assert (row == 0xA5).all()
        elif request == 3:
            assert size == 48 and not row[48:].any()
            with pytest.raises(splitzip_kv.OverBudget):
                splitzip_kv.Frame(row, expected_nonce=int(case.nonces[3]) % 2**64, budget=True)
        else:
            assert row[:size].tobytes() == case.expected(request) and not row[size:].any()

    target = as_torch(np.zeros_like(case.host), device)
    written = table.buffers(len(COUNTS), frame_bytes=16)
    case.table(target).decode(pages, counts, buffers.frames, None, written, **case.options())
    assert written.statuses.tolist() == [0, 0, 0, over, 0] and int(written.failed[0]) == 1
    used = case.page_table[0][: COUNTS[0] // PAGE_TOKENS]
    assert np.array_equal(as_numpy(target)[used], case.host[used])

    case.nonces += 1  # another transfer, which has not come yet
    with pytest.raises(splitzip_kv.InvalidArgument, match="nonces"):
        case.table(target).decode(pages, counts, buffers.frames, None, written)
    case.table(target).decode(pages, counts, buffers.frames, None, written, **case.options())
    late = splitzip_kv.NonceMismatch.status
    assert written.statuses.tolist() == [late, late, 0, late, late]


@pytest.mark.parametrize("device", DEVICES)
def test_a_head_slice_and_odd_alignment(books, device):
    """A view that starts in the middle of a row, and a cache that does not start at a multiple of 16 bytes."""
    host = bits(values((8, 4, 6, DIM)))
    memory = torch.zeros(host.size + 1, dtype=torch.bfloat16, device=device)
    pool = memory[1:].view(host.shape)
    pool.copy_(as_torch(host, device))
    book = books.find("BF16")
    entry = Entry(pool[:, :, 2:5], "page,token,head,dim", book, first_channel=2 * DIM)
    table = Table([pool], [entry], max_tokens=32)
    buffers = table.buffers(1)
    pages = torch.tensor([[7, 1]], dtype=torch.int32, device=device)
    table.encode(pages, torch.tensor([7], device=device), buffers)
    buffers.check()
    layout = Layout(host[:, :, 2:5], "page,token,head,dim", pages=[7, 1], type=ElementType.BF16)
    tensor = layout.tensor(book, tokens=7, tokens_per_unit=256, first_channel=2 * DIM)
    assert frames_of(buffers)[0] == bytes(encode([tensor], [layout]))


@pytest.mark.parametrize("device", DEVICES)
def test_wrong_arguments(books, device):
    case = Case("pages of K, pages of V, NHD", books, device)
    pool = as_torch(case.host, device)
    table = case.table(pool)
    buffers = table.buffers(len(COUNTS))
    pages, counts = case.on_device(case.page_table), case.counts()
    wrong = [
        (pages.long(), counts, "page_table"),
        (pages[:2], counts, "page_table"),
        (pages, counts.float(), "token_counts"),
        (pages.t().contiguous().t(), counts, "rows in one piece"),
    ]
    for page_table, token_counts, what in wrong:
        with pytest.raises(splitzip_kv.InvalidArgument, match=what):
            table.encode(page_table, token_counts, buffers)
    with pytest.raises(splitzip_kv.InvalidArgument, match="shapes, strides"):
        torch.ops.splitzip.encode(table.handle, [pool[:, :4].clone()], pages, counts, *vars(buffers).values())
    with pytest.raises(splitzip_kv.InvalidArgument, match="no table"):
        torch.ops.splitzip.encode(0, [pool], pages, counts, *vars(buffers).values())
    with pytest.raises(splitzip_kv.InvalidArgument, match="none of the caches"):
        Table([pool], [Entry(pool.clone()[0], "page,token,head,dim")], max_tokens=1)
    with pytest.raises(splitzip_kv.InvalidLayout, match="page"):
        Table([pool], [Entry(pool[0, 0], "token,head,dim")], max_tokens=1)
    if device == "cpu":
        pages[0, 0] = PAGES
        table.encode(pages, counts, buffers)
        assert int(buffers.statuses[0]) == splitzip_kv.InvalidLayout.status


def arguments(case, table, buffers):
    return (table.handle, table.caches, case.on_device(case.page_table), case.counts(), *vars(buffers).values())


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(books, device):
    case = Case("K and V in each page, HND", books, device)
    pool = as_torch(case.host, device)
    table = case.table(pool)
    buffers, written = table.buffers(len(COUNTS)), table.buffers(len(COUNTS))
    torch.library.opcheck(torch.ops.splitzip.encode.default, arguments(case, table, buffers), case.options())
    _, *others = vars(written).values()
    given = (table.handle, table.caches, case.on_device(case.page_table), case.counts(), buffers.frames)
    given = (*given, buffers.frame_bytes.clone(), *others)
    torch.library.opcheck(torch.ops.splitzip.decode.default, given, case.options())
    torch.library.opcheck(
        torch.ops.splitzip.encode.default, arguments(case, table, buffers), {**case.options(), "budgets": True}
    )
    given = (*given[:5], None, *others)
    torch.library.opcheck(torch.ops.splitzip.decode.default, given, case.options())


@pytest.mark.parametrize("device", DEVICES)
def test_compiled(books, device):
    """Both ways in one compiled graph, between operations of torch."""
    case = Case("pages of K, pages of V, NHD", books, device)
    pool, target = as_torch(case.host, device), as_torch(np.zeros_like(case.host), device)
    tables = case.table(pool), case.table(target)
    buffers, written = (table.buffers(len(COUNTS)) for table in tables)
    options = case.options()

    @torch.compile(fullgraph=True)
    def move(pool, target, pages, counts, frames, results, failed, workspace, other_results, other_workspace):
        encode_operator, decode_operator = torch.ops.splitzip.encode, torch.ops.splitzip.decode
        counts = counts + 1
        encode_operator(tables[0].handle, [pool], pages, counts, frames, results, failed, workspace, **options)
        lengths = results[:, 0].clone()
        decode_operator(
            tables[1].handle,
            [target],
            pages,
            counts,
            frames,
            lengths,
            other_results,
            failed,
            other_workspace,
            **options,
        )
        return lengths.sum() + other_results[:, 1].sum()

    pages, counts = case.on_device(case.page_table), case.counts() - 1
    total = move(
        pool,
        target,
        pages,
        counts,
        buffers.frames,
        buffers.results,
        buffers.failed,
        buffers.workspace,
        written.results,
        written.workspace,
    )
    expected = [case.expected(request) if count >= 0 else b"" for request, count in enumerate(COUNTS)]
    assert frames_of(buffers) == expected and int(total) == sum(map(len, expected))
    for request, count in enumerate(COUNTS):
        used = case.page_table[request][: max(count, 0) // PAGE_TOKENS]
        assert np.array_equal(as_numpy(target)[:, used], case.host[:, used])


@pytest.mark.skipif(not HAS_GPU, reason="no GPU, or built without CUDA")
def test_cuda_graph(books):
    """A captured graph takes other values, page tables, counts and nonces; results may be polled in pinned memory."""
    case = Case("K|V in a row, NHD", books, "cuda")
    pool, target = as_torch(case.host, "cuda"), as_torch(np.zeros_like(case.host), "cuda")
    table, other = case.table(pool), case.table(target)
    buffers, written = table.buffers(len(COUNTS)), other.buffers(len(COUNTS))
    pinned = torch.zeros((len(COUNTS), 2), dtype=torch.int64).pin_memory()
    written = operators.Buffers(written.frames, pinned, written.failed, written.workspace)
    pages, counts, options = case.on_device(case.page_table), case.counts(), case.options()

    def both():
        table.encode(pages, counts, buffers, **options)
        other.decode(pages, counts, buffers.frames, buffers.frame_bytes, written, **options)

    both()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        both()
    for seed in range(3, 8):
        case.host[:] = kv_pool(CACHES["K|V in a row, NHD"][0], seed=seed)
        pool.copy_(as_torch(case.host, "cuda"))
        target.zero_()
        case.page_table = paged_requests(PAGE_TOKENS, PAGES, seed)
        pages.copy_(torch.from_numpy(case.page_table))
        case.nonces += 1
        options["nonces"].copy_(torch.from_numpy(case.nonces))
        graph.replay()
        torch.cuda.synchronize()
        assert pinned[:, 1].tolist() == [0] * len(COUNTS)
        assert frames_of(buffers) == [case.expected(i) if n >= 0 else b"" for i, n in enumerate(COUNTS)]
        used = case.page_table[3][: COUNTS[3] // PAGE_TOKENS]
        assert np.array_equal(as_numpy(target)[used], case.host[used])


@pytest.mark.skipif(not HAS_GPU, reason="no GPU, or built without CUDA")
def test_the_current_stream(books):
    """Work is ordered on the stream that is current, and on no other."""
    case = Case("slots", books, "cuda")
    pool = torch.zeros(case.host.shape, dtype=torch.bfloat16, device="cuda")
    table = case.table(pool)
    buffers = table.buffers(len(COUNTS))
    pages, counts, options, source = (
        case.on_device(case.page_table),
        case.counts(),
        case.options(),
        as_torch(case.host).cuda(),
    )
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        pool.copy_(source)
        table.encode(pages, counts, buffers, **options)
    stream.synchronize()
    assert frames_of(buffers)[3] == case.expected(3)


@pytest.mark.skipif(not HAS_GPU, reason="no GPU, or built without CUDA")
def test_coder_with_tensors_of_torch(books):
    """splitzip_kv.cuda takes tensors of torch as it takes other arrays."""
    case = Case("pages of K, pages of V, NHD", books, "cuda")
    pool = as_torch(case.host, "cuda")
    layout = Layout(pool[0], "page,token,head,dim", pages=torch.tensor([3, 1], device="cuda"))
    expected = Layout(case.host[0], "page,token,head,dim", pages=[3, 1], type=ElementType.BF16)
    book = books.find("BF16")
    assert cuda.Coder().encode([layout.tensor(book)], [layout]) == encode([expected.tensor(book)], [expected])


@pytest.mark.parametrize("name", ["paged_cache", "budgets"])
def test_the_examples(name):
    """With a GPU and without."""
    example = Path(__file__).resolve().parents[2] / f"examples/torch/{name}.py"
    if not example.exists():
        pytest.skip("only the package is here")
    for visible in ("", "0") if HAS_GPU else ("",):
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible}
        command = [sys.executable, "-B", example]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        assert f"on {'cuda' if visible else 'cpu'}" in done.stdout
