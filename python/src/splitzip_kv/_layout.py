# SPDX-License-Identifier: Apache-2.0
"""Where values lie: arrays and paged pools with named axes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._core import Codebook, ElementType, LayoutBase, Mode, Strided, cuda_device_of, dlpack_bits, dlpack_strided
from ._errors import InvalidLayout
from ._tensor import Tensor

AXES = {"page": 0, "token": 1, "head": 2, "dim": 3, "channel": 3}

DLPACK_CUDA = 2

# By the names that numpy, ml_dtypes and torch give their types.
TYPES = {
    "bfloat16": ElementType.BF16,
    "float16": ElementType.FP16,
    "float32": ElementType.FP32,
    "float8_e4m3": ElementType.FP8_E4M3,
    "float8_e4m3fn": ElementType.FP8_E4M3,
    "float8_e4m3fnuz": ElementType.FP8_E4M3,
    "float8_e4m3b11fnuz": ElementType.FP8_E4M3,
    "float8_e5m2": ElementType.FP8_E5M2,
    "float8_e5m2fnuz": ElementType.FP8_E5M2,
    "uint8": ElementType.BYTES,
    "int8": ElementType.BYTES,
}


def bits_of(array: Any) -> tuple[np.ndarray, str]:
    """The memory of `array` as numpy array of unsigned integers, without a copy, and the name of its type."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.device.type != "cpu" or array.layout != torch.strided:
            raise TypeError(f"the tensor has to be a strided one in host memory, not {array.layout} on {array.device}")
        if array.is_conj() or array.is_neg():
            raise TypeError("the tensor is a lazy conjugate or negative; resolve it first")
        integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(array.element_size())
        if integer is None:
            raise TypeError(f"no element type for {array.dtype}")
        return _unsigned(array.detach().view(integer).numpy()), str(array.dtype).removeprefix("torch.")
    if isinstance(array, np.ndarray):
        if not array.dtype.isnative:
            raise TypeError(f"the array has foreign byte order: {array.dtype.str}")
        return _unsigned(array), array.dtype.name
    try:
        view = memoryview(array)
    except (TypeError, BufferError):
        view = None
    if view is not None:
        return bits_of(np.asarray(view))
    if hasattr(array, "__dlpack__"):
        return dlpack_bits(array)
    raise TypeError(f"{type(array).__name__} has neither the buffer protocol nor DLPack")


def device_memory_of(array: Any) -> tuple[Strided, str] | None:
    """The memory of `array`, if it is that of a GPU, and the name of its type. Nothing waits for the array's
    contents."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.device.type != "cuda" or array.layout != torch.strided:
            return None
        if array.is_conj() or array.is_neg():
            raise TypeError("the tensor is a lazy conjugate or negative; resolve it first")
        size = array.element_size()
        strides = [stride * size for stride in array.stride()]
        place = Strided(array.data_ptr(), list(array.shape), strides, size, False, array.device.index, array)
        return place, str(array.dtype).removeprefix("torch.")
    if isinstance(array, (np.ndarray, bytes, bytearray, memoryview)):
        return None
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _from_interface(array, interface)
    try:
        kind = array.__dlpack_device__()[0]
    except (AttributeError, BufferError, TypeError, ValueError):  # no DLPack, or for a device that it does not know
        return None
    return dlpack_strided(array) if kind == DLPACK_CUDA else None


def _from_interface(array: Any, interface: dict[str, Any]) -> tuple[Strided, str]:
    dtype = np.dtype(interface["typestr"])
    shape = list(interface["shape"])
    strides = interface.get("strides")
    if strides is None:
        strides = [int(np.prod(shape[axis + 1 :], dtype=np.int64)) * dtype.itemsize for axis in range(len(shape))]
    address, readonly = interface["data"]
    device = cuda_device_of(address) if address else 0
    if device is None:
        raise TypeError(f"the memory of this {type(array).__name__} is not that of a GPU")
    return Strided(address, shape, list(strides), dtype.itemsize, readonly, device, array), dtype.name


def bytes_of(data: Any) -> memoryview:
    """The bytes of anything that lies in one piece."""
    bits = bits_of(data)[0]
    if not bits.flags.c_contiguous:
        raise TypeError("the memory has to be in one piece")
    return bits.reshape(-1).view(np.uint8).data


def _unsigned(array: np.ndarray) -> np.ndarray:
    if array.dtype.hasobject or array.dtype.itemsize not in (1, 2, 4, 8) or array.dtype.fields is not None:
        raise TypeError(f"no element type for {array.dtype}")
    return array.view(np.ndarray).view(f"u{array.dtype.itemsize}")


class Layout(LayoutBase):
    """An array, or a list of pages of a pool, whose axes are named.

        Layout(k, "token,head,dim")
        Layout(k, "head,token,dim")
        Layout(latent, "token,channel")
        Layout(pool, "page,token,head,dim", pages=[7, 3, 12])         # a vLLM pool, NHD
        Layout(pool, "page,head,token,dim", pages=[7, 3, 12])         # HND
        Layout(kv[0], "page,token,head,dim", pages=[7, 3, 12])        # K of a pool [2, pages, ...]
        Layout(kv[:, 1], "page,token,head,dim", pages=[7, 3, 12])     # V of a pool [pages, 2, ...]
        Layout(kv[..., :128], "page,head,token,dim", pages=[7, 3])    # K of K|V packed in one row
        Layout(slots, "page,head,dim", pages=slot_ids)                # SGLang: pages of one token

    `array` is a numpy array (ml_dtypes included), a torch tensor, or anything with the buffer protocol, DLPack or
    `__cuda_array_interface__`; any strides will do, as long as the values along `dim` are neighbours. It is kept alive
    and must keep its memory. `pages` is copied. What lies in the memory of a GPU (`device` says in which one's) is
    coded by `splitzip_kv.cuda` alone.

    `first_token` skips tokens at the start of the array or of the page list. `type` overrides the type of the array
    with one of the same size: FP8 values in a uint8 pool, BF16 values in uint16.

    Every address is checked here against the shape of the array, so that encode and decode stay inside of it.
    """

    def __init__(
        self,
        array: Any,
        axes: str,
        *,
        pages: Sequence[int] | np.ndarray | None = None,
        first_token: int = 0,
        type: ElementType | None = None,
    ) -> None:
        memory: Any
        on_device = device_memory_of(array)
        if on_device is not None:
            memory, type_name = on_device
            rank = len(on_device[0].shape)
        else:
            memory, type_name = bits_of(array)
            rank = memory.ndim
        if not 0 <= first_token < 2**32:
            raise InvalidLayout(f"first_token is {first_token}")
        super().__init__(
            memory,
            TYPES.get(type_name) if type is None else ElementType(type),
            *axis_numbers(axes, rank, pages is not None),
            None if pages is None else _page_numbers(pages),
            first_token,
        )

    def tensor(
        self,
        codebook: Codebook | None = None,
        *,
        mode: Mode | None = None,
        type: ElementType | None = None,
        tokens: int | None = None,
        tokens_per_unit: int | None = None,
        first_channel: int = 0,
        tensor_key: int = 0,
        first_block: int = 0,
        slot_words: int | None = None,
    ) -> Tensor:
        """Describe what lies here: all tokens or the first `tokens`, each head as one range, one unit for each head or
        units of `tokens_per_unit`. `mode` is TIERED with a codebook and RAW without, if not given."""
        element = type or self.type or (codebook.type if codebook is not None else None)
        if element is None:
            raise InvalidLayout("the array may hold several element types: say which by type=")
        count = self.tokens if tokens is None else tokens
        return Tensor(
            type=element,
            mode=mode if mode is not None else Mode.RAW if codebook is None else Mode.TIERED,
            codebook=codebook,
            tokens=count,
            channels=self.channels,
            ranges=self.heads,
            first_channel=first_channel,
            tokens_per_unit=tokens_per_unit if tokens_per_unit is not None else max(count, 1),
            tensor_key=tensor_key,
            first_block=first_block,
            slot_words=slot_words,
        )


def on_host(tensor: Tensor, element_bytes: int) -> Layout:
    """A new array [token, head, dim] in host memory, with room for the values of `tensor`."""
    values = np.empty((tensor.tokens, tensor.ranges, tensor.channels), f"u{element_bytes}")
    return Layout(values, "token,head,dim", type=tensor.type)


def split_axes(axes: str) -> list[str]:
    names = [name.strip() for name in axes.split(",")]
    for name in names:
        if name not in AXES:
            raise InvalidLayout(f'axes "{axes}": "{name}" is none of {", ".join(AXES)}')
    return names


def axis_numbers(axes: str, rank: int, paged: bool) -> tuple[int | None, int | None, int | None, int | None]:
    """Numbers of the axes of pages, tokens, heads and channels."""
    names = split_axes(axes)
    numbers: list[int | None] = [None] * 4
    for number, name in enumerate(names):
        if numbers[AXES[name]] is not None:
            raise InvalidLayout(f'axes "{axes}": "{name}" is there twice')
        numbers[AXES[name]] = number
    if len(names) != rank:
        raise InvalidLayout(f'axes "{axes}" are {len(names)}, and the array has {rank}')
    if (numbers[0] is not None) != paged:
        raise InvalidLayout(f'axes "{axes}": an axis "page" and pages= belong together')
    page, token, head, channel = numbers
    return page, token, head, channel


def _page_numbers(pages: Any) -> np.ndarray:
    torch = sys.modules.get("torch")
    is_tensor = torch is not None and isinstance(pages, torch.Tensor)
    numbers = pages.cpu().numpy() if is_tensor else np.asarray(pages)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise InvalidLayout("pages have to be a list of integers")
    if numbers.size and (numbers.min() < 0 or numbers.max() >= 2**31):
        raise InvalidLayout("a page number is negative or above 2^31 - 1")
    return np.ascontiguousarray(numbers, dtype=np.int32)
