# SPDX-License-Identifier: Apache-2.0
"""The C interface through ctypes, as far as the tests of the format need it. The library is $SPLITZIP_LIBRARY."""

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

import numpy as np

import model_encoder as model

PATH = os.environ.get("SPLITZIP_LIBRARY")


class Struct(ctypes.Structure):
    """Every struct of the interface begins with its own size."""

    def __init__(self, **fields):
        super().__init__(ctypes.sizeof(self), **fields)


class Error(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("status", c_int),
        ("message", c_char_p),
        ("tensor", c_uint64),
        ("chunk", c_uint64),
        ("offset", c_uint64),
    ]


class TensorStruct(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("type", c_int),
        ("mode", c_int),
        ("codebook", c_void_p),
        ("tensor_key", c_uint64),
        ("first_block", c_uint64),
        ("tokens", c_uint32),
        ("tokens_per_unit", c_uint32),
        ("channels", c_uint32),
        ("first_channel", c_uint32),
        ("ranges", c_uint32),
        ("slot_words", c_uint32),
    ]


class Layout(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("base", c_void_p),
        ("row_stride", c_int64),
        ("range_stride", c_int64),
        ("page_tokens", c_uint32),
        ("first_token", c_uint32),
        ("page_stride", c_int64),
        ("page_indices", c_void_p),
        ("page_pointers", c_void_p),
        ("page_count", c_uint64),
    ]


class EncodeOptions(Struct):
    _fields_ = [("struct_size", c_size_t), ("nonce", c_uint64), ("checksums", c_int32), ("budget", c_int32), ("workers", c_void_p)]


class DecodeOptions(Struct):
    _fields_ = [("struct_size", c_size_t), ("workers", c_void_p)]


class FrameSizes(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("raw_bytes", c_uint64),
        ("known_bytes", c_uint64),
        ("bound_bytes", c_uint64),
        ("chunk_count", c_uint32),
        ("tile_count", c_uint32),
    ]


class FrameStruct(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("data", c_void_p),
        ("size", c_uint64),
        ("nonce", c_uint64),
        ("flags", c_uint32),
        ("tensor_count", c_uint32),
        ("chunk_count", c_uint32),
        ("tile_count", c_uint32),
        ("spill_words", c_uint32),
        ("reserved", c_uint32),
    ]


class LibraryError(Exception):
    """args[0] is the name of the status, without SPLITZIP_ERROR_."""


if PATH:
    lib = ctypes.CDLL(PATH)
    lib.splitzip_status_name.restype = c_char_p
    lib.splitzip_codebook_set_count.restype = c_size_t
    lib.splitzip_codebook_set_count.argtypes = [c_void_p]
    lib.splitzip_codebook_set_get.restype = c_void_p
    lib.splitzip_codebook_set_get.argtypes = [c_void_p, c_size_t]
    lib.splitzip_codebook_set_find_hash.restype = c_void_p
    lib.splitzip_codebook_set_find_hash.argtypes = [c_void_p, c_uint64]
    lib.splitzip_codebook_set_destroy.argtypes = [c_void_p]
    lib.splitzip_codebook_set_load.argtypes = [c_char_p, c_size_t, POINTER(c_void_p), POINTER(Error)]
    lib.splitzip_codebook_set_save.argtypes = [c_void_p, c_void_p, c_size_t, POINTER(c_size_t)]
    lib.splitzip_calibration_destroy.argtypes = [c_void_p]
    lib.splitzip_cpu_target_count.restype = c_size_t
    lib.splitzip_cpu_target_name.restype = c_char_p
    lib.splitzip_frame_open.argtypes = [c_char_p, c_size_t, POINTER(c_uint64), POINTER(FrameStruct), POINTER(Error)]
    lib.splitzip_frame_open_budget.argtypes = [c_char_p, c_size_t, c_uint64, POINTER(FrameStruct), POINTER(Error)]


def check(status, error=None):
    if status:
        message = error.message.decode() if error is not None and error.message else ""
        raise LibraryError(lib.splitzip_status_name(status).decode().removeprefix("SPLITZIP_ERROR_"), message)


class Ways:
    """The ways in which the library may work: each CPU target alone and with threads. All give the same."""

    def __init__(self):
        self.workers, self.chosen = c_void_p(), None
        check(lib.splitzip_workers_create(c_uint32(3), byref(self.workers)))
        self.targets = [lib.splitzip_cpu_target_name(c_size_t(i)) for i in range(lib.splitzip_cpu_target_count())]

    def __iter__(self):
        for workers in (None, self.workers):
            self.chosen = workers
            for target in self.targets:
                check(lib.splitzip_cpu_target_select(target))
                yield target.decode() + (" with threads" if self.chosen else "")
        check(lib.splitzip_cpu_target_select(None))
        self.chosen = None


ways = Ways() if PATH else []


class CodebookSet:
    def __init__(self, data):
        self.handle, error = c_void_p(), Error()
        check(lib.splitzip_codebook_set_load(data, len(data), byref(self.handle), byref(error)), error)

    def __del__(self):
        if PATH:
            lib.splitzip_codebook_set_destroy(self.handle)

    def __len__(self):
        return lib.splitzip_codebook_set_count(self.handle)

    def save(self):
        size = c_size_t()
        check(lib.splitzip_codebook_set_save(self.handle, None, 0, byref(size)))
        data = ctypes.create_string_buffer(size.value)
        check(lib.splitzip_codebook_set_save(self.handle, data, size.value, byref(size)))
        return data.raw

    def find(self, identity):
        return lib.splitzip_codebook_set_find_hash(self.handle, identity) if identity else None


def describe(tensor, codebooks):
    tokens, ranges, channels = tensor.values.shape
    codebook = None if tensor.mode == model.RAW else codebooks.find(tensor.codebook.real_identity())
    return TensorStruct(
        type=tensor.type,
        mode=tensor.mode,
        codebook=codebook,
        tensor_key=tensor.tensor_key,
        first_block=tensor.first_block,
        tokens=tokens,
        tokens_per_unit=tensor.tokens_per_unit,
        channels=channels,
        first_channel=tensor.first_channel,
        ranges=ranges,
        slot_words=tensor.slot_words,
    )


def layout(array):
    """Of an array [tokens][ranges][channels] whose channels are contiguous."""
    return Layout(base=array.ctypes.data, row_stride=array.strides[0], range_stride=array.strides[1])


def array_of(struct, items):
    return (struct * max(len(items), 1))(*items)


def spread(array, gaps):
    """A copy of the array that lies unaligned and with gaps between ranges and rows, all of them in bytes."""
    if gaps is None:
        return np.ascontiguousarray(array)
    start, range_gap, row_gap = gaps
    tokens, ranges, channels = array.shape
    range_stride = channels * array.itemsize + range_gap
    row_stride = ranges * range_stride + row_gap
    memory = np.full(start + tokens * row_stride, 0x5A, np.uint8)
    copy = np.ndarray(array.shape, array.dtype, memory, start, (row_stride, range_stride, array.itemsize))
    copy[...] = array
    return copy


def gaps_are_untouched(array):
    """Of an array made by spread()."""
    memory = array.base.copy()
    inside = np.ndarray(array.shape, array.dtype, memory, array.ctypes.data - array.base.ctypes.data, array.strides)
    inside[...] = np.array(0x5A5A5A5A).astype(array.dtype)
    return bool((memory == 0x5A).all())


def encode(tensors, codebooks, nonce=0, has_checksums=True, slack=0, gaps=None, budget=None):
    """Returns the frame; the buffer is as large as the bound, or smaller by -slack bytes than the frame itself. With a
    budget, returns all bytes of it."""
    arrays = [spread(t.values.astype(model.UNSIGNED[t.element_bytes], copy=False), gaps) for t in tensors]
    structs = array_of(TensorStruct, [describe(t, codebooks) for t in tensors])
    layouts = array_of(Layout, [layout(a) for a in arrays])
    options = EncodeOptions(nonce=nonce, checksums=int(has_checksums), budget=int(budget is not None), workers=ways.chosen)
    sizes, error = FrameSizes(), Error()
    count = c_size_t(len(tensors))
    check(lib.splitzip_get_frame_sizes(structs, count, byref(options), byref(sizes), byref(error)), error)
    capacity = sizes.bound_bytes if slack == 0 else sizes.known_bytes + slack
    capacity = capacity if budget is None else budget
    buffer, size = ctypes.create_string_buffer(b"\xa5" * capacity, capacity), c_size_t()
    status = lib.splitzip_encode(structs, layouts, count, byref(options), buffer, c_size_t(capacity), byref(size), byref(error))
    if budget is not None and lib.splitzip_status_name(status) in (b"SPLITZIP_OK", b"SPLITZIP_ERROR_OVER_BUDGET"):
        return buffer.raw
    check(status, error)
    assert sizes.known_bytes <= size.value <= sizes.bound_bytes
    return buffer.raw[: size.value]


class OpenFrame:
    def __init__(self, data, codebooks, expected_nonce=None, in_budget=False):
        self.data, self.frame, error = data, FrameStruct(), Error()
        nonce = None if expected_nonce is None else byref(c_uint64(expected_nonce))
        if in_budget:
            check(lib.splitzip_frame_open_budget(data, len(data), expected_nonce, byref(self.frame), byref(error)), error)
        else:
            check(lib.splitzip_frame_open(data, len(data), nonce, byref(self.frame), byref(error)), error)
        self.tensors = []
        for index in range(self.frame.tensor_count):
            tensor, identity = TensorStruct(), c_uint64()
            check(lib.splitzip_frame_get_tensor(byref(self.frame), c_size_t(index), byref(tensor), byref(identity)))
            tensor.codebook = codebooks.find(identity.value)
            self.tensors.append(tensor)

    def decode(self, gaps=None):
        arrays = [
            spread(np.zeros((t.tokens, t.ranges, t.channels), model.UNSIGNED[model.ELEMENT_BYTES[t.type]]), gaps) for t in self.tensors
        ]
        layouts, error = array_of(Layout, [layout(a) for a in arrays]), Error()
        tensors, options = array_of(TensorStruct, self.tensors), DecodeOptions(workers=ways.chosen)
        check(lib.splitzip_decode(byref(self.frame), tensors, layouts, c_size_t(len(arrays)), byref(options), byref(error)), error)
        for array in arrays if gaps else []:
            assert gaps_are_untouched(array)
        return arrays

    def decode_unit(self, index, unit, first_token, token_count):
        tensor, error = self.tensors[index], Error()
        array = np.empty((token_count, 1, tensor.channels), model.UNSIGNED[model.ELEMENT_BYTES[tensor.type]])
        check(
            lib.splitzip_decode_unit(
                byref(self.frame),
                c_size_t(index),
                byref(tensor),
                c_uint64(unit),
                c_uint32(first_token),
                c_uint32(token_count),
                byref(layout(array)),
                byref(error),
            ),
            error,
        )
        return array


def decode(data, codebooks, expected_nonce=None, gaps=None):
    return OpenFrame(data, codebooks, expected_nonce).decode(gaps)


def calibrate(arrays, element_type, provenance):
    """The bytes of the set of codebooks that the library makes of {name: [tokens][ranges][channels]}."""
    calibration, handle, error = c_void_p(), c_void_p(), Error()
    check(lib.splitzip_calibration_create(byref(calibration)))
    for name, array in arrays.items():
        tokens, ranges, channels = array.shape
        tensor = TensorStruct(type=element_type, tokens=tokens, tokens_per_unit=max(tokens, 1), channels=channels, ranges=ranges)
        check(
            lib.splitzip_calibration_add(
                calibration, name.encode(), c_uint32(ranges * channels), byref(tensor), byref(layout(array)), byref(error)
            ),
            error,
        )
    check(lib.splitzip_calibration_finish(calibration, provenance, byref(handle), byref(error)), error)
    lib.splitzip_calibration_destroy(calibration)
    codebooks = CodebookSet.__new__(CodebookSet)
    codebooks.handle = handle
    return codebooks.save()
