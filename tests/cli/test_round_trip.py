# SPDX-License-Identifier: Apache-2.0
"""decompress(compress(x)) is x, for any safetensors file and any raw array."""

import json
import pathlib
import random

import pytest

import kv
from conftest import round_trip, run

RANDOM_BYTES = random.Random(5).randbytes(4096)

# Dtypes without numpy's help: every one of the format, with a shape whose values fill whole bytes.
ALL_DTYPES = [
    (name, name, (bits and 16, 8), RANDOM_BYTES[: 16 * 8 * bits // 8])
    for name, bits in {
        "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
        "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
        "C64": 64, "F64": 64, "I64": 64, "U64": 64,
    }.items()
]  # fmt: skip

SMALL = [("a", "BF16", (2, 5, 8), kv.values((2, 5, 8))), ("b", "F32", (3,), kv.values((3,), "F32"))]

ODD_FILES = {
    "indented": kv.safetensors(SMALL, indent=3),
    "compact": kv.safetensors(SMALL, separators=(",", ":")),
    "spaces_after": kv.file_of(kv.header_text(SMALL) + " " * 61, SMALL[0][3] + SMALL[1][3]),
    "all_white_space_after": kv.file_of(kv.header_text(SMALL) + " \n\t\r ", SMALL[0][3] + SMALL[1][3]),
    "white_space_inside": kv.file_of("{ \n" + kv.header_text(SMALL)[1:-1] + "\t\r\n }", SMALL[0][3] + SMALL[1][3]),
    "metadata": kv.safetensors(SMALL, {"text": "a\tb \u00e4 \U0001f600", "": ""}),
    "metadata_only": kv.safetensors([], {"k": "v"}),
    "no_ascii_escapes": kv.safetensors([("\u540d \U0001f600", *SMALL[0][1:])], ensure_ascii=False),
    "escaped_names": kv.safetensors([("\u540d \"\\ \n \U0001f600", *SMALL[0][1:])]),
    "zero_in_a_name": kv.safetensors([("a\0b", *SMALL[0][1:])]),
    "nameless_tensor": kv.safetensors([("", *SMALL[0][1:])]),
    "long_name": kv.safetensors([("n" * 5000, *SMALL[0][1:])]),
    "nothing": kv.file_of("{}"),
    "nothing_but_spaces": kv.file_of("{}" + " " * 6),
    "scalar": kv.safetensors([("s", "BF16", (), b"\x12\x34"), ("t", "I64", (), bytes(8))]),
    "zero_sizes": kv.safetensors([("x", "BF16", (0,), b""), ("y", "F32", (4, 0, 7), b""), ("z", "U8", (3,), b"abc"), ("w", "F4", (0, 1), b"")]),
    "only_zero_sizes": kv.safetensors([("x", "BF16", (0,), b""), ("y", "F32", (0, 2), b"")]),
    "many_axes": kv.safetensors([("x", "BF16", (1, 2, 1, 2, 3, 4, 8), kv.values((1, 2, 1, 2, 3, 4, 8)))]),
    "all_dtypes": kv.safetensors(ALL_DTYPES),
    "one_byte": kv.safetensors([("x", "U8", (1,), b"!")]),
    "unknown_fields": kv.file_of('{"x":{"more":[{"a":[]},1.5,null,"s"],"dtype":"U8","shape":[2],"data_offsets":[0,2],"z":{"y":true}}}', b"ab"),
    "reversed_header": kv.file_of('{"b":{"data_offsets":[2,4],"shape":[2],"dtype":"U8"},"a":{"shape":[2],"dtype":"U8","data_offsets":[0,2]}}', b"abcd"),
    "zero_sizes_between": kv.file_of(
        '{"c":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},'
        '"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"d":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}}',
        b"abcd",
    ),
}  # fmt: skip


@pytest.fixture
def own_codebook(work):
    def make(path, *options):
        run("calibrate", path, "-o", "own.szcb", "-f", "-q", *options)
        return "own.szcb"

    return make


@pytest.mark.parametrize("mode", ["tiered", "fixed4", "raw"])
@pytest.mark.parametrize("name", ODD_FILES)
def test_odd_file(work, samples, name, mode):
    path = work / "x.safetensors"
    path.write_bytes(ODD_FILES[name])
    round_trip(path, "--mode", mode, codebook=samples / "kv.szcb")


@pytest.mark.parametrize("mode", ["tiered", "fixed4"])
@pytest.mark.parametrize("dtype", kv.NUMPY_TYPES)
def test_every_type_with_a_codec_is_coded(work, own_codebook, dtype, mode):
    path = work / "x.safetensors"
    path.write_bytes(kv.safetensors(kv.cache(dtype=dtype)))
    packed = round_trip(path, "--mode", mode, codebook=own_codebook(path))
    facts = json.loads(run("inspect", "--json", packed).stdout)
    # Four bits are no gain for a symbol of four bits.
    gain = mode == "tiered" or dtype not in ("F8_E4M3", "I8", "U8")
    assert {tensor["mode"] for tensor in facts["tensors"][1:]} == {mode if gain else "raw"}
    assert all((tensor["ratio"] > 1) == gain for tensor in facts["tensors"][1:])


def test_types_without_a_codec_are_raw(work, samples):
    path = work / "x.safetensors"
    path.write_bytes(ODD_FILES["all_dtypes"])
    facts = json.loads(run("inspect", "--json", round_trip(path, codebook=samples / "kv.szcb")).stdout)
    assert [(tensor["dtype"], tensor["mode"]) for tensor in facts["tensors"][1:]] == [(name, "raw") for name, *_ in ALL_DTYPES]


def test_every_bit_pattern(work, own_codebook):
    path = work / "x.safetensors"
    patterns = b"".join(i.to_bytes(2, "little") for i in range(65536))
    path.write_bytes(kv.safetensors([("x", "BF16", (256, 256), patterns), ("y", "F16", (256, 256), patterns)]))
    round_trip(path, codebook=own_codebook(path))


def test_file_of_the_safetensors_library(work, own_codebook):
    library = pytest.importorskip("safetensors.numpy")
    import numpy as np

    rng = np.random.default_rng(3)
    tensors = {f"t{i}": rng.standard_normal((2, 30, 16)).astype(np.float16) for i in range(5)}
    tensors |= {"scalar": np.array(1.5, np.float32), "empty": np.zeros((0, 3), np.int64), "flags": rng.random(7) < 0.5}
    library.save_file(tensors, work / "x.safetensors", {"format": "np"})
    packed = round_trip(work / "x.safetensors", codebook=own_codebook(work / "x.safetensors"))
    run("decompress", "--codebook", "own.szcb", packed, "-o", "y.safetensors")
    for name, tensor in library.load_file("y.safetensors").items():
        assert np.array_equal(tensor, tensors[name])


@pytest.mark.parametrize("path", sorted((pathlib.Path(__file__).parents[1] / "data").glob("*.safetensors")), ids=lambda p: p.stem)
def test_real_data(work, own_codebook, path):
    copy = work / path.name
    copy.write_bytes(path.read_bytes())
    round_trip(copy, codebook=own_codebook(copy))


def test_embedded_codebook_needs_no_other(work, samples):
    packed = round_trip(samples / "in.safetensors", "--embed-codebook", codebook=samples / "kv.szcb")
    assert (samples / "kv.szcb").read_bytes() in packed.read_bytes()
    run("test", packed)


def test_same_input_same_file(work, samples):
    for name in ("one", "two"):
        run("compress", "--codebook", samples / "kv.szcb", samples / "in.safetensors", "-o", name)
    assert (work / "one").read_bytes() == (work / "two").read_bytes() == (samples / "out.szkv").read_bytes()


@pytest.mark.parametrize(
    "dtype, shape, axes",
    [
        ("bf16", (3, 17, 16), None),
        ("BF16", (3, 17, 16), "head,token,dim"),
        ("bf16", (17, 3, 16), "token,head,channel"),
        ("fp16", (33, 24), None),
        ("fp32", (400,), None),
        ("fp32", (400,), "dim"),
        ("fp8_e4m3", (2, 2, 3, 17, 16), None),
        ("f8_e5m2", (4, 17, 2, 16), "batch,token,head,dim"),
        ("i8", (4, 17, 16), "batch,token,dim"),
        ("bytes", (1000,), None),
    ],
)
def test_raw_array(work, own_codebook, dtype, shape, axes):
    name = {"FP16": "F16", "FP32": "F32", "FP8_E4M3": "F8_E4M3", "BYTES": "U8"}.get(dtype.upper(), dtype.upper())
    path = work / "x.bin"
    path.write_bytes(kv.values(shape, name))
    options = ["--dtype", dtype, "--shape", ",".join(map(str, shape)), *(("--axes", axes) if axes else ())]
    packed = round_trip(path, *options, codebook=own_codebook(path, *options))
    frame = json.loads(run("inspect", "--json", packed).stdout)["frames"][0]
    assert frame["mode"] == "tiered" and frame["tensor_key"] == "0" * 16


@pytest.mark.parametrize("size", [0, 1, 2, 15, 16, 17, 4096, 5000])
def test_bytes_of_any_length(work, size):
    path = work / "x.bin"
    path.write_bytes(RANDOM_BYTES[:size] + b"x" * max(0, size - 4096))
    round_trip(path, "--mode", "raw", "--dtype", "u8")


def test_noise_does_not_grow(work, own_codebook, samples):
    path = work / "x.safetensors"
    noise = random.Random(9).randbytes(3 * 40 * 32 * 2)
    path.write_bytes(kv.safetensors([("layers.0.k", "BF16", (3, 40, 32), noise)]))
    packed = round_trip(path, codebook=samples / "kv.szcb")
    raw = round_trip(path, "--mode", "raw")
    assert packed.stat().st_size == raw.stat().st_size
