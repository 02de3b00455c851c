# SPDX-License-Identifier: Apache-2.0
"""Coding on a GPU, in its memory: `splitzip_cuda.h` for Python. Frames are those of the CPU, byte for byte.

    if cuda.is_available():
        coder = cuda.Coder()  # frames in host memory, one after the other
        frame = coder.encode([tensor], [Layout(gpu_array, "page,token,head,dim", pages=[7, 3, 12])])

`Table` and `Batch` are the calls for many requests at once, which wait for nothing: everything lies in memory of the
caller's. Arrays may come from any framework: torch tensors, or what has `__cuda_array_interface__` or DLPack.
`splitzip_kv.torch` has operators for torch. The package has this backend if it was built where nvcc was found;
`problem()` says what is missing.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _core
from ._core import CudaTable, Mode, check_on_device, frame_sizes
from ._cuda_memory import Array, Memory, PeerMemory, Stream, copy, device_count, pinned, place_of
from ._errors import InvalidArgument, NonceMismatch, from_status
from ._frame import Frame, encode
from ._layout import Layout, bytes_of, on_host
from ._tensor import Tensor

__all__ = [
    "REQUEST",
    "RESULT",
    "ROWS",
    "Array",
    "Batch",
    "Coder",
    "Memory",
    "PeerMemory",
    "Stream",
    "Table",
    "copy",
    "device_count",
    "is_available",
    "pinned",
    "place_of",
    "problem",
]

REQUEST = np.dtype([("frame", "<u8"), ("capacity", "<u8"), ("nonce", "<u8")])
"""splitzip_cuda_request. Addresses are numbers."""
ROWS = np.dtype(
    [
        ("page_indices", "<u8"),
        ("page_pointers", "<u8"),
        ("page_count", "<u8"),
        ("first_block", "<u8"),
        ("offset", "<i8"),
        ("first_token", "<u4"),
        ("tokens", "<u4"),
    ]
)
"""splitzip_cuda_rows."""
RESULT = np.dtype([("frame_bytes", "<u8"), ("status", "<u4"), ("reserved", "<u4")])
"""splitzip_cuda_result."""


def problem() -> str | None:
    """Why `is_available()` is false. Asking starts the driver, after which a process should not fork."""
    return _core.cuda_problem()


def is_available() -> bool:
    """Whether the package has the CUDA backend, and the machine a GPU."""
    return problem() is None


@dataclasses.dataclass(kw_only=True)
class Batch:
    """What one call works on. All memory is the caller's and must live until the work is done; see splitzip_cuda.h 2.

    Each field is an address, or memory of any framework in one piece, whose length is checked. Kernels read and write it when they run, so that
    a captured graph takes what is there when it is replayed.
    """

    requests: Any
    """REQUEST records, `request_count` of them: memory of the GPU, or pinned."""
    rows: Any
    """ROWS records: the row lists of request 0, those of request 1, ..."""
    results: Any
    """RESULT records are written there, one a request, the status last."""
    failed: Any
    """uint32: the number of requests whose status is not 0, written after all results."""
    workspace: Any
    """Memory of the GPU at a multiple of 256: `Table.encode_workspace` or `decode_workspace` bytes; content does not
    matter."""
    request_count: int = 1
    max_total_tokens: int = 0
    """The most tokens that a row list has in all requests together; 0: what the table allows for each request."""
    max_sms: int = 0
    """So many multiprocessors at most; 0: all."""
    checksums: bool = True
    """Encoding: whether the frames get chunk checksums; decoding: whether they have them."""
    budgets: bool = False
    """Capacities of requests are budgets. Encoding writes all bytes of one, so that it can be sent before anyone has seen
    the results: the frame or, with the status of OverBudget, a mark, and then zeros. Decoding takes the frame's length
    from its header and refuses what the budget does not hold."""


class Table:
    """Tensors, their codebooks and where their values lie in a GPU's memory: what is the same for every call.

    Of a tensor all fields count but `first_block`; its `tokens` are the most that any request will have. Layouts say
    in which memory the tensors lie; their page lists and first tokens do not count, because they come with each call:
    page lists that come with a batch are trusted. `row_lists[i]` says which of a request's row lists has the pages and
    tokens of tensor i (by default 0 for all). The table keeps nothing of tensors and layouts: the memory has to live
    while it is used.

    Making and destroying one allocates and waits for the device. Raises InvalidLayout and the other errors of
    splitzip_cuda_table_create.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        layouts: Sequence[Layout],
        *,
        row_lists: Sequence[int] = (),
        read_only: bool = False,
    ) -> None:
        devices = {layout.device for layout in layouts if layout.device is not None}
        if len(devices) > 1:
            raise InvalidArgument("a table is for the memory of one GPU")
        self.device = devices.pop() if devices else 0
        check_on_device([dataclasses.replace(tensor, tokens=0) for tensor in tensors], layouts, not read_only)
        self._table = CudaTable(tensors, layouts, list(row_lists), [], self.device)

    def encode_workspace(self, request_count: int = 1, max_total_tokens: int = 0) -> int:
        """Bytes of workspace that encoding such a batch needs: about a third of the raw bytes."""
        return self._table.workspace(request_count, max_total_tokens, False)

    def decode_workspace(self, request_count: int = 1, max_total_tokens: int = 0) -> int:
        return self._table.workspace(request_count, max_total_tokens, True)

    def encode(self, batch: Batch, stream: int) -> None:
        """Launch the encoding on `stream` (a cudaStream_t as a number; 0 is the default stream) and return.

        The statuses of requests come in `results`; this raises where nothing was launched: InvalidArgument,
        OutputTooSmall (the workspace), TooLarge, DeviceError.
        """
        self._code(False, batch, stream)

    def decode(self, batch: Batch, stream: int) -> None:
        """Likewise. A frame of any bytes whatever gives a status, and leaves the other requests as they are."""
        self._code(True, batch, stream)

    def _code(self, decoding: bool, batch: Batch, stream: int) -> None:
        count = batch.request_count
        workspace, workspace_bytes = place_of(batch.workspace)
        if isinstance(batch.workspace, int):
            workspace_bytes = self._table.workspace(count, batch.max_total_tokens, decoding)
        self._table.code(
            decoding,
            _place_with("requests", batch.requests, count * REQUEST.itemsize),
            _place_with("rows", batch.rows, count * self._table.row_lists * ROWS.itemsize),
            _place_with("results", batch.results, count * RESULT.itemsize),
            _place_with("failed", batch.failed, 4),
            workspace,
            workspace_bytes,
            count,
            batch.max_total_tokens,
            batch.max_sms,
            batch.checksums,
            stream,
            batch.budgets,
        )


class Coder:
    """Encodes from a GPU's memory to frames in host memory, and back: the calls of the CPU for layouts that lie there.

    Calls wait until they are done; one runs at a time, others wait. They come after what is on the default stream;
    work of other streams on the same memory has to be complete. Frames go through memory of the GPU that the coder
    keeps, as it keeps a table for each set of tensors and places that it has seen last. Pinned frames (`pinned`) are
    copied fastest.
    """

    TABLES = 256
    """Tables that are kept."""

    def __init__(self, device: int = 0) -> None:
        self.device = device
        self._stream = Stream(device)
        self._lock = threading.Lock()
        self._tables: collections.OrderedDict[tuple[Any, ...], CudaTable] = collections.OrderedDict()
        self._results = pinned(RESULT.itemsize + 4, device)
        self._head = pinned(HEAD_BYTES, device)
        self._checksums = True  # whether the last frame had them
        self._control = _Grown(device)
        self._frame = _Grown(device)
        self._workspace = _Grown(device)

    def encode(
        self,
        tensors: Sequence[Tensor],
        layouts: Sequence[Layout],
        *,
        out: Any = None,
        nonce: int = 0,
        checksums: bool = True,
        budget: bool = False,
    ) -> memoryview:
        """As `splitzip_kv.encode`; `out` is host memory."""
        check_on_device(tensors, layouts, False)
        if out is None and budget:
            raise InvalidArgument("a budget is the size of `out`")
        bound = frame_sizes(tensors, checksums=checksums).bound_bytes
        view = bytes_of(np.empty(bound, np.uint8) if out is None else out)
        capacity = len(view) if budget else min(len(view), bound)
        with self._lock:
            frame, place = self._frame.room(capacity), place_of(view)[0]
            # How long a budget is has not to be waited for.
            then = (place, frame, capacity) if budget else None
            size = size_of(
                self._launch(False, tensors, layouts, (frame, capacity, nonce), checksums, budget, then=then)
            )
            if not budget:
                self._copy(place, frame, size)
        return view[:size]

    def encode_to(
        self,
        frame: Array,
        tensors: Sequence[Tensor],
        layouts: Sequence[Layout],
        *,
        nonce: int = 0,
        checksums: bool = True,
        budget: bool = False,
    ) -> int:
        """As `encode`, to memory of this or another GPU at a multiple of 16; returns the length of the frame."""
        check_on_device(tensors, layouts, False)
        request = (frame.address, frame.nbytes, nonce)
        with self._lock:
            return size_of(self._launch(False, tensors, layouts, request, checksums, budget))

    def decode(self, frame: Frame, tensors: Sequence[Tensor], layouts: Sequence[Layout]) -> None:
        """As `frame.decode(tensors, layouts)`. The frame is copied to the GPU and checked there again, so that nobody
        changes it between its check and its use. Slots are as long as the frame has them, where a tensor says
        nothing else."""
        check_on_device(tensors, layouts, True)
        if frame.tensor_count == len(tensors):
            tensors = [_with_slots_of(found, tensor) for found, tensor in zip(frame.tensors(), tensors, strict=True)]
        with self._lock:
            place = self._frame.room(frame.size)
            _core.cuda_copy(place, place_of(frame.data)[0], frame.size, self._stream.handle)
            size_of(self._launch(True, tensors, layouts, (place, frame.size, frame.nonce), frame.has_checksums))

    def decode_from(
        self,
        frame: Array,
        nonce: int,
        tensors: Sequence[Tensor],
        layouts: Sequence[Layout],
        *,
        budget: bool = False,
    ) -> None:
        """The frame `nonce` that fills memory of this or another GPU, or was encoded to it with a budget, whoever may
        write to it meanwhile.

        Raises SplitzipError unless it was that frame in the beginning and still is at the end: what was decoded is
        then its content."""
        check_on_device(tensors, layouts, True)
        with self._lock:
            for checksums in (self._checksums, not self._checksums):
                status = self._decode_and_look(frame, nonce, tensors, layouts, checksums, budget)
                if self._head.tobytes() == head_of_frame(nonce, checksums):
                    self._checksums = checksums
                    if status:
                        raise failure(status)
                    return
        raise NonceMismatch(f"the memory does not hold the frame with nonce {nonce}")

    def _decode_and_look(
        self,
        frame: Array,
        nonce: int,
        tensors: Sequence[Tensor],
        layouts: Sequence[Layout],
        checksums: bool,
        budget: bool,
    ) -> int:
        request = (frame.address, frame.nbytes, nonce)
        look = (int(self._head.ctypes.data), frame.address, min(HEAD_BYTES, frame.nbytes))
        return self._launch(True, tensors, layouts, request, checksums, budget, then=look)[1]

    def on_host(self, layout: Layout, *, tokens: int | None = None) -> Layout:
        """An array [token, head, dim] in host memory with all values of `layout`, or those of its first `tokens` tokens:
        for what is not done on a GPU, as calibration."""
        tensor = layout.tensor(mode=Mode.RAW, tokens=tokens)
        copied = on_host(tensor, layout.element_bytes)
        Frame(self.encode([tensor], [layout])).decode([tensor], [copied])
        return copied

    def copy(self, destination: Any, source: Any) -> None:
        """Copy between memory in one piece, of a GPU or of the host, and wait until it is done."""
        (to, room), (of, size) = place_of(destination), place_of(source)
        if size > room:
            raise InvalidArgument(f"{size} bytes do not fit into {room}")
        with self._lock:
            self._copy(to, of, size)

    def _copy(self, to: int, of: int, size: int) -> None:
        _core.cuda_copy(to, of, size, self._stream.handle)
        self._stream.synchronize()

    def _launch(
        self,
        decoding: bool,
        tensors: Sequence[Tensor],
        layouts: Sequence[Layout],
        request: tuple[int, int, int],
        checksums: bool,
        budget: bool = False,
        then: tuple[int, int, int] | None = None,
    ) -> tuple[int, int]:
        """Code one request; returns the length of its frame and the status. `then` is a copy that is made afterwards:
        to, from, bytes."""
        table = self._table(tensors, layouts)
        tokens = max(tensor.tokens for tensor in tensors)
        workspace_bytes = table.workspace(1, tokens, decoding)
        workspace = self._workspace.room(workspace_bytes)
        requests, rows = self._upload(tensors, layouts, request)
        results = int(self._results.ctypes.data)
        failed = results + RESULT.itemsize
        stream = self._stream.handle
        table.code(
            decoding,
            requests,
            rows,
            results,
            failed,
            workspace,
            workspace_bytes,
            1,
            tokens,
            0,
            checksums,
            stream,
            budget,
        )
        if then is not None:
            _core.cuda_copy(*then, stream)
        self._stream.synchronize()
        size, status, _ = self._results[: RESULT.itemsize].view(RESULT)[0].tolist()
        return int(size), int(status)

    def _upload(
        self, tensors: Sequence[Tensor], layouts: Sequence[Layout], request: tuple[int, int, int]
    ) -> tuple[int, int]:
        """Write the request, a row list for each tensor and its pages to the GPU; returns where request and rows
        are."""
        rows = np.zeros(len(tensors), ROWS)
        rows_at = REQUEST.itemsize
        pages_at = rows_at + rows.nbytes
        pages: list[np.ndarray] = []
        places: dict[bytes, int] = {}  # of equal lists, as all layers have the same one
        for row, tensor, layout in zip(rows, tensors, layouts, strict=True):
            row["tokens"] = tensor.tokens
            row["first_block"] = tensor.first_block
            row["first_token"] = layout.first_token
            numbers = layout.pages
            if numbers is not None:
                key = numbers.tobytes()
                if key not in places:
                    places[key] = pages_at
                    pages.append(numbers)
                    pages_at += numbers.nbytes
                row["page_indices"] = places[key]  # from the start of this memory, whose address is not known yet
                row["page_count"] = len(numbers)
        address = self._control.room(pages_at)
        rows["page_indices"][rows["page_indices"] != 0] += np.uint64(address)
        head = np.array([request], REQUEST)
        control = np.concatenate([part.view(np.uint8) for part in (head, rows, *pages)])
        _core.cuda_copy(address, int(control.ctypes.data), control.nbytes, self._stream.handle)
        return address, address + rows_at

    def _table(self, tensors: Sequence[Tensor], layouts: Sequence[Layout]) -> CudaTable:
        # Requests of about the same length share a table.
        most = [_rounded(tensor.tokens) for tensor in tensors]
        key = tuple(
            (tokens, layout.place, _fixed_fields(tensor))
            for tokens, tensor, layout in zip(most, tensors, layouts, strict=True)
        )
        table = self._tables.pop(key, None)
        if table is None:
            longest = [dataclasses.replace(tensor, tokens=tokens) for tokens, tensor in zip(most, tensors, strict=True)]
            table = CudaTable(longest, layouts, list(range(len(longest))), [], self.device)
            if len(self._tables) >= self.TABLES:
                self._tables.popitem(last=False)
        self._tables[key] = table
        return table


def _place_with(name: str, memory: Any, least: int) -> int:
    """Address of a field of a batch that has so many bytes; one that is given as an address is trusted."""
    address, size = place_of(memory)
    if size < least and not isinstance(memory, int):
        raise InvalidArgument(f"{name} has {size} bytes, and the requests of the batch need {least}")
    return address


def _with_slots_of(found: Tensor, tensor: Tensor) -> Tensor:
    if tensor.mode is Mode.RAW or found.mode is not tensor.mode or tensor.slot_words is not None:
        return tensor
    return dataclasses.replace(tensor, slot_words=found.slot_words)


def size_of(outcome: tuple[int, int]) -> int:
    """Length of the frame, of that and a status; raises what the status says."""
    size, status = outcome
    if status:
        raise failure(status)
    return size


def failure(status: int) -> Exception:
    return from_status(status, f"the GPU reports {_core.status_name(status)}", None, None, None)


HEAD_BYTES = 16
"""Magic, version, flags and nonce: what a frame begins with (docs/format.md, 4.1)."""


def head_of_frame(nonce: int, checksums: bool) -> bytes:
    """How a frame with this nonce begins."""
    return bytes(encode([], [], nonce=nonce, checksums=checksums)[:HEAD_BYTES])


def _rounded(tokens: int) -> int:
    """The next power of two; very long ones as they are, since twice their tokens might be too many for a frame."""
    return tokens if tokens > 1 << 20 else 1 << max(tokens - 1, 0).bit_length()


def _fixed_fields(tensor: Tensor) -> tuple[Any, ...]:
    book = tensor.codebook.hash if tensor.codebook is not None else None
    return (
        tensor.type,
        tensor.mode,
        book,
        tensor.tensor_key,
        tensor.tokens_per_unit,
        tensor.channels,
        tensor.first_channel,
        tensor.ranges,
        tensor.slot_words,
    )


class _Grown:
    """Memory of a GPU that grows when more is asked for."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._memory = Memory(0, device)

    def room(self, nbytes: int) -> int:
        if nbytes > self._memory.nbytes:
            self._memory = Memory(nbytes + nbytes // 4, self._device)
        return int(self._memory.address)
