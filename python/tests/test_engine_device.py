# SPDX-License-Identifier: Apache-2.0
"""Caches in the memory of a GPU in the integrations, without their engines."""

import numpy as np
import pytest

from conftest import free_port
from splitzip_kv import Calibration, ElementType, cuda
from splitzip_kv.integrations.blocks import Blocks, LayerMemory, layer_memory
from splitzip_kv.integrations.rooms import DecodeRooms, Piece, PrefillRooms
from splitzip_kv.integrations.vllm_settings import Load, Step
from splitzip_kv.integrations.vllm_worker import WorkerSide, launched_on
from splitzip_kv.store import CacheStore, DictValues, open_values
from splitzip_kv.transfer.inprocess import Network
from test_engine_blocks import FORMS, GEOMETRY, memories, memory_of
from test_engine_vllm import BLOCK, run, settings
from transfer_cases import QUICK

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason=cuda.problem() or "")


class OnDevice:
    """A copy of a numpy array in the memory of a GPU, with what the integrations use of an engine's tensors."""

    def __init__(self, array, whole=None, memory=None):
        self.array = array  # whose shape and strides it has, and its place in `whole`
        self.whole = whole
        self.memory = memory
        if memory is None:
            self.whole = array
            while self.whole.base is not None:
                self.whole = self.whole.base
            self.memory = cuda.Memory(self.whole.nbytes)
            cuda.copy(self.memory, self.whole.reshape(-1).view(np.uint8))

    @property
    def shape(self):
        return self.array.shape

    def __getitem__(self, index):
        return OnDevice(self.array[index], self.whole, self.memory)

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.array.shape,
            "strides": self.array.strides,
            "typestr": self.array.dtype.str,
            "data": (self.memory.address + self.array.ctypes.data - self.whole.ctypes.data, False),
            "version": 3,
        }

    def look(self):
        """The array, with what is in the GPU's memory now."""
        cuda.copy(self.whole.reshape(-1).view(np.uint8), self.memory)
        return self.array


def cache_of(dtype, seed):
    """K and V of each layer, as [page, token, head, dim] of a type that `__cuda_array_interface__` knows."""
    halves = [[array.astype(np.float16) for array in layer] for layer in memories(seed=seed)]
    if dtype == np.float16:
        return halves
    return [[(array.view(np.uint16) >> 8).astype(np.uint8) for array in layer] for layer in halves]  # E5M2


def codebooks_of(*several):
    calibration = Calibration()
    for blocks in several:
        for name, layout in blocks.layouts(range(4)):
            calibration.add(name, layout)
    return calibration.finish()


@pytest.mark.parametrize("dtype", [np.float16, np.uint8], ids=["FP16", "FP8 in bytes"])
@pytest.mark.parametrize("form", [form for form in FORMS if form != "K transposed"])
def test_every_form_in_a_store(form, dtype):
    arrays = [FORMS[form](*layer) for layer in cache_of(dtype, 1)]
    there = [OnDevice(FORMS[form](*layer)) for layer in cache_of(dtype, 2)]
    type = ElementType.FP8_E5M2
    host, source, target = (
        Blocks([layer_memory(array, GEOMETRY) for array in layers], 16, type)
        for layers in (arrays, [OnDevice(array) for array in arrays], there)
    )
    assert host.device is None and source.device == target.device == 0
    books = codebooks_of(source)
    assert books.to_bytes() == codebooks_of(host).to_bytes()
    assert {book.type for book in books} == {ElementType.FP16 if dtype == np.float16 else type}
    packed = [
        bytes(CacheStore(DictValues(), books).pack("a", list(blocks.parts([7, 2, 9], 45, books.find))))
        for blocks in (host, source)
    ]
    assert packed[0] == packed[1] and source.raw_bytes(45) / len(packed[0]) > 1.08

    store = CacheStore(DictValues(), books)
    store.put("a", list(source.parts([7, 2, 9], 45, books.find)))
    before = [np.array(array.look()) for array in there]
    parts, finish = target.targets([0, 5, 3], 45)
    assert store.get("a", parts)
    finish()
    for array, device_array, old in zip(arrays, there, before, strict=True):
        wanted, after = memory_of(form, array).tensors, memory_of(form, device_array.look()).tensors
        for (_, one, axes), (_, other, _) in zip(wanted, after, strict=True):
            rows = [view.swapaxes(1, 2) if axes == "page,head,token,dim" else view for view in (one, other)]
            came, went = np.concatenate(rows[1][[0, 5, 3]])[:45], np.concatenate(rows[0][[7, 2, 9]])[:45]
            assert np.array_equal(came.view(f"u{dtype().itemsize}"), went.view(f"u{dtype().itemsize}"))
        assert np.count_nonzero(device_array.array != old) <= 2 * 45 * 192


def test_a_package_without_the_backend(monkeypatch):
    monkeypatch.setattr(cuda, "problem", lambda: "it was built without nvcc")
    with pytest.raises(ValueError, match="built without nvcc"):
        Blocks([LayerMemory([("k", OnDevice(np.zeros((4, 16, 3, 64), np.float16)), "page,token,head,dim")])], 16)


def test_what_only_host_memory_can_have():
    keys = np.zeros((4, 3, 64, 16), np.float16).swapaxes(2, 3)
    with pytest.raises(ValueError, match="no neighbours"):
        Blocks([LayerMemory([("k", OnDevice(keys), "page,head,token,dim")])], 16)
    rows = np.zeros((4, 16, 3, 64), np.float16)
    layers = [LayerMemory([("k", OnDevice(rows), "page,token,head,dim"), ("v", rows, "page,token,head,dim")])]
    with pytest.raises(ValueError, match="several devices"):
        Blocks(layers, 16)


def test_pieces_of_a_room():
    """As with SGLang: pages of one token, chunks of a prompt."""

    def pool(seed):
        return [
            [OnDevice(np.array(array).reshape(-1, 1, 3, 64)) for array in layer] for layer in cache_of(np.float16, seed)
        ]

    def blocks_of(layers):
        forms = [[(kind, array, "page,token,head,dim") for kind, array in zip("kv", layer)] for layer in layers]
        return Blocks([LayerMemory(form) for form in forms], 1)

    source, target = pool(1), pool(2)
    books = codebooks_of(blocks_of(source))
    network, given = Network(), {**QUICK, "shadow": 2}
    decode, prefill = (
        side(network.engine(), blocks, books, blocks.options(given))
        for side, blocks in ((DecodeRooms, blocks_of(target)), (PrefillRooms, blocks_of(source)))
    )
    there = np.random.default_rng(3).permutation(11 * 16)[:50]
    here = np.random.default_rng(4).permutation(11 * 16)[:50]
    decode.open(7, there)
    prefill.send(decode.address, Piece(7, 0, 32, 32), here[:32])
    prefill.send(decode.address, Piece(7, 32, 18, 18), here[32:])
    decode.close(7)
    for layer, other in zip(source, target, strict=True):
        for one, two in zip(layer, other, strict=True):
            assert np.array_equal(two.look()[there], one.array[here])
    assert prefill.counters["sent_pieces"] == decode.counters["received_pieces"] == 2
    prefill.shut_down()
    decode.shut_down()
    network.close()


@pytest.mark.parametrize("protocol", ["tcp", "cuda_peer"])
def test_prefill_and_decode_servers(tmp_path, protocol):
    """As with vLLM."""
    if protocol == "tcp":
        pytest.importorskip("mooncake.engine")
    source, target = (
        [OnDevice(FORMS["[2, B, N, H, D]"](*layer)) for layer in cache_of(np.float16, seed)] for seed in (1, 2)
    )
    both = [Blocks([layer_memory(array, GEOMETRY) for array in layers], BLOCK) for layers in (source, target)]
    codebooks_of(both[0]).save(tmp_path / "books.szcb")
    given = {"protocol": protocol, "codebooks": str(tmp_path / "books.szcb")}
    port = free_port()
    prefill = WorkerSide(settings("kv_producer", port=port, **given))
    decode = WorkerSide(settings("kv_consumer", **given))
    prefill.register(both[0])
    decode.register(both[1])
    prefill.start(Step(held=[("p", [7, 2, 9], 45)]))
    load = Load("d", [0, 5, 3], address=f"127.0.0.1:{port}", remote_request="p", tokens=45)
    assert run(decode, Step(loads=[load])) == set()
    for one, two in zip(source, target, strict=True):
        there, here = two.look()[:, [0, 5, 3]], one.array[:, [7, 2, 9]]
        assert np.array_equal(there[:, :2], here[:, :2]) and np.array_equal(there[:, 2, :13], here[:, 2, :13])
    counts = decode.counts()
    assert counts["received_raw_bytes"] > 1.05 * counts["received_bytes"]
    for worker in (prefill, decode):
        worker.close()


def test_an_engine_that_still_computes(tmp_path):
    """What vLLM has launched, on a stream of its own, is waited for before a block is read."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    device = torch.device("cuda", 0)
    wanted = torch.randn((4, 2, BLOCK, 3, 64), device=device).to(torch.bfloat16)
    pool = torch.zeros_like(wanted)
    worker = WorkerSide(settings(store=f"file://{tmp_path}/store"))
    worker.register(Blocks([layer_memory(pool, GEOMETRY)], BLOCK), lambda: launched_on(device))
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(1 << 28)
        pool.copy_(wanted)
        worker.save(Step(saves=[("a", 1), ("b", 3)]))
    worker.close()
    back = torch.zeros_like(wanted)
    store = CacheStore(open_values(f"file://{tmp_path}/store"), prefix=settings(store="x").prefix)
    for key, block in (("a", 1), ("b", 3)):
        assert store.get(key, Blocks([layer_memory(back, GEOMETRY)], BLOCK).targets([block])[0])
        assert torch.equal(back[block], wanted[block])
