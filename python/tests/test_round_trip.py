# SPDX-License-Identifier: Apache-2.0
"""What goes in comes out, over types, modes, layouts and strides."""

import dataclasses

import numpy as np
import pytest

from conftest import NUMPY_TYPES, bits, round_trip, same, values
from splitzip_kv import (
    ElementType,
    Frame,
    InvalidArgument,
    Layout,
    Mode,
    Workers,
    compress,
    decompress,
    encode,
    frame_size,
    frame_sizes,
)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("type", NUMPY_TYPES)
def test_types_and_modes(books, type, mode):
    source = values((3, 333, 40), type)
    target = np.zeros_like(source)
    layout = Layout(source, "head,token,dim")
    assert layout.type == type and (layout.tokens, layout.heads, layout.channels) == (333, 3, 40)
    tensor = layout.tensor(books.find(type.name), mode=mode, tokens_per_unit=16)
    frame = round_trip(layout, Layout(target, "head,token,dim"), tensor)
    assert same(source, target)
    sizes = frame_sizes([tensor])
    assert sizes.raw_bytes == source.nbytes and sizes.known_bytes <= len(frame) <= sizes.bound_bytes
    assert frame_size(frame[:48]) == len(frame)
    if mode != Mode.RAW and type in (ElementType.BF16, ElementType.FP32):
        assert len(frame) < source.nbytes


@pytest.mark.parametrize("type", NUMPY_TYPES)
def test_every_bit_pattern(books, type):
    size = np.dtype(NUMPY_TYPES[type]).itemsize
    source = np.arange(256 ** min(size, 2)).astype(f"u{size}")
    if size == 4:
        source = source * np.uint32(0x10001)
    target = np.empty_like(source)
    tensor = Layout(source, "token", type=type).tensor(books.find(type.name))
    round_trip(Layout(source, "token", type=type), Layout(target, "token", type=type), tensor)
    assert same(source, target)


def test_the_frame_does_not_depend_on_the_layout(books):
    source = values((50, 4, 16))
    tensor = Layout(source, "token,head,dim").tensor(books.find("channels"))
    expected = encode([tensor], [Layout(source, "token,head,dim")])

    heads_first = np.ascontiguousarray(source.transpose(1, 0, 2))
    assert encode([tensor], [Layout(heads_first, "head,token,dim")]) == expected
    assert encode([tensor], [Layout(source.reshape(50, 64), "token,channel")]) == expected
    assert encode([tensor], [Layout(source.view(np.uint16), "token,head,dim", type=ElementType.BF16)]) == expected

    backwards = Layout(source[::-1].copy()[::-1], "token,head,dim")
    assert encode([tensor], [backwards]) == expected
    wide = np.full((100, 9, 24), 7, source.dtype)
    wide[1::2, 8:0:-2, 4:20] = source
    assert encode([tensor], [Layout(wide[1::2, 8:0:-2, 4:20], "token,head,dim")]) == expected

    pages = [9, 2, 0, 5]
    pool = np.full((10, 13, 4, 16), 7, source.dtype)
    for token in range(50):
        pool[pages[token // 13], token % 13] = source[token]
    assert encode([tensor], [Layout(pool, "page,token,head,dim", pages=pages)]) == expected
    assert encode([tensor], [Layout(pool[::-1], "page,token,head,dim", pages=[9 - p for p in pages])]) == expected
    late = dataclasses.replace(tensor, tokens=30, tokens_per_unit=30)
    assert encode([late], [Layout(pool, "page,token,head,dim", pages=pages, first_token=20)]) == encode(
        [late], [Layout(source[20:], "token,head,dim")]
    )

    frame = Frame(expected)
    target = np.full_like(wide, 7)
    frame.decode([tensor], [Layout(target[1::2, 8:0:-2, 4:20], "token,head,dim")])
    assert same(target, wide)
    target = np.full_like(pool, 7)
    frame.decode([tensor], [Layout(target, "page,token,head,dim", pages=pages)])
    assert same(target, pool)


POOLS = {
    "vLLM NHD": ((2, 8, 16, 3, 8), "page,token,head,dim", lambda pool, kv: pool[kv]),
    "vLLM HND": ((2, 8, 3, 16, 8), "page,head,token,dim", lambda pool, kv: pool[kv]),
    "FlashInfer": ((8, 2, 16, 3, 8), "page,token,head,dim", lambda pool, kv: pool[:, kv]),
    "vLLM packed": ((8, 3, 16, 16), "page,head,token,dim", lambda pool, kv: pool[..., 8 * kv : 8 * kv + 8]),
    "SGLang slots": ((2, 128, 3, 8), "page,head,dim", lambda pool, kv: pool[kv]),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools_of_the_engines(books, name):
    shape, axes, part = POOLS[name]
    random = np.random.default_rng(1)
    slots = "token" not in axes
    count, of = (45, 128) if slots else (3, 8)
    source_pages, target_pages = (random.permutation(of)[:count] for _ in range(2))
    source = values(shape)
    before = values(shape, seed=9)
    target = before.copy()

    sources = [Layout(part(source, kv), axes, pages=source_pages) for kv in range(2)]
    targets = [Layout(part(target, kv), axes, pages=target_pages) for kv in range(2)]
    tokens = 45 if slots else 41
    tensors = [layout.tensor(books.find("BF16"), tokens=tokens, tensor_key=kv) for kv, layout in enumerate(sources)]
    assert (tensors[0].ranges, tensors[0].channels) == (3, 8)
    Frame(encode(tensors, sources)).decode(tensors, targets)

    # The same by plain indexing: only the valid tokens of the listed pages change.
    page_tokens = 1 if slots else 16
    expected = before.copy()
    for kv in range(2):
        for token in range(tokens):
            page, row = divmod(token, page_tokens)
            index = {
                "page,head,dim": lambda p: (p,),
                "page,token,head,dim": lambda p: (p, row),
                "page,head,token,dim": lambda p: (p, slice(None), row),
            }[axes]
            part(expected, kv)[index(target_pages[page])] = part(source, kv)[index(source_pages[page])]
    assert same(target, expected)


def test_random_geometry(books):
    random = np.random.default_rng(7)
    for seed in range(150):
        tokens, heads, channels = (int(random.integers(1, n)) for n in (200, 5, 70))
        unit = int(random.integers(1, tokens + 1))
        page = int(random.integers(1, 20))
        type = ElementType(int(random.integers(1, 7)))
        mode = Mode(int(random.integers(0, 3)))
        source = values((heads, tokens, channels), type, seed)
        layout = Layout(source, "head,token,dim")
        tensor = layout.tensor(
            books.find(type.name), mode=mode, tokens_per_unit=unit, tensor_key=seed, first_block=2**64 - 1 - seed
        )
        count = -(-tokens // page)
        pool = np.zeros((count + 3, page, heads, channels), source.dtype)
        pages = random.permutation(count + 3)[:count]
        round_trip(
            layout, Layout(pool, "page,token,head,dim", pages=pages), tensor, checksums=bool(seed % 2), nonce=seed
        )
        assert same(pool[pages].reshape(-1, heads, channels)[:tokens].transpose(1, 0, 2), source), seed


def test_units(books):
    source = values((3, 100, 16))
    layout = Layout(source, "head,token,dim")
    tensor = layout.tensor(books.find("BF16"), tokens_per_unit=32)
    frame = Frame(encode([tensor], [layout]))
    for unit in range(12):
        block, head = divmod(unit, 3)
        expected = source[head, 32 * block : 32 * block + 32]
        target = np.zeros_like(expected)
        frame.decode_unit(0, tensor, unit, Layout(target, "token,dim"))
        assert same(target, expected)
        part = np.zeros((2, 16), source.dtype)
        frame.decode_unit(0, tensor, unit, Layout(part, "token,dim"), first_token=1, token_count=2)
        assert same(part, expected[1:3])


def test_a_slice_of_heads_uses_the_codebook_of_the_full_tensor(books):
    source = values((20, 4, 16))
    layout = Layout(source[:, 2:], "token,head,dim")
    tensor = layout.tensor(books.find("channels"), first_channel=32)
    target = np.zeros_like(source)
    round_trip(layout, Layout(target[:, 2:], "token,head,dim"), tensor)
    assert same(target[:, 2:], source[:, 2:]) and not bits(target[:, :2]).any()


def test_several_tensors_of_different_types(books):
    row = np.zeros((64, 656), np.uint8)
    latent = row[:, :512]
    scales = row[:, 512:528].view(np.float32)
    rope = row[:, 528:].view(np.uint16)
    latent[:] = values((64, 512), ElementType.FP8_E4M3).view(np.uint8)
    scales[:] = values((64, 4), ElementType.FP32)
    rope[:] = bits(values((64, 64)))

    def layouts(row):
        return [
            Layout(row[:, :512], "token,channel", type=ElementType.FP8_E4M3),
            Layout(row[:, 512:528].view(np.float32), "token,channel"),
            Layout(row[:, 528:].view(np.uint16), "token,channel", type=ElementType.BF16),
        ]

    tensors = [layout.tensor(books.find(layout.type.name)) for layout in layouts(row)]
    target = np.zeros_like(row)
    frame = Frame(encode(tensors, layouts(row), nonce=5), expected_nonce=5)
    described = frame.tensors(books)
    assert [t.type for t in described] == [ElementType.FP8_E4M3, ElementType.FP32, ElementType.BF16]
    assert frame.codebook_hashes() == [t.codebook.hash for t in tensors]
    frame.decode(described, layouts(target))
    assert same(target, row)


def test_nothing():
    assert Frame(encode([], [])).tensors() == []
    empty = np.zeros((0, 8), np.float16)
    tensor = Layout(empty, "token,dim").tensor()
    round_trip(Layout(empty, "token,dim"), Layout(empty, "token,dim"), tensor)
    pool = np.zeros((0, 16, 2, 8), np.float16)
    layout = Layout(pool, "page,token,head,dim", pages=[])
    round_trip(layout, layout, layout.tensor())


def test_buffers_of_the_caller(books):
    source = values((10, 64))
    layout = Layout(source, "token,dim")
    tensor = layout.tensor(books.find("channels"))
    expected = encode([tensor], [layout])
    wire = bytearray(frame_sizes([tensor]).bound_bytes + 7)
    frame = encode([tensor], [layout], out=memoryview(wire)[3:])
    assert frame == expected and wire[3 : 3 + len(frame)] == expected
    assert frame.obj is not None and not frame.readonly
    frame[:] = bytes(len(frame))
    assert not any(wire[3 : 3 + len(expected)])
    exact = np.zeros(len(expected), np.uint8)
    assert encode([tensor], [layout], out=exact) == expected


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_plain_buffers_are_arrays_of_bytes(books, kind):
    data = kind(bytes(range(256)) * 40)
    layout = Layout(data, "token")
    assert layout.type == ElementType.BYTES
    target = bytearray(len(data))
    round_trip(layout, Layout(target, "token"), layout.tensor(books.find("BYTES")))
    assert target == data


@pytest.mark.parametrize("type", NUMPY_TYPES)
def test_one_call(books, type):
    source = values((3, 50, 16), type)
    data = compress(source, "head,token,dim", books.find(type.name))
    back = decompress(data, "head,token,dim", books)
    assert back.dtype == source.dtype and same(back, source)
    assert same(decompress(data, "token,dim", books), source.transpose(1, 0, 2).reshape(50, 48))
    assert same(decompress(compress(source, "head,token,dim"), "token,head,dim"), source.transpose(1, 0, 2))


def test_workers_change_nothing(books):
    source = values((3, 2000, 64))
    layout = Layout(source, "head,token,dim")
    tensor = layout.tensor(books.find("BF16"), tokens_per_unit=16)
    workers = Workers(3)
    with pytest.raises(InvalidArgument, match="more than 4096 threads"):
        Workers(4097)
    assert workers.threads == 3 and Workers().threads >= 1 and Workers(1).threads == 1
    frame = encode([tensor], [layout], workers=workers)
    assert frame == encode([tensor], [layout])
    target = np.zeros_like(source)
    Frame(frame).decode([tensor], [Layout(target, "head,token,dim")], workers=workers)
    assert same(target, source)
