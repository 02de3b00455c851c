# SPDX-License-Identifier: Apache-2.0
"""Operators for PyTorch: paged caches to frames and back, for many requests at once, on CPUs and GPUs.

    table = Table(
        [kv_cache],  # [2, pages, tokens of a page, heads, dim], as an engine has it
        [
            Entry(kv_cache[0], "page,token,head,dim", books.find("layers.0.k"), tensor_key=0),
            Entry(kv_cache[1], "page,token,head,dim", books.find("layers.0.v"), tensor_key=1),
        ],
        max_tokens=32768,
    )
    buffers = table.buffers(requests)
    table.encode(page_table, token_counts, buffers)  # on the current stream; waits for nothing
    frame = buffers.frames[0, : buffers.frame_bytes[0]]

Importing this module registers `torch.ops.splitzip.encode` and `decode`. They write to tensors that are passed in and
return nothing, so that no shape depends on data; they can be compiled (fullgraph) and captured in CUDA graphs, which
then take the page tables, token counts, nonces and frames that are there when they are replayed. They are registered
from Python over an extension that does not know torch: one build serves all its versions.
"""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ._core import Codebook, CudaTable, ElementType, FrameBase, LayoutBase, Mode, Strided, encode_into, frame_sizes
from ._errors import (
    BY_STATUS,
    GeometryMismatch,
    InternalError,
    InvalidArgument,
    InvalidLayout,
    OverBudget,
    SplitzipError,
    TooLarge,
    TrailingBytes,
)
from ._layout import TYPES, axis_numbers
from ._tensor import Tensor

ALIGNMENT = 16  # of caches, as the kernels need it, and of frames
FRAME_ALIGNMENT = 32  # of frames that are encoded at full speed
MARK_BYTES = 48  # what is in a budget that the frame did not fit in


@dataclasses.dataclass(frozen=True)
class Entry:
    """One tensor of the frames (usually K or V of a layer), and where its values lie in every page.

    `view` is a view of one of the table's caches, whose axes are named as for `splitzip_kv.Layout`; one of them is
    "page". `type` says what an array of integers holds. The other fields are those of `splitzip_kv.Tensor`.
    """

    view: torch.Tensor
    axes: str
    codebook: Codebook | None = None
    _: dataclasses.KW_ONLY
    mode: Mode | None = None
    type: ElementType | None = None
    tensor_key: int = 0
    first_channel: int = 0


@dataclasses.dataclass(frozen=True)
class Buffers:
    """What a call writes to, for up to `len(results)` requests. Any tensors of these types and shapes will do."""

    frames: torch.Tensor
    """uint8 [requests, capacity], rows at multiples of 16 bytes, better of 32: on the device of the caches, or
    pinned."""
    results: torch.Tensor
    """int64 [requests, 2]: length of the frame, and status (0 is well). Likewise; a status that is polled in pinned
    memory comes last."""
    failed: torch.Tensor
    """int32 [1]: how many statuses are not 0. Likewise."""
    workspace: torch.Tensor
    """uint8 [Table.workspace_bytes] at a multiple of 256, on the device; its content does not matter."""

    @property
    def frame_bytes(self) -> torch.Tensor:
        return self.results[:, 0]

    @property
    def statuses(self) -> torch.Tensor:
        return self.results[:, 1]

    def check(self) -> None:
        """Wait for the current stream, and raise the error of the first request that failed."""
        if self.workspace.is_cuda:  # results may be pinned
            torch.cuda.current_stream(self.workspace.device).synchronize()
        for request, status in enumerate(self.statuses.tolist()):
            if status:
                raise BY_STATUS.get(status, InternalError)(f"request {request} failed")


class Table:
    """The tensors of a paged cache, their codebooks and where they lie in every page: made once.

    `caches` are the tensors that hold the values, on one device; `entries` describe what is in them, in the order of
    the frames. `max_tokens` is the most that a request may have; `tokens_per_unit` as in `splitzip_kv.Tensor`. A table
    on a GPU allocates there, and waits for the device when it is made and when it goes; it has to live as long as
    graphs that use it. The caches are kept alive.

    Page tables on a GPU are trusted: a number that is no page of the caches reads or writes other memory.
    """

    def __init__(
        self, caches: Sequence[torch.Tensor], entries: Sequence[Entry], *, max_tokens: int, tokens_per_unit: int = 256
    ) -> None:
        self.caches = list(caches)
        if not self.caches or not entries:
            raise InvalidArgument("a table has at least one cache and one entry")
        self.device = self.caches[0].device
        if self.device.type not in ("cpu", "cuda") or any(cache.device != self.device for cache in self.caches):
            raise InvalidArgument("the caches have to be on one device, a CPU or a GPU")
        self.max_tokens = max_tokens
        self._entries = [_Placed(entry, self.caches, max_tokens, tokens_per_unit) for entry in entries]
        used = {entry.cache for entry in self._entries}
        if len(used) != len(self.caches):
            raise InvalidArgument("a cache has no entry")
        self.tensors = [entry.tensor for entry in self._entries]
        self._shapes = [_shape(cache) for cache in self.caches]
        self._addresses = [cache.data_ptr() for cache in self.caches]
        self._cuda: CudaTable | None = None
        if self.device.type == "cuda":
            anchors = [_anchor(self._addresses[entry.cache]) for entry in self._entries]
            layouts = [entry.pool for entry in self._entries]
            lists = [entry.cache for entry in self._entries]
            self._cuda = CudaTable(self.tensors, layouts, lists, anchors, self.device.index)
        self.handle = next(_handles)
        """What the operators call this table."""
        _tables[self.handle] = self

    def frame_bound(self, tokens: int | None = None, *, checksums: bool = True) -> int:
        """No frame of so many tokens (`max_tokens` by default) needs more bytes."""
        count = self.max_tokens if tokens is None else tokens
        tensors = [dataclasses.replace(tensor, tokens=count) for tensor in self.tensors]
        return frame_sizes(tensors, checksums=checksums).bound_bytes

    def workspace_bytes(self, requests: int, max_total_tokens: int = 0) -> int:
        """Enough for `encode` and `decode` of so many requests, which together have at most `max_total_tokens` tokens
        (0: as many as the table allows). About a third of the raw bytes on a GPU, and nothing on a CPU."""
        if self._cuda is None:
            return 0
        return max(self._cuda.paged_workspace(requests, max_total_tokens, decoding) for decoding in (False, True))

    def buffers(self, requests: int, *, max_total_tokens: int = 0, frame_bytes: int | None = None) -> Buffers:
        """New memory for batches of so many requests. Frames get `frame_bytes` each, by default as much as any
        needs."""
        capacity = self.frame_bound() if frame_bytes is None else frame_bytes
        rows = torch.empty(
            (requests, -(-capacity // FRAME_ALIGNMENT) * FRAME_ALIGNMENT), dtype=torch.uint8, device=self.device
        )
        return Buffers(
            rows[:, :capacity],
            torch.zeros((requests, 2), dtype=torch.int64, device=self.device),
            torch.zeros(1, dtype=torch.int32, device=self.device),
            torch.empty(self.workspace_bytes(requests, max_total_tokens), dtype=torch.uint8, device=self.device),
        )

    def encode(
        self,
        page_table: torch.Tensor,
        token_counts: torch.Tensor,
        buffers: Buffers,
        *,
        nonces: torch.Tensor | None = None,
        first_blocks: torch.Tensor | None = None,
        max_total_tokens: int = 0,
        checksums: bool = True,
        max_sms: int = 0,
        budgets: bool = False,
    ) -> None:
        """Encode request i, whose first token_counts[i] tokens lie in the pages page_table[i], to buffers.frames[i].

        `page_table` is int32 [requests, pages], `token_counts` int32 or int64 [requests]; a negative count skips the
        request. `nonces` and `first_blocks` (int64 [requests], 0 by default) are those of `encode` and `Tensor`. All
        on the device of the caches or pinned. `max_total_tokens` is what the workspace was made for, `max_sms` leaves
        the other multiprocessors to others. What is wrong with a request shows in its status; wrong arguments raise.

        With `budgets` each row of frames is a budget: all of it is written, so that it can be sent as it is before
        anyone knows its results: the frame and zeros, or a mark and zeros where the frame does not fit, whose status is
        OverBudget.status. Nonces are needed then, other ones for each transfer.
        """
        torch.ops.splitzip.encode(
            self.handle,
            self.caches,
            page_table,
            token_counts,
            buffers.frames,
            buffers.results,
            buffers.failed,
            buffers.workspace,
            nonces=nonces,
            first_blocks=first_blocks,
            max_total_tokens=max_total_tokens,
            checksums=checksums,
            max_sms=max_sms,
            budgets=budgets,
        )

    def decode(
        self,
        page_table: torch.Tensor,
        token_counts: torch.Tensor,
        frames: torch.Tensor,
        frame_bytes: torch.Tensor | None,
        buffers: Buffers,
        *,
        nonces: torch.Tensor | None = None,
        first_blocks: torch.Tensor | None = None,
        max_total_tokens: int = 0,
        checksums: bool = True,
        max_sms: int = 0,
    ) -> None:
        """Decode frames[i], of frame_bytes[i] bytes (int64 [requests]), to the pages page_table[i].

        Results, counter and workspace of `buffers` are used, and must be other memory than `frame_bytes`. Table, token
        counts, nonces, first blocks and checksums say what the frame must be. A request that fails leaves its own
        pages in an unspecified state and all others as they are. The rest is as for `encode`.

        Without `frame_bytes` (None) the rows of frames are budgets that `encode` has filled; a status of
        OverBudget.status says that the sender's frame did not fit.
        """
        torch.ops.splitzip.decode(
            self.handle,
            self.caches,
            page_table,
            token_counts,
            frames,
            frame_bytes,
            buffers.results,
            buffers.failed,
            buffers.workspace,
            nonces=nonces,
            first_blocks=first_blocks,
            max_total_tokens=max_total_tokens,
            checksums=checksums,
            max_sms=max_sms,
        )


class _Placed:
    """An entry, as a tensor description and the memory that it lies in."""

    def __init__(self, entry: Entry, caches: list[torch.Tensor], max_tokens: int, tokens_per_unit: int) -> None:
        view = entry.view
        memory = _strided(view)
        self.axes = axis_numbers(entry.axes, view.dim(), True)
        self.type = entry.type or TYPES.get(str(view.dtype).removeprefix("torch."))
        page_axis, token_axis, _, _ = self.axes
        assert page_axis is not None
        pages = np.arange(view.shape[page_axis], dtype=np.int32)
        self.page_tokens = view.shape[token_axis] if token_axis is not None else 1
        self.pool = LayoutBase(memory, self.type, *self.axes, pages, 0)
        self.cache = _cache_with(self.pool, view, caches)
        self.memory = memory
        self.offset = memory.address - caches[self.cache].data_ptr()
        element = self.type or (entry.codebook.type if entry.codebook is not None else None)
        if element is None:
            raise InvalidLayout("the view may hold several element types: say which by type=")
        self.tensor = Tensor(
            type=element,
            mode=entry.mode if entry.mode is not None else Mode.RAW if entry.codebook is None else Mode.TIERED,
            codebook=entry.codebook,
            tokens=max_tokens,
            channels=self.pool.channels,
            ranges=self.pool.heads,
            first_channel=entry.first_channel,
            tokens_per_unit=tokens_per_unit,
            tensor_key=entry.tensor_key,
        )

    def request(
        self, cache: torch.Tensor, pages: np.ndarray, tokens: int, first_block: int
    ) -> tuple[Tensor, LayoutBase]:
        """One request's tokens, in host memory."""
        of = self.memory
        memory = Strided(cache.data_ptr() + self.offset, of.shape, of.strides, of.itemsize, False, None, cache)
        numbers = pages[: -(-tokens // self.page_tokens)]
        tensor = dataclasses.replace(self.tensor, tokens=tokens, first_block=first_block)
        return tensor, LayoutBase(memory, self.type, *self.axes, numbers, 0)


def _strided(tensor: torch.Tensor) -> Strided:
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        raise InvalidArgument("caches and views of them have to be plain strided tensors")
    size = tensor.element_size()
    strides = [stride * size for stride in tensor.stride()]
    device = tensor.device.index if tensor.device.type == "cuda" else None
    return Strided(tensor.data_ptr(), list(tensor.shape), strides, size, False, device, tensor)


def _cache_with(pool: LayoutBase, view: torch.Tensor, caches: list[torch.Tensor]) -> int:
    begin, end = pool.reach
    for number, cache in enumerate(caches):
        if cache.device == view.device:
            first = cache.data_ptr()
            last = sum((n - 1) * stride for n, stride in zip(cache.shape, cache.stride(), strict=True))
            if first <= begin and end <= first + (last + 1) * cache.element_size():
                return number
    raise InvalidArgument("the view of an entry is in none of the caches")


def _shape(cache: torch.Tensor) -> tuple[Any, ...]:
    """What a table's caches have in common with others that may take their place, as when a compiler copies them."""
    return cache.shape, cache.stride(), cache.dtype, cache.device, cache.data_ptr() % ALIGNMENT


def _anchor(address: int) -> int:
    """Where a cache's tensors are placed from, so that they are as well aligned as the cache is."""
    return address // ALIGNMENT * ALIGNMENT


_handles = itertools.count(1)
_tables: weakref.WeakValueDictionary[int, Table] = weakref.WeakValueDictionary()


class _Call:
    """The arguments of an operator, checked."""

    def __init__(
        self,
        handle: int,
        caches: list[torch.Tensor],
        page_table: torch.Tensor,
        token_counts: torch.Tensor,
        frames: torch.Tensor,
        frame_bytes: torch.Tensor | None,
        results: torch.Tensor,
        failed: torch.Tensor,
        workspace: torch.Tensor,
        nonces: torch.Tensor | None,
        first_blocks: torch.Tensor | None,
        budgets: bool,
    ) -> None:
        table = _tables.get(handle)
        if table is None:
            raise InvalidArgument(f"there is no table {handle}, or none any more")
        self.table = table
        self.caches, self.page_table, self.token_counts = caches, page_table, token_counts
        self.frames, self.frame_bytes, self.results, self.failed = frames, frame_bytes, results, failed
        self.workspace, self.nonces, self.first_blocks = workspace, nonces, first_blocks
        self.budgets = budgets
        self.addresses = [cache.data_ptr() for cache in caches]
        # Those of the table's own caches are theirs, since it keeps them.
        if self.addresses != table._addresses and ([_shape(cache) for cache in caches] != table._shapes):
            raise InvalidArgument("the caches have other shapes, strides, types or alignment than those of the table")
        self.count = count = token_counts.shape[0] if token_counts.dim() == 1 else 0
        self._demand("token_counts", token_counts, (torch.int32, torch.int64), (count,))
        self._demand("page_table", page_table, (torch.int32,), (count, page_table.shape[-1]), rows=True)
        self._demand("frames", frames, (torch.uint8,), (count, frames.shape[-1]), rows=True)
        self._demand("results", results, (torch.int64,), (count, 2))
        self._demand("failed", failed, (torch.int32,), (1,))
        self._demand("workspace", workspace, (torch.uint8,), (workspace.shape[0],))
        if budgets and nonces is None:
            raise InvalidArgument("budgets need nonces: nothing else tells a frame from the one that was there before")
        if nonces is not None:
            self._demand("nonces", nonces, (torch.int64,), (count,))
        if first_blocks is not None:
            self._demand("first_blocks", first_blocks, (torch.int64,), (count,))
        if frame_bytes is not None and (frame_bytes.dtype != torch.int64 or frame_bytes.shape != (count,)):
            raise InvalidArgument(f"frame_bytes has to be int64 of shape {(count,)}")

    def _demand(
        self,
        name: str,
        tensor: torch.Tensor,
        types: tuple[torch.dtype, ...],
        shape: tuple[int, ...],
        rows: bool = False,
    ) -> None:
        in_pieces = tensor.stride(-1) != 1 and tensor.shape[-1] > 1 if rows else not tensor.is_contiguous()
        if tensor.dtype not in types or tensor.shape != shape or in_pieces or not self.count:
            what = " or ".join(str(type) for type in types)
            piece = "rows in one piece" if rows else "in one piece"
            raise InvalidArgument(
                f"{name} has to be {what} of shape {shape}, {piece}, for at least one request; it is {tensor.dtype} of "
                f"shape {tuple(tensor.shape)}"
            )
        if tensor.device != self.table.device and not (self.table._cuda is not None and tensor.is_pinned()):
            raise InvalidArgument(f"{name} is on {tensor.device}, and the table is for {self.table.device}")

    def on_gpu(self, decoding: bool, max_total_tokens: int, checksums: bool, max_sms: int) -> None:
        table, frames, counts, lengths = self.table, self.frames, self.token_counts, self.frame_bytes
        if table._cuda is None:
            raise InvalidArgument("the table is for caches in host memory")
        if frames.data_ptr() % ALIGNMENT or (self.count > 1 and frames.stride(0) % ALIGNMENT):
            raise InvalidArgument(f"the rows of frames have to start at multiples of {ALIGNMENT} bytes")
        if lengths is not None and lengths.device != table.device and not lengths.is_pinned():
            raise InvalidArgument(f"frame_bytes is on {lengths.device}, and the table is for {table.device}")
        table._cuda.code_paged(
            decoding,
            [_anchor(address) for address in self.addresses],
            self.page_table.data_ptr(),
            self.page_table.stride(0),
            self.page_table.shape[1],
            counts.data_ptr(),
            counts.dtype == torch.int64,
            frames.data_ptr(),
            frames.stride(0),
            frames.shape[1],
            0 if lengths is None else lengths.data_ptr(),
            0 if lengths is None else lengths.stride(0),
            0 if self.nonces is None else self.nonces.data_ptr(),
            0 if self.first_blocks is None else self.first_blocks.data_ptr(),
            self.results.data_ptr(),
            self.failed.data_ptr(),
            self.workspace.data_ptr(),
            self.workspace.shape[0],
            self.count,
            max_total_tokens,
            max_sms,
            checksums,
            torch.cuda.current_stream(table.device).cuda_stream,
            self.budgets,
        )

    def on_cpu(self, decoding: bool, checksums: bool) -> None:
        if self.table._cuda is not None:
            raise InvalidArgument("the table is for caches on a GPU")
        failed = 0
        for request, tokens in enumerate(self.token_counts.tolist()):
            size = status = 0
            if tokens >= 0:
                try:
                    size = self._one(request, tokens, decoding, checksums)
                except SplitzipError as error:
                    status = error.status
                    size = MARK_BYTES if isinstance(error, OverBudget) and not decoding else 0
                    failed += 1
            self.results[request, 0], self.results[request, 1] = size, status
        self.failed[0] = failed

    def _one(self, request: int, tokens: int, decoding: bool, checksums: bool) -> int:
        if tokens > self.table.max_tokens:
            raise TooLarge(f"{tokens} tokens")
        pages = self.page_table[request].numpy()
        first_block = 0 if self.first_blocks is None else int(self.first_blocks[request])
        nonce = (0 if self.nonces is None else int(self.nonces[request])) % 2**64
        placed = [
            entry.request(self.caches[entry.cache], pages, tokens, first_block % 2**64) for entry in self.table._entries
        ]
        tensors, layouts = [tensor for tensor, _ in placed], [layout for _, layout in placed]
        row = self.frames[request].numpy()
        if not decoding:
            return encode_into(tensors, layouts, row, nonce, checksums, None, self.budgets)
        length = len(row) if self.frame_bytes is None else int(self.frame_bytes[request]) % 2**64
        if length > len(row):
            raise TrailingBytes(f"a frame of {length} bytes in {len(row)}")
        frame = FrameBase(row[:length], expected_nonce=nonce, budget=self.budgets)
        if frame.has_checksums != checksums:
            raise GeometryMismatch("the frame has checksums, or has none")
        frame.decode(tensors, layouts)
        return length


def _kernel(decoding: bool, on_gpu: bool) -> Callable[..., None]:
    # The dispatcher leaves out what has the schema's default.
    def kernel(
        handle: int,
        caches: list[torch.Tensor],
        page_table: torch.Tensor,
        token_counts: torch.Tensor,
        frames: torch.Tensor,
        *rest: Any,
        nonces: torch.Tensor | None = None,
        first_blocks: torch.Tensor | None = None,
        max_total_tokens: int = 0,
        checksums: bool = True,
        max_sms: int = 0,
        budgets: bool = False,
    ) -> None:
        lengths, results, failed, workspace = rest if decoding else (None, *rest)
        call = _Call(
            handle,
            caches,
            page_table,
            token_counts,
            frames,
            lengths,
            results,
            failed,
            workspace,
            nonces,
            first_blocks,
            lengths is None if decoding else budgets,
        )
        if on_gpu:
            call.on_gpu(decoding, max_total_tokens, checksums, max_sms)
        else:
            call.on_cpu(decoding, checksums)

    return kernel


def _fake(*_: Any, **__: Any) -> None:
    """Nothing is returned, so there is nothing to say of it."""


def _register() -> Any:
    library: Any = torch.library.Library("splitzip", "DEF")  # type: ignore[no-untyped-call,unused-ignore]
    given = "Tensor page_table, Tensor token_counts"
    written = "Tensor(b!) results, Tensor(c!) failed, Tensor(d!) workspace"
    options = "Tensor? nonces=None, Tensor? first_blocks=None, SymInt max_total_tokens=0, bool checksums=True"
    options = f"*, {options}, SymInt max_sms=0"
    schemas = (
        f"encode(int table, Tensor[] caches, {given}, Tensor(a!) frames, {written}, {options}, bool budgets=False) -> ()",
        f"decode(int table, Tensor(a!)[] caches, {given}, Tensor frames, Tensor? frame_bytes, {written}, {options})"
        " -> ()",
    )
    # Compiled code has to pass the caches with the strides that they have.
    tags = [torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order]
    for decoding, schema in enumerate(schemas):
        name = schema.split("(")[0]
        library.define(schema, tags=tags)
        library.impl(name, _kernel(bool(decoding), False), "CPU")
        library.impl(name, _kernel(bool(decoding), True), "CUDA")
        library.impl(name, _fake, "Meta")
    return library


_library = _register()
