# SPDX-License-Identifier: Apache-2.0
"""The extension over the C interface. Import its names from `splitzip_kv`."""

import enum
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ._tensor import Tensor

# Anything that gives its bytes by the buffer protocol: bytes, bytearray, memoryview, mmap, numpy and ctypes arrays.
_Buffer = Any

FORMAT_VERSION: int
"""Version of the frame, codebook and file format that this library writes and reads."""

class ElementType(enum.IntEnum):
    BF16 = 1
    FP16 = 2
    FP32 = 3
    FP8_E4M3 = 4
    FP8_E5M2 = 5
    BYTES = 6

class Mode(enum.IntEnum):
    RAW = 0
    """As it is, with checksums; needs no codebook."""
    FIXED4 = 1
    """Exponents in 4 bits: the paper's code."""
    TIERED = 2
    """Exponents in 2, 4, 6 or 14 bits by frequency: the default where there is a codebook."""

class Codebook:
    """What calibration learned of one tensor. Never changes; keeps its set alive. Equal if the hashes are."""

    @property
    def hash(self) -> int:
        """Identity: equal hashes decode each other's frames."""
    @property
    def type(self) -> ElementType: ...
    @property
    def name(self) -> str:
        """The empty name serves every tensor without a codebook of its own."""
    @property
    def bases(self) -> bytes:
        """Base exponent of each channel; a single one serves every channel."""
    @property
    def ranks(self) -> bytes: ...
    @property
    def fixed4_slot_words(self) -> int: ...
    @property
    def tiered_slot_words(self) -> int: ...
    @property
    def sample_values(self) -> int: ...
    @property
    def top8_coverage(self) -> float:
        """Share of the values whose exponent is among the 8 most frequent ones."""
    @property
    def top16_coverage(self) -> float: ...
    @property
    def entropy(self) -> float:
        """Bits, of the exponent."""
    @property
    def entropy_given_channel(self) -> float: ...
    @property
    def fixed4_bits(self) -> float:
        """Expected bits a value in mode FIXED4, without directory."""
    @property
    def tiered_bits(self) -> float: ...
    @property
    def fixed4_escapes(self) -> float:
        """Expected escapes a value in mode FIXED4."""
    @property
    def tiered_escapes(self) -> float: ...

class CodebookSet:
    """Named codebooks, usually one for each tensor: what a *.szcb file holds. Never changes."""

    def __init__(self, data: _Buffer) -> None:
        """From the bytes of a *.szcb file, which are copied. Any bytes whatever are safe to pass."""
    @staticmethod
    def load(path: str | os.PathLike[str]) -> CodebookSet: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...
    def to_bytes(self) -> bytes: ...
    @property
    def provenance(self) -> str:
        """The text given to `Calibration.finish`."""
    def find(self, name: str) -> Codebook | None:
        """By the name of a tensor: its own codebook, else the one named "", else None."""
    def find_hash(self, hash: int) -> Codebook | None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Codebook: ...
    def __iter__(self) -> Iterator[Codebook]: ...

class Calibration:
    """Counts exponents by tensor name and channel, piece by piece, and builds codebooks from them."""

    def __init__(self) -> None: ...
    def add(self, name: str, layout: LayoutBase, *, base_count: int | None = None, first_channel: int = 0) -> None:
        """Count all values of `layout` under `name`.

        `base_count` is the number of channels of the full tensor, by default that of the layout, or 1 to have all
        channels share one base; it and the type must be the same in each call for a name.
        """
    def merge(self, other: Calibration) -> None:
        """Add the counts of `other`, which stays as it is."""
    def finish(self, provenance: str = "") -> CodebookSet:
        """One codebook for each name, in order of the names."""
    @staticmethod
    def from_bytes(data: _Buffer) -> Calibration:
        """Counts that `to_bytes` wrote. Any bytes whatever are safe to pass."""
    def to_bytes(self) -> bytes: ...

class LayoutBase:
    """Memory with the roles of its axes; `Layout` makes it from arrays."""

    def __init__(
        self,
        bits: _Buffer | Strided,
        type: ElementType | None,
        page_axis: int | None,
        token_axis: int | None,
        head_axis: int | None,
        channel_axis: int | None,
        pages: _Buffer | None,
        first_token: int,
    ) -> None: ...
    @property
    def type(self) -> ElementType | None:
        """None for integers of 16 or 32 bits, which may hold any type of that size."""
    @property
    def element_bytes(self) -> int: ...
    @property
    def tokens(self) -> int:
        """Tokens from `first_token` to the end of the array or of the page list."""
    @property
    def heads(self) -> int: ...
    @property
    def channels(self) -> int:
        """Values of a token in one head."""
    @property
    def readonly(self) -> bool: ...
    @property
    def device(self) -> int | None:
        """Number of the GPU in whose memory the array is; None: host memory."""
    @property
    def pages(self) -> np.ndarray | None:
        """A copy of the page list, int32."""
    @property
    def first_token(self) -> int: ...
    @property
    def place(self) -> tuple[int, ...]:
        """What addresses depend on, beside the page list."""
    @property
    def reach(self) -> tuple[int, int]:
        """The address of the first byte of the array, and that after its last one."""

class Strided:
    """An array by its address, which is taken as it is; strides in bytes."""

    def __init__(
        self,
        address: int,
        shape: Sequence[int],
        strides: Sequence[int],
        itemsize: int,
        readonly: bool,
        device: int | None,
        owner: Any,
    ) -> None:
        """`device` is the number of a GPU, or None for host memory; `owner` is kept."""
    @property
    def address(self) -> int: ...
    @property
    def shape(self) -> list[int]: ...
    @property
    def strides(self) -> list[int]: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def readonly(self) -> bool: ...
    @property
    def device(self) -> int | None: ...

class CudaMemory:
    def __init__(self, bytes: int, device: int) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> int: ...

class CudaPeerMemory:
    """Memory that another process of this host has, for kernels and copies of `device`."""

    def __init__(self, handle: bytes, device: int) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def device(self) -> int: ...

class CudaHostRegistration:
    """Pins host memory of the caller's while it lives."""

    def __init__(self, address: int, bytes: int) -> None: ...

class CudaStream:
    def __init__(self, device: int) -> None: ...
    @property
    def handle(self) -> int: ...
    def synchronize(self) -> None: ...

class CudaTable:
    """splitzip_cuda_table. All numbers but the counts are addresses, which are taken as they are."""

    def __init__(
        self,
        tensors: Sequence[Tensor],
        layouts: Sequence[LayoutBase],
        row_lists: Sequence[int],
        anchors: Sequence[int],
        device: int,
    ) -> None:
        """From the base of tensor i anchors[i] is taken: an offset of its row list has to bring it back."""
    @property
    def device(self) -> int: ...
    @property
    def row_lists(self) -> int: ...
    def workspace(self, request_count: int, max_total_tokens: int, decoding: bool) -> int: ...
    def paged_workspace(self, request_count: int, max_total_tokens: int, decoding: bool) -> int:
        """The same for `code_paged`."""
    def code(
        self,
        decoding: bool,
        requests: int,
        rows: int,
        results: int,
        failed: int,
        workspace: int,
        workspace_bytes: int,
        request_count: int,
        max_total_tokens: int,
        max_sms: int,
        checksums: bool,
        stream: int,
        budgets: bool = False,
    ) -> None: ...
    def code_paged(
        self,
        decoding: bool,
        caches: Sequence[int],
        page_table: int,
        page_table_stride: int,
        page_table_width: int,
        token_counts: int,
        wide_token_counts: bool,
        frames: int,
        frame_stride: int,
        frame_capacity: int,
        frame_bytes: int,
        frame_bytes_stride: int,
        nonces: int,
        first_blocks: int,
        results: int,
        failed: int,
        workspace: int,
        workspace_bytes: int,
        request_count: int,
        max_total_tokens: int,
        max_sms: int,
        checksums: bool,
        stream: int,
        budgets: bool,
    ) -> None:
        """Requests and rows from a page table with a row for each request, by a kernel of its own: see csrc/cuda.hpp."""

class Workers:
    """Threads, created once, that help with the frames of any number of calls; frames and values do not depend on them.

    Calls may use the same workers at the same time: the threads help one call, the others go on alone.
    """

    def __init__(self, threads: int = 0) -> None:
        """`threads` counts the calling thread; 0: as many as the machine has processors."""
    @property
    def threads(self) -> int: ...

class FrameSizes:
    """Sizes of the frame of some tensors, before encoding."""

    @property
    def raw_bytes(self) -> int:
        """Values only."""
    @property
    def known_bytes(self) -> int:
        """Everything but the spill: exact, and equal to the frame's size where nothing spills."""
    @property
    def bound_bytes(self) -> int:
        """No input whatever needs more."""
    @property
    def chunk_count(self) -> int: ...
    @property
    def tile_count(self) -> int: ...

class FrameBase:
    def __init__(self, data: _Buffer, *, expected_nonce: int | None = None, budget: bool = False) -> None: ...
    @property
    def size(self) -> int: ...
    @property
    def nonce(self) -> int: ...
    @property
    def has_checksums(self) -> bool: ...
    @property
    def tensor_count(self) -> int: ...
    @property
    def chunk_count(self) -> int: ...
    @property
    def tile_count(self) -> int: ...
    @property
    def spill_words(self) -> int: ...
    def _tensor(self, index: int) -> tuple[dict[str, Any], int]:
        """Fields of `Tensor` without codebook, and the hash of its codebook (0: none)."""
    def decode(
        self, tensors: Sequence[Tensor], layouts: Sequence[LayoutBase], *, workers: Workers | None = None
    ) -> None:
        """Decode tensor i to layouts[i]; `tensors` says what is expected: count and geometry must equal the frame's.

        Each chunk is verified before it is stored. After an error the destination may hold anything.
        """
    def decode_unit(
        self,
        index: int,
        tensor: Tensor,
        unit: int,
        layout: LayoutBase,
        *,
        first_token: int = 0,
        token_count: int | None = None,
    ) -> None:
        """Decode tokens of unit `unit` of tensor `index`: `token_count` from `first_token` on, by default to its end.

        Token `first_token` of the unit is token 0 of `layout`, which has the channels of one range. Only the chunks
        that hold these tokens are read. Unit numbers run block by block, inside of a block range by range.
        """

def frame_size(data: _Buffer) -> int:
    """Length of the frame that starts at `data`, from its first 48 bytes; not yet authenticated."""

def frame_sizes(tensors: Sequence[Tensor], *, checksums: bool = True) -> FrameSizes: ...
def propose_budget(frame_bytes: Sequence[int], overflow_rate: float) -> int:
    """From the lengths of sample frames of one shape (so many tokens of such a tensor), the budget in bytes that frames
    of the same kind of data overrun at about `overflow_rate`, above 0 and below 1.

    Where too few of the samples are beyond that rate, the longest tenth of them is continued as an exponential tail.
    Raises InvalidArgument where there are none.
    """

def check_sources(tensors: Sequence[Tensor], layouts: Sequence[LayoutBase]) -> None:
    """Raise what `encode_into` would say of the layouts."""

def slot_words(tensor: Tensor) -> int:
    """What its frames will have: the tensor's own, or the default that they stand for; 0 in mode RAW."""

def encode_into(
    tensors: Sequence[Tensor],
    layouts: Sequence[LayoutBase],
    out: _Buffer,
    nonce: int,
    checksums: bool,
    workers: Workers | None,
    budget: bool = False,
) -> int: ...
def plan_transfer(
    raw_bytes: int,
    speeds: Sequence[tuple[int, int, float, float, float, float, float]],
    link_bytes_per_second: float,
    link_seconds: float,
    raw_writes: int,
    smallest_slice_bytes: int,
    largest_slice_bytes: int,
    least_gain: float,
) -> tuple[int, int, int, float, float, float, int, str]: ...
def dlpack_bits(array: Any) -> tuple[Any, str]:
    """An array with `__dlpack__` as numpy array of unsigned integers, and the name of its numpy or ml_dtypes type."""

def dlpack_strided(array: Any) -> tuple[Strided, str]:
    """The same for an array in the memory of a GPU."""

def check_on_device(tensors: Sequence[Tensor], layouts: Sequence[LayoutBase], writing: bool) -> None:
    """Raise unless the layouts hold the tensors, in the memory of a GPU."""

def cuda_problem() -> str | None:
    """Why there is no GPU to code on; None if there is one."""

def cuda_device_of(address: int) -> int | None: ...
def cuda_copy(destination: int, source: int, bytes: int, stream: int) -> None: ...
def cuda_device_count() -> int: ...
def cuda_ipc_handle(address: int) -> bytes:
    """What CudaPeerMemory of another process needs to reach a CudaMemory."""

def cuda_pinned(bytes: int, device: int) -> np.ndarray: ...
def library_version() -> str: ...
def status_name(status: int) -> str: ...
