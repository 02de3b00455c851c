# SPDX-License-Identifier: Apache-2.0
"""The CUDA codec for benchmarks in Python: splitzip_cuda.h by ctypes, on torch's streams."""

import ctypes
import time
from ctypes import byref, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

import torch

BF16, FIXED4, TIERED = 1, 1, 2
DEFAULT_SLOT = 0xFFFFFFFF
NO_STATUS = 0xFFFFFFFF
PATIENCE = 20.0


class Tensor(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t), ("type", c_int32), ("mode", c_int32), ("codebook", c_void_p), ("tensor_key", c_uint64),
        ("first_block", c_uint64), ("tokens", c_uint32), ("tokens_per_unit", c_uint32), ("channels", c_uint32),
        ("first_channel", c_uint32), ("ranges", c_uint32), ("slot_words", c_uint32),
    ]  # fmt: skip


class Layout(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t), ("base", c_void_p), ("row_stride", c_int64), ("range_stride", c_int64),
        ("page_tokens", c_uint32), ("first_token", c_uint32), ("page_stride", c_int64), ("page_indices", c_void_p),
        ("page_pointers", c_void_p), ("page_count", c_uint64),
    ]  # fmt: skip


class Request(ctypes.Structure):
    _fields_ = [("frame", c_void_p), ("capacity", c_uint64), ("nonce", c_uint64)]


class Rows(ctypes.Structure):
    _fields_ = [
        ("page_indices", c_void_p), ("page_pointers", c_void_p), ("page_count", c_uint64), ("first_block", c_uint64),
        ("offset", c_int64), ("first_token", c_uint32), ("tokens", c_uint32),
    ]  # fmt: skip


class Result(ctypes.Structure):
    _fields_ = [("frame_bytes", c_uint64), ("status", c_uint32), ("reserved", c_uint32)]


class Batch(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t), ("requests", c_void_p), ("rows", c_void_p), ("results", c_void_p), ("failed", c_void_p),
        ("workspace", c_void_p), ("workspace_bytes", c_uint64), ("max_total_tokens", c_uint64), ("request_count", c_uint32),
        ("max_sms", c_uint32), ("checksums", c_int32), ("budgets", c_int32),
    ]  # fmt: skip


class FrameSizes(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t), ("raw_bytes", c_uint64), ("known_bytes", c_uint64), ("bound_bytes", c_uint64),
        ("chunk_count", c_uint32), ("tile_count", c_uint32),
    ]  # fmt: skip


class EncodeOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t), ("nonce", c_uint64), ("checksums", c_int32), ("budget", c_int32), ("workers", c_void_p),
    ]  # fmt: skip


class Slot(ctypes.Structure):
    """What a call reads and writes in pinned memory."""

    _fields_ = [("request", Request), ("rows", Rows), ("result", Result), ("failed", c_uint32)]


def on_device(rows, tokens):
    """{name: [tokens, channels] on the GPU} of shorter or longer tensors of the host, repeated as needed."""
    return {name: values.repeat(-(-tokens // len(values)), 1)[:tokens].contiguous().cuda() for name, values in rows.items()}


class Codec:
    """The BF16 values of `pool` ({name: [tokens, channels] on the GPU}), `slots` calls at a time; `codebooks` are the bytes of a
    file. Slot i works on memory that lies i * `slot_stride` bytes behind the pool's. With `budget_margin` frames have a budget of
    `bound` bytes: what is known of them beforehand, and this share more."""

    def __init__(self, library, codebooks, pool, slots, *, max_sms=0, mode=TIERED, checksums=True, slot_stride=0, budget_margin=None):
        self.library = ctypes.CDLL(str(library))
        self.library.splitzip_status_name.restype = ctypes.c_char_p
        self.library.splitzip_codebook_set_find.restype = c_void_p
        self.library.splitzip_codebook_set_find.argtypes = [c_void_p, ctypes.c_char_p]
        self.codebooks = c_void_p()
        self._call("splitzip_codebook_set_load", codebooks, c_size_t(len(codebooks)), byref(self.codebooks), None)
        self.pool = pool
        self.slice_bytes = sum(values.nbytes for values in pool.values())
        tensors, layouts = (Tensor * len(pool))(), (Layout * len(pool))()
        for number, (name, values) in enumerate(pool.items()):
            codebook = self.library.splitzip_codebook_set_find(self.codebooks, name.encode())
            tokens, channels = values.shape
            tensors[number] = Tensor(ctypes.sizeof(Tensor), BF16, mode, codebook, number, 0, tokens, 16, channels, 0, 1, DEFAULT_SLOT)
            layouts[number] = Layout(ctypes.sizeof(Layout), values.data_ptr(), 2 * channels, 2 * channels, 0, 0, 0, None, None, 0)
        self.table = c_void_p()
        self._call("splitzip_cuda_table_create", tensors, layouts, None, c_size_t(len(pool)), byref(self.table), None)
        sizes = FrameSizes(ctypes.sizeof(FrameSizes))
        options = EncodeOptions(ctypes.sizeof(EncodeOptions), 0, checksums, 0, None)
        self._call("splitzip_get_frame_sizes", tensors, c_size_t(len(pool)), byref(options), byref(sizes), None)
        self.bound = sizes.bound_bytes
        if budget_margin is not None:
            self.bound = min(int(sizes.known_bytes * (1 + budget_margin)) // 32 * 32 + 32, sizes.bound_bytes)
        self.frames = [torch.empty(self.bound, dtype=torch.uint8, device="cuda") for _ in range(slots)]
        self._pinned = torch.zeros(slots * ctypes.sizeof(Slot), dtype=torch.uint8, pin_memory=True)
        self.slots = (Slot * slots).from_address(self._pinned.data_ptr())
        workspace = 0
        for way in ("encode", "decode"):
            needed = c_uint64()
            self._call(f"splitzip_cuda_{way}_workspace", self.table, c_uint32(1), c_uint64(0), byref(needed))
            workspace = max(workspace, needed.value)
        self._workspace = torch.empty(workspace, dtype=torch.uint8, device="cuda")
        self._max_sms, self._checksums, self._budgets = max_sms, checksums, budget_margin is not None
        for number, (slot, frame) in enumerate(zip(self.slots, self.frames)):
            slot.rows.tokens, slot.rows.offset = tokens, number * slot_stride
            slot.request = Request(frame.data_ptr(), self.bound, 1)

    def encode(self, slot, stream):
        self.slots[slot].request.capacity = self.bound
        self._launch("splitzip_cuda_encode", slot, stream)

    def decode(self, slot, frame_bytes, stream):
        self.slots[slot].request.capacity = frame_bytes
        self._launch("splitzip_cuda_decode", slot, stream)

    def wait(self, slot):
        """Bytes of the frame, once the slot's call has ended well."""
        result, end = self.slots[slot].result, time.monotonic() + PATIENCE
        while result.status == NO_STATUS:
            if time.monotonic() > end:
                raise RuntimeError("the device does not answer")
            time.sleep(10e-6)
        self._check(result.status, "slice")
        return result.frame_bytes

    def close(self):
        self.library.splitzip_cuda_table_destroy(self.table)
        self.library.splitzip_codebook_set_destroy(self.codebooks)

    def _launch(self, name, slot, stream):
        entry = self.slots[slot]
        entry.result.status = NO_STATUS
        address = ctypes.addressof(entry)
        batch = Batch(
            ctypes.sizeof(Batch), address + Slot.request.offset, address + Slot.rows.offset, address + Slot.result.offset,
            address + Slot.failed.offset, self._workspace.data_ptr(), self._workspace.numel(), 0, 1, self._max_sms,
            self._checksums, self._budgets,
        )  # fmt: skip
        self._call(name, self.table, byref(batch), c_void_p(stream.cuda_stream))

    def _call(self, name, *arguments):
        self._check(getattr(self.library, name)(*arguments), name)

    def _check(self, status, what):
        if status:
            raise RuntimeError(f"{what}: {self.library.splitzip_status_name(status).decode()}")
