# SPDX-License-Identifier: Apache-2.0
"""Safetensors files that break a rule are refused, and the message says which rule and which tensor."""

import re
import struct

import pytest

import kv
from conftest import message


def tensor(**fields):
    entry = {"dtype": '"U8"', "shape": "[2]", "data_offsets": "[0,2]"} | fields
    return '{"x":{' + ",".join(f'"{key}":{value}' for key, value in entry.items() if value is not None) + "}}"


BAD_HEADERS = {
    "empty_text": ("", "does not begin with {"),
    "leading_space": (" {}", "does not begin with {"),
    "byte_order_mark": ("\ufeff{}", "does not begin with {"),
    "an_array": ("[]", "does not begin with {"),
    "cut_off": ('{"x":', "not valid JSON"),
    "text_after": ("{}{}", "not valid JSON"),
    "zero_after": ("{}\0", "zero byte"),
    "zero_then_junk": ("{}\0{", "zero byte"),
    "not_utf8": (b'{"__metadata__":{"a":"\xff"}}', "not valid JSON"),
    "trailing_comma": ('{"__metadata__":{"a":"b"},}', "not valid JSON"),
    "deep": ('{"x":' + "[" * 100000, "not an object"),
    "deep_unknown": ('{"x":{"y":' + "[" * 100000, "not valid JSON"),
    "tensor_is_no_object": ('{"x":3}', '"x".*not an object'),
    "metadata_is_no_object": ('{"__metadata__":[]}', "__metadata__"),
    "metadata_is_null": ('{"__metadata__":null}', "__metadata__"),
    "metadata_of_numbers": ('{"__metadata__":{"a":1}}', "__metadata__"),
    "metadata_of_objects": ('{"__metadata__":{"a":{}}}', "__metadata__"),
    "metadata_twice": ('{"__metadata__":{},"__metadata__":{}}', "__metadata__ occurs twice"),
    "metadata_key_twice": ('{"__metadata__":{"a":"b","a":"c"}}', 'metadata key "a" occurs twice'),
    "tensor_twice": ('{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', 'tensor "x" occurs twice'),
    "tensor_twice_in_escapes": ('{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\\u0078":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', 'tensor "x" occurs twice'),
    "field_twice": ('{"x":{"dtype":"U8","shape":[2],"dtype":"U8","data_offsets":[0,2]}}', '"x".*dtype occurs twice'),
    "no_dtype": (tensor(dtype=None), '"x".*no dtype'),
    "no_shape": (tensor(shape=None), '"x".*no shape'),
    "no_offsets": (tensor(data_offsets=None), '"x".*no data_offsets'),
    "unknown_dtype": (tensor(dtype='"Q7"'), '"x".*unknown dtype "Q7"'),
    "dtype_in_lower_case": (tensor(dtype='"u8"'), '"x".*unknown dtype'),
    "dtype_is_a_number": (tensor(dtype="8"), '"x".*dtype is not a string'),
    "shape_is_a_number": (tensor(shape="2"), '"x".*shape is not an array'),
    "shape_of_strings": (tensor(shape='["2"]'), '"x".*shape is not an array'),
    "shape_of_arrays": (tensor(shape="[[2]]"), '"x".*shape is not an array'),
    "negative_shape": (tensor(shape="[-2]"), '"x".*shape is not an array'),
    "fractional_shape": (tensor(shape="[2.0]"), '"x".*shape is not an array'),
    "shape_beyond_64_bits": (tensor(shape="[18446744073709551618]"), '"x".*shape is not an array'),
    "shape_overflows": (tensor(shape="[4294967296,4294967296,2]"), '"x".*overflows'),
    "bits_overflow": (tensor(shape="[4611686018427387904]"), '"x".*overflows'),
    "one_offset": (tensor(data_offsets="[0]"), '"x".*fewer than two'),
    "three_offsets": (tensor(data_offsets="[0,2,2]"), '"x".*more than two'),
    "negative_offset": (tensor(data_offsets="[-1,1]"), '"x".*data_offsets is not an array'),
    "backward_offsets": (tensor(data_offsets="[2,0]"), '"x".*end before they begin'),
    "too_short": (tensor(shape="[3]"), '"x".*span 2 bytes, dtype and shape give 3'),
    "too_long": (tensor(shape="[1]"), '"x".*span 2 bytes, dtype and shape give 1'),
    "part_of_a_byte": (tensor(dtype='"F4"', shape="[3]"), '"x".*whole bytes'),
    "hole_at_the_start": ('{"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', '"x".*hole of 1 bytes'),
    "hole": ('{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"y":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}', '"y".*hole of 2 bytes'),
    "overlap": ('{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}', '"y".*overlap'),
    "same_place": ('{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}', '"y".*overlap'),
    "empty_inside_of_another": ('{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}', '"y".*overlap'),
    "control_characters": ('{"a\\u001b[2J":{"dtype":"U8"}}', r"a\\x1b\[2J.*no shape"),
    "beyond_the_file": (tensor(shape="[3]", data_offsets="[0,3]"), "has .* bytes, but .* by its header"),
    "before_the_end_of_the_file": (tensor(shape="[1]", data_offsets="[0,1]"), "has .* bytes, but .* by its header"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_HEADERS)
@pytest.mark.parametrize("pipe", [False, True], ids=["file", "pipe"])
def test_bad_header(work, name, pipe):
    header, expected = BAD_HEADERS[name]
    data = kv.file_of(header, b"ab")
    (work / "x").write_bytes(data)
    if pipe:
        text = message("compress", "--mode", "raw", "-", "-o", "y", input=data)
        if "by its header" in expected:
            expected = "ends at byte|bytes after the end"
    else:
        text = message("compress", "--mode", "raw", "x", "-o", "y")
    assert re.search(expected, text), text
    assert len(text) < 1000
    assert sorted(path.name for path in work.iterdir()) == ["x"]


def test_what_to_do_with_a_raw_array(work):
    for data in (b"some text of a person", bytes(64)):
        (work / "x").write_bytes(data)
        assert "(a raw array needs --dtype)" in message("compress", "--mode", "raw", "x")


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"", "shorter than 8 bytes"),
        (b"1234567", "shorter than 8 bytes"),
        (struct.pack("<Q", 100), "ends at byte 8, 100 bytes before the end of the safetensors header"),
        (struct.pack("<Q", 100_000_001) + b"{", "beyond the limit of 100000000"),
        (b"\xff" * 8, "beyond the limit"),
    ],
)
def test_bad_length_field(work, data, expected):
    (work / "x").write_bytes(data)
    assert expected in message("compress", "--mode", "raw", "x")
    assert expected in message("compress", "--mode", "raw", "-", "-o", "y", input=data)
    assert sorted(path.name for path in work.iterdir()) == ["x"]
