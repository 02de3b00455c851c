# SPDX-License-Identifier: Apache-2.0
"""What the integrations do without their engines: names of blocks, layouts by shape, and prefill to decode."""

import json
import socket
import threading
import time

import ml_dtypes
import numpy as np
import pytest

from splitzip_kv import Calibration, Layout
from splitzip_kv.integrations.blocks import Blocks, Geometry, LayerMemory, block_keys, layer_memory
from splitzip_kv.integrations.prefill import NotSent, PrefillService, fetch
from splitzip_kv.store import CacheStore, DictValues
from splitzip_kv.transfer import Options, Receiver, Sender
from splitzip_kv.transfer.inprocess import Network
from transfer_cases import QUICK, values

GEOMETRY = Geometry(block_tokens=16, heads=3, dim=64, value_dim=64)
PAGES = 11


def test_keys_depend_on_everything_before():
    tokens = list(range(100))
    keys = block_keys(tokens, 16)
    assert len(keys) == 6 and len(set(keys)) == 6
    assert block_keys(tokens[:96], 16) == keys and block_keys(tokens[:95], 16) == keys[:5]
    other = tokens.copy()
    other[40] += 1
    assert block_keys(other, 16)[:2] == keys[:2] and not set(block_keys(other, 16)[2:]) & set(keys)
    assert not set(block_keys(tokens, 16, "adapter")) & set(keys)
    assert block_keys([], 16) == []


def memories(layers=2, seed=1):
    """The same cache in each of the forms that engines have: [page, token, head, dim] of K and of V for each layer."""
    rng = np.random.default_rng(seed)
    return [[values(rng, PAGES * 16, 192).reshape(PAGES, 16, 3, 64) for _ in "kv"] for _ in range(layers)]


def packed(k, v):
    return np.concatenate([k, v], -1)


FORMS = {
    "[B, H, N, 2D]": lambda k, v: np.ascontiguousarray(packed(k, v).transpose(0, 2, 1, 3)),
    "[B, H, N, 2D], tokens before heads in memory": lambda k, v: packed(k, v).transpose(0, 2, 1, 3),
    "[B, N, H, 2D]": packed,
    "[2, B, N, H, D]": lambda k, v: np.stack([k, v]),
    "[2, B, H, N, D]": lambda k, v: np.stack([k, v]).transpose(0, 1, 3, 2, 4),
    "[B, 2, N, H, D]": lambda k, v: np.stack([k, v], 1),
    "[B, 2, H, N, D]": lambda k, v: np.ascontiguousarray(np.stack([k, v], 1).transpose(0, 1, 3, 2, 4)),
}


@pytest.fixture(scope="module")
def codebooks():
    calibration = Calibration()
    for number, layer in enumerate(memories(seed=9)):
        for kind, array in zip("kv", layer, strict=True):
            calibration.add(f"layers.{number}.{kind}", Layout(array, "page,token,head,dim", pages=range(PAGES)))
    return calibration.finish()


def bits(array):
    return np.ascontiguousarray(array).view(np.uint16)


def transposed_keys(k, v):
    """As vLLM keeps them on processors: K of a block as [dim, token], then V as [token, dim]."""
    keys, rows = k.transpose(0, 2, 3, 1).reshape(PAGES, 3, -1), v.transpose(0, 2, 1, 3).reshape(PAGES, 3, -1)
    return np.concatenate([keys, rows], -1).reshape(PAGES, 3, 16, 128)


def memory_of(form, array):
    if form != "K transposed":
        return layer_memory(array, GEOMETRY)
    halves = array.reshape(PAGES, 3, 2, 16 * 64)
    keys = halves[:, :, 0].reshape(PAGES, 3, 64, 16).swapaxes(2, 3)
    return LayerMemory(
        [("k", keys, "page,head,token,dim"), ("v", halves[:, :, 1].reshape(PAGES, 3, 16, 64), "page,head,token,dim")]
    )


FORMS["K transposed"] = transposed_keys


def blocks_of(form, arrays):
    return Blocks([memory_of(form, array) for array in arrays], 16)


@pytest.mark.parametrize("theirs", FORMS)
@pytest.mark.parametrize("ours", ["[B, H, N, 2D]", "[2, B, N, H, D]", "K transposed"])
def test_every_form_holds_the_same_cache(ours, theirs, codebooks):
    cache = memories()
    source = blocks_of(ours, [FORMS[ours](*layer) for layer in cache])
    arrays = [FORMS[theirs](*layer) for layer in memories(seed=2)]
    before = [bits(array).copy() for array in arrays]
    target = blocks_of(theirs, arrays)
    store = CacheStore(DictValues(), codebooks)
    size = store.put("a", list(source.parts([7, 2, 9], 45, codebooks.find)))
    assert source.raw_bytes(45) == 45 * 192 * 2 * 4 and source.raw_bytes(45) / size > 1.35
    parts, finish = target.targets([0, 5, 3], 45)
    assert store.get("a", parts)
    finish()
    for layer, array, old in zip(cache, arrays, before, strict=True):
        tensors = {kind: (view, axes) for kind, view, axes in memory_of(theirs, array).tensors}
        for kind, wanted in zip("kv", layer, strict=True):
            view, axes = tensors[kind]
            if axes == "page,head,token,dim":
                view = view.swapaxes(1, 2)
            got = np.concatenate([view[page] for page in (0, 5, 3)])[:45]
            assert np.array_equal(bits(got), bits(np.concatenate([wanted[page] for page in (7, 2, 9)])[:45]))
        # The last three tokens of the last page, and other pages, are as they were.
        assert np.count_nonzero(bits(array) != old) <= 2 * 45 * 192


def test_one_tensor_for_k_and_v():
    latent = values(np.random.default_rng(1), PAGES * 16, 576).reshape(PAGES, 16, 576)
    mla = Geometry(block_tokens=16, heads=1, dim=576, value_dim=512)
    out = np.zeros_like(latent)[:, None]
    source, target = (Blocks([layer_memory(array, mla)], 16) for array in (latent, out))
    store = CacheStore(DictValues())
    store.put("a", list(source.parts([3, 1])))
    assert store.get("a", target.targets([0, 2])[0]) and np.array_equal(bits(out[[0, 2], 0]), bits(latent[[3, 1]]))


def test_what_is_no_known_form():
    for shape in [(PAGES, 16, 3, 65), (3, PAGES, 16, 3, 64), (PAGES, 17, 3, 128), (PAGES,)]:
        with pytest.raises(ValueError, match="no known layout"):
            layer_memory(np.zeros(shape, ml_dtypes.bfloat16), GEOMETRY)
    with pytest.raises(ValueError, match="values of type"):
        Blocks([layer_memory(np.zeros((PAGES, 3, 16, 128), np.float64), GEOMETRY)], 16)


def test_codebooks_of_another_model(codebooks):
    narrow = Blocks([layer_memory(np.zeros((4, 2, 16, 128), ml_dtypes.bfloat16), Geometry(16, 2, 64, 64))], 16)
    halves = Blocks([layer_memory(np.zeros((4, 3, 16, 128), np.float16), GEOMETRY)], 16)
    for blocks in (narrow, halves):
        assert not any(part.tensor.codebook for part in blocks.parts([0], find=codebooks.find))


@pytest.fixture
def pair(codebooks):
    """A prefill side and a decode side, on the in-process engine, and a cache."""
    network = Network()
    options = Options(**QUICK)
    source = blocks_of("K transposed", [transposed_keys(*layer) for layer in memories()])
    arrays = [FORMS["[B, N, H, 2D]"](*layer) for layer in memories(seed=2)]
    sender, receiver = Sender(network.engine(), codebooks, options), Receiver(network.engine(), codebooks, options)
    service = PrefillService(
        "127.0.0.1",
        0,
        sender,
        lambda ids, tokens: source.parts(ids, tokens, codebooks.find),
        source.raw_bytes,
        16,
        hold_seconds=1.0,
    )
    yield service, receiver, source, blocks_of("[B, N, H, 2D]", arrays), arrays
    service.close()
    sender.close()
    receiver.close()
    network.close()


def wanted(pages, tokens, skip=0):
    return [bits(np.concatenate([packed(*layer)[page] for page in pages])[skip:tokens]) for layer in memories()]


def got(arrays, pages, tokens):
    return [bits(np.concatenate([array[page] for page in pages])[:tokens]) for array in arrays]


@pytest.mark.parametrize("skip", [0, 16])
def test_prefill_to_decode(pair, skip):
    service, receiver, _, target, arrays = pair
    address = f"127.0.0.1:{service.port}"
    pages = [0, 5, 3][skip // 16 :]
    # The question may be there before the engine says that the cache is complete.
    threading.Timer(0.2, service.hold, ("r1", [7, 2, 9], 45)).start()
    report = fetch(receiver, address, "r1", target.targets(pages, 45 - skip)[0], skip, 5.0)
    assert all(map(np.array_equal, got(arrays, pages, 45 - skip), wanted([7, 2, 9], 45, skip)))
    assert report["wire_bytes"] < target.raw_bytes(45 - skip) / 1.3
    assert service.over() == {"r1"} and service.over() == set()
    assert (service.sent, service.failed) == (1, 0) and service.wire_bytes == report["wire_bytes"]
    with pytest.raises(NotSent, match="no cache"):
        fetch(receiver, address, "r1", target.targets(pages, 45 - skip)[0], skip, 3.0)


def test_a_cache_that_nobody_fetches_is_let_go(pair):
    service, *_ = pair
    service.hold("r2", [1], 10)
    assert service.over() == set()
    deadline = time.monotonic() + 5
    while not (over := service.over()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert over == {"r2"}


def test_questions_that_make_no_sense(pair):
    service, receiver, _, target, _ = pair
    service.hold("r3", [1, 2], 20)
    for skip in (15, 32, -16):
        with pytest.raises(NotSent, match="to be skipped"):
            fetch(receiver, f"127.0.0.1:{service.port}", "r3", target.targets([0, 1], 20)[0], skip, 3.0)
    for line in (b"\n", b"[]\n", b'{"request": 1}\n', b"\xff\n"):
        with socket.create_connection(("127.0.0.1", service.port), 5) as connection:
            connection.sendall(line)
            assert "error" in json.loads(connection.makefile().readline())
    # Another number of tokens than is expected.
    with pytest.raises(NotSent, match="GEOMETRY"):
        fetch(receiver, f"127.0.0.1:{service.port}", "r3", target.targets([0, 1], 19)[0], 0, 3.0)
    assert service.over() == {"r3"} and service.failed == 1


def test_no_prefill_side(pair):
    _, receiver, _, target, _ = pair
    begin = time.monotonic()
    for address in ("127.0.0.1:9", "nonsense", "127.0.0.1:x"):
        with pytest.raises(NotSent):
            fetch(receiver, address, "r4", target.targets([0], 10)[0], 0, 3.0)
    assert time.monotonic() - begin < 5
