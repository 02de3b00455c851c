# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch in host memory, and arrays that have DLPack alone."""

import numpy as np
import pytest

from conftest import NUMPY_TYPES, bits, round_trip, same, values
from splitzip_kv import Calibration, ElementType, Frame, InvalidLayout, Layout, encode

torch = pytest.importorskip("torch")
TORCH_TYPES = {
    ElementType.BF16: torch.bfloat16,
    ElementType.FP16: torch.float16,
    ElementType.FP32: torch.float32,
    ElementType.FP8_E4M3: torch.float8_e4m3fn,
    ElementType.FP8_E5M2: torch.float8_e5m2,
    ElementType.BYTES: torch.uint8,
}


class DlpackOnly:
    """What another framework gives."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def as_torch(array: np.ndarray, type: ElementType):
    signed = bits(array).view(f"i{array.dtype.itemsize}")
    return torch.from_numpy(signed.copy()).view(TORCH_TYPES[type])


@pytest.mark.parametrize("wrap", [lambda tensor: tensor, DlpackOnly])
@pytest.mark.parametrize("type", NUMPY_TYPES)
def test_types(books, type, wrap):
    source = values((3, 100, 40), type)
    expected = encode(
        [Layout(source, "head,token,dim").tensor(books.find(type.name))], [Layout(source, "head,token,dim")]
    )
    layout = Layout(wrap(as_torch(source, type)), "head,token,dim")
    assert layout.type == type
    tensor = layout.tensor(books.find(type.name))
    assert encode([tensor], [layout]) == expected
    target = torch.zeros((100, 3, 40), dtype=torch.uint8).to(TORCH_TYPES[type])
    round_trip(layout, Layout(wrap(target.transpose(0, 1)), "head,token,dim"), tensor)
    size = source.dtype.itemsize
    integers = target.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[size]).numpy()
    assert same(integers.view(f"u{size}"), bits(source.transpose(1, 0, 2)))


@pytest.mark.parametrize("wrap", [lambda tensor: tensor, DlpackOnly])
def test_strides_and_pools(books, wrap):
    pool = as_torch(values((2, 8, 16, 3, 8)), ElementType.BF16)
    target = torch.zeros_like(pool)
    sources = [Layout(wrap(pool[kv]), "page,token,head,dim", pages=torch.tensor([5, 0, 3])) for kv in range(2)]
    targets = [Layout(wrap(target[kv]), "page,token,head,dim", pages=torch.tensor([1, 2, 7])) for kv in range(2)]
    tensors = [layout.tensor(books.find("BF16")) for layout in sources]
    Frame(encode(tensors, sources)).decode(tensors, targets)
    assert torch.equal(target.view(torch.int16)[:, [1, 2, 7]], pool.view(torch.int16)[:, [5, 0, 3]])

    expanded = pool[0, 0, 0].expand(16, 3, 8)
    layout = Layout(wrap(expanded), "token,head,dim")
    frame = Frame(encode([layout.tensor()], [layout]))
    with pytest.raises(InvalidLayout, match="share memory"):
        frame.decode([layout.tensor()], [layout])
    with pytest.raises(InvalidLayout, match="bytes apart"):
        Layout(wrap(pool[0, ..., ::2]), "page,token,head,dim", pages=[0])


def test_frames_in_tensors(books):
    source = as_torch(values((10, 64)), ElementType.BF16).requires_grad_()
    layout = Layout(source, "token,dim")
    tensor = layout.tensor(books.find("channels"))
    out = torch.zeros(4096, dtype=torch.uint8)
    frame = encode([tensor], [layout], out=out)
    assert bytes(frame) == out[: len(frame)].numpy().tobytes()
    target = torch.zeros(10, 64, dtype=torch.bfloat16)
    Frame(out[: len(frame)]).decode([tensor], [Layout(target, "token,dim")])
    assert torch.equal(target.view(torch.int16), source.detach().view(torch.int16))
    with pytest.raises(TypeError, match="one piece"):
        Frame(out[::2])


def test_the_tensor_is_kept():
    layout = Layout(as_torch(values((1000, 64)), ElementType.BF16), "token,dim")
    Calibration().add("k", layout)
    alone = Layout(DlpackOnly(as_torch(values((1000, 64)), ElementType.BF16)), "token,dim")
    assert encode([layout.tensor()], [layout]) == encode([alone.tensor()], [alone])


def test_tensors_that_are_no_memory_of_the_host():
    for tensor in (
        torch.zeros(4, device="meta"),
        torch.zeros(4, 4).to_sparse(),
        torch.zeros(4, dtype=torch.complex64).conj(),
    ):
        with pytest.raises(TypeError):
            Layout(tensor, "token" if tensor.ndim == 1 else "token,dim")
    with pytest.raises(TypeError, match="DLPack"):
        Layout(DlpackOnly(torch.zeros(4, device="meta")), "token")
    with pytest.raises(InvalidLayout, match="8 bytes"):
        Layout(torch.zeros(4, dtype=torch.int64), "token")
    assert Layout(torch.zeros(4, dtype=torch.bool), "token").type is None


def test_dlpack_that_may_not_be_written():
    array = np.zeros((4, 8), np.float16)
    array.flags.writeable = False
    layout = Layout(DlpackOnly(array), "token,dim")
    assert layout.readonly
    frame = Frame(encode([layout.tensor()], [layout]))
    with pytest.raises(InvalidLayout, match="read-only"):
        frame.decode([layout.tensor()], [layout])
