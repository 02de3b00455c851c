# SPDX-License-Identifier: Apache-2.0
"""No description of memory reaches beyond it; wrong ones are refused before anything is touched."""

import dataclasses

import numpy as np
import pytest

from conftest import same, values
from splitzip_kv import (
    ElementType,
    Frame,
    GeometryMismatch,
    InvalidArgument,
    InvalidLayout,
    InvalidTensor,
    Layout,
    Mode,
    encode,
)

POOL = np.zeros((8, 16, 2, 4), np.float16)
AXES = "page,token,head,dim"


@pytest.mark.parametrize("pages", [[8], [0, -1], [0, 1, 2**31], [2**40], [-(2**31)], [0, 7, 8, 3]])
def test_page_numbers_outside_of_the_pool(pages):
    with pytest.raises(InvalidLayout, match="page number"):
        Layout(POOL, AXES, pages=pages)


@pytest.mark.parametrize("pages", [[0.5], "01", [[0, 1]], 3])
def test_what_is_no_list_of_pages(pages):
    with pytest.raises(InvalidLayout, match="list of integers"):
        Layout(POOL, AXES, pages=pages)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint16, np.uint64])
def test_page_numbers_of_any_integer_type(kind):
    assert Layout(POOL, AXES, pages=np.array([7, 0], kind)).tokens == 32
    assert Layout(POOL, AXES, pages=np.arange(8, dtype=kind)[::2]).tokens == 64


def test_page_numbers_are_copied():
    pages = np.array([1, 2], np.int32)
    layout = Layout(POOL, AXES, pages=pages)
    pages[:] = 10**6
    encode([layout.tensor()], [layout])


@pytest.mark.parametrize(
    "axes, pages",
    [
        ("token,head", None),
        ("token,head,dim,dim", None),
        ("token,head,dim,channel", None),
        ("token,head,dim,width", None),
        ("token,head,dim,", None),
        ("", None),
        (AXES, None),
        ("token,head,dim", [0]),
    ],
)
def test_axes_that_do_not_fit(axes, pages):
    with pytest.raises(InvalidLayout, match="axes"):
        Layout(POOL if axes.count(",") != 2 else POOL[0], axes, pages=pages)


@pytest.mark.parametrize("array", [np.zeros(4, np.float64), np.zeros(4, np.complex64), np.zeros(4, "datetime64[s]")])
def test_types_without_element_type(array):
    with pytest.raises(InvalidLayout, match="8 bytes have no element type"):
        Layout(array, "token")
    assert Layout(array.view(np.uint8), "token").type == ElementType.BYTES


@pytest.mark.parametrize(
    "array",
    [np.zeros(4, object), np.zeros(4, "S3"), np.zeros(4, [("a", "u2")]), np.zeros(4, ">f2"), [1, 2], 3, None, "text"],
)
def test_what_is_no_array(array):
    with pytest.raises(TypeError):
        Layout(array, "token")


def test_integers_need_a_type():
    layout = Layout(np.zeros((4, 8), np.uint16), "token,dim")
    assert layout.type is None and layout.element_bytes == 2
    with pytest.raises(InvalidLayout, match="type="):
        layout.tensor()
    assert layout.tensor(type=ElementType.FP16).type == ElementType.FP16
    with pytest.raises(InvalidLayout, match="2 bytes are not fp32"):
        Layout(np.zeros((4, 8), np.uint16), "token,dim", type=ElementType.FP32)
    # FP8 values in a pool of bytes.
    assert (
        Layout(np.zeros((4, 8), np.uint8), "token,dim", type=ElementType.FP8_E5M2).tensor().type == ElementType.FP8_E5M2
    )


def test_channels_have_to_be_neighbours():
    array = np.zeros((6, 4, 8), np.float16)
    for wrong in (array[..., ::2], array[..., ::-1], array.transpose(0, 2, 1)):
        with pytest.raises(InvalidLayout, match="bytes apart"):
            Layout(wrong, "token,head,dim")
    assert Layout(array[..., :1], "token,head,dim").channels == 1


def test_tensors_that_do_not_fit():
    array = np.zeros((10, 4, 8), np.float16)
    layout = Layout(array, "token,head,dim")
    tensor = layout.tensor()
    for change in (
        {"tokens": 11},
        {"ranges": 5},
        {"ranges": 3},
        {"channels": 9},
        {"ranges": 33, "channels": 1},
        {"type": ElementType.BF16},
    ):
        wrong = dataclasses.replace(tensor, **change)
        with pytest.raises(InvalidLayout) as failure:
            encode([tensor, wrong], [layout, layout])
        assert failure.value.tensor == 1
    with pytest.raises(InvalidLayout):
        encode([dataclasses.replace(tensor, tokens=2**32 - 1)], [layout])  # not MemoryError
    # Whole rows may be cut into ranges in any way; parts of rows may not.
    encode([dataclasses.replace(tensor, ranges=2, channels=16)], [layout])
    part = Layout(array[..., :4], "token,head,dim")
    with pytest.raises(InvalidLayout):
        encode([dataclasses.replace(part.tensor(), ranges=1, channels=16)], [part])
    for first_token in (11, -1, 2**32):
        with pytest.raises(InvalidLayout, match="first_token"):
            Layout(array, "token,head,dim", first_token=first_token)
    assert Layout(array, "token,head,dim", first_token=10).tokens == 0


@pytest.mark.parametrize(
    "change",
    [{"tokens": -1}, {"tokens": 2**32}, {"channels": "8"}, {"ranges": 1.5}, {"tensor_key": 2**64},
     {"codebook": 3}, {"mode": None}, {"slot_words": -1}, {"tokens_per_unit": 0}, {"channels": 0},
     {"first_channel": 2**32 - 1}],
)  # fmt: skip
def test_fields_of_a_tensor_out_of_range(change):
    layout = Layout(np.zeros((10, 8), np.float16), "token,dim")
    with pytest.raises((InvalidTensor, InvalidLayout)):
        encode([dataclasses.replace(layout.tensor(), **change)], [layout])


def test_what_is_no_tensor_or_layout():
    layout = Layout(np.zeros((10, 8), np.float16), "token,dim")
    tensor = layout.tensor()
    with pytest.raises(AttributeError):
        encode([layout], [layout])
    with pytest.raises(TypeError, match="Layout"):
        encode([tensor], [tensor], out=bytearray(1000))
    for layouts in ([], [layout, layout]):
        with pytest.raises(InvalidArgument, match="1 tensors"):
            encode([tensor], layouts)


def test_destinations_that_cannot_be_written():
    source = values((10, 2, 8))
    layout = Layout(source, "token,head,dim")
    tensor = layout.tensor()
    frame = Frame(encode([tensor], [layout]))

    fixed = source.copy()
    fixed.flags.writeable = False
    assert Layout(fixed, "token,head,dim").readonly
    with pytest.raises(InvalidLayout, match="read-only") as failure:
        frame.decode([tensor], [Layout(fixed, "token,head,dim")])
    assert failure.value.tensor == 0
    data = Layout(bytes(320), "token").tensor()
    with pytest.raises(InvalidLayout, match="read-only"):
        Frame(encode([data], [Layout(bytes(320), "token")])).decode([data], [Layout(bytes(320), "token")])

    flat = np.zeros((40,), source.dtype)
    sliding = np.lib.stride_tricks.as_strided(flat, (10, 2, 8), (2, 16, 2))
    broadcast = np.lib.stride_tricks.as_strided(flat, (10, 2, 8), (0, 16, 2))
    for shared in (sliding, broadcast):
        with pytest.raises(InvalidLayout, match="share memory"):
            frame.decode([tensor], [Layout(shared, "token,head,dim")])
    encode([tensor], [Layout(broadcast, "token,head,dim")])

    pool = np.zeros((8, 4, 2, 8), source.dtype)
    with pytest.raises(InvalidLayout, match="page number 3 is in the list twice"):
        frame.decode([tensor], [Layout(pool, AXES, pages=[3, 1, 3])])
    # Pages that these tokens do not use may be anything, padding for instance.
    frame.decode([tensor], [Layout(pool, AXES, pages=[0, 3, 1, 2, 0, 0], first_token=4)])
    assert same(pool[[3, 1, 2]].reshape(12, 2, 8)[:10], source) and not pool[0].any()


def test_memory_of_frame_and_tensors_overlaps():
    memory = np.zeros(4096, np.uint8)
    layout = Layout(memory[:1024], "token")
    tensor = layout.tensor()
    with pytest.raises(InvalidArgument, match="overlaps"):
        encode([tensor], [layout], out=memory[1023:])
    frame = encode([tensor], [layout], out=memory[1024:])
    with pytest.raises(InvalidArgument, match="overlaps"):
        Frame(frame).decode([tensor], [Layout(memory[1000:2024], "token")])
    Frame(frame).decode([tensor], [layout])


def test_outputs_that_cannot_take_a_frame():
    layout = Layout(np.zeros((10, 8), np.float16), "token,dim")
    tensor = layout.tensor()
    with pytest.raises(BufferError):
        encode([tensor], [layout], out=bytes(1000))
    with pytest.raises(TypeError, match="one piece"):
        encode([tensor], [layout], out=np.zeros(2000, np.uint8)[::2])


def test_units_that_are_not_there():
    source = values((10, 2, 8))
    layout = Layout(source, "token,head,dim")
    tensor = layout.tensor(tokens_per_unit=4)
    frame = Frame(encode([tensor], [layout]))
    target = np.zeros((4, 8), source.dtype)
    row = Layout(target, "token,dim")
    for index, unit, options in (
        (1, 0, {}),
        (2**40, 0, {}),
        (0, 6, {}),
        (0, 2**63, {}),
        (0, 0, {"first_token": 5}),
        (0, 0, {"first_token": 3, "token_count": 2}),
        (0, 4, {"token_count": 3}),
    ):
        with pytest.raises(InvalidArgument):
            frame.decode_unit(index, tensor, unit, row, **options)
    with pytest.raises(InvalidLayout):
        frame.decode_unit(0, tensor, 0, Layout(target[:3], "token,dim"))
    with pytest.raises(InvalidLayout):
        frame.decode_unit(0, tensor, 0, Layout(target[:, :4], "token,dim"))
    for change in ({"ranges": 0}, {"tokens_per_unit": 0}, {"tokens": 0}):
        with pytest.raises(GeometryMismatch):
            frame.decode_unit(0, dataclasses.replace(tensor, **change), 0, row)
    assert not target.any()


def test_a_layout_is_made_once():
    layout = Layout(np.zeros((10, 8), np.float16), "token,dim")
    with pytest.raises(TypeError), pytest.warns(RuntimeWarning, match="already-initialized"):
        layout.__init__(np.zeros(1, np.float16), "token")
    assert (layout.tokens, layout.channels) == (10, 8)
    bare = Layout.__new__(Layout)
    with pytest.raises(TypeError), pytest.warns(RuntimeWarning, match="uninitialized"):
        encode([layout.tensor()], [bare], out=bytearray(1000))
    assert layout.tensor(mode=Mode.RAW).mode == Mode.RAW
