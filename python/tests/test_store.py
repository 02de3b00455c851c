# SPDX-License-Identifier: Apache-2.0
"""Caches in stores of values: what comes back, what is found out, and what happens to codebooks that are rotated."""

import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import splitzip_kv.store.cache_store as cache_store
from splitzip_kv import Calibration, CodebookSet, Frame, GeometryMismatch, Layout, SplitzipError
from splitzip_kv.integrations.objects import Tensors
from splitzip_kv.store import (
    BadValue,
    CacheStore,
    DictValues,
    FileValues,
    Learner,
    StoreError,
    StoreOptions,
    open_values,
)
from splitzip_kv.transfer import Part
from splitzip_kv.transfer.demo.cache import Pool, calibrate, load_cache

pytest.importorskip("safetensors")

DATA = Path(__file__).parents[2] / "data" / "smollm2-135m"


@pytest.fixture(scope="module")
def cache():
    return load_cache(DATA / "gsm8k.safetensors")[:8]


@pytest.fixture(scope="module")
def codebooks():
    return CodebookSet.load(DATA / "wikitext2.szcb")


@pytest.fixture(scope="module")
def source(cache):
    pool = Pool(cache, 16, seed=3)
    pool.fill()
    return pool


def parts(pool, codebooks=None):
    find = codebooks.find if codebooks is not None else lambda name: None
    return [pool.part(number, find(tensor.name)) for number, tensor in enumerate(pool.cache)]


def fetch(store, key, cache):
    """Get it into other pages of another size and compare every bit of them."""
    pool = Pool(cache, 32, seed=7)
    if not store.get(key, parts(pool)):
        return False
    assert pool.different_values() == 0 and pool.touched_bytes() == 0
    return True


@pytest.fixture(params=["dict", "files", "mooncake"])
def values(request, tmp_path):
    if request.param == "mooncake":
        yield request.getfixturevalue("mooncake_values")()
    else:
        yield DictValues() if request.param == "dict" else FileValues(tmp_path / "store")


def test_put_and_get(values, source, cache, codebooks):
    writer, reader = CacheStore(values, codebooks), CacheStore(values)
    assert not writer.contains("a") and not fetch(reader, "a", cache)
    size = writer.put("a", parts(source, codebooks))
    raw = sum(part.raw_bytes for part in parts(source))
    assert writer.contains("a") and fetch(reader, "a", cache)
    assert raw / size > 1.4 and values.size("a") == size
    assert writer.counters == {"puts": 1, "raw_bytes": raw, "stored_bytes": size}
    assert reader.counters == {"misses": 1, "hits": 1}
    values.remove("a")
    assert not reader.contains("a")


def test_old_values_stay_readable_after_a_rotation(values, source, cache, codebooks):
    writer = CacheStore(values, codebooks)
    writer.put("old", parts(source, codebooks))
    rotated = calibrate(cache)
    assert not {codebook.hash for codebook in rotated} & {codebook.hash for codebook in codebooks}
    writer.rotate(rotated)
    writer.put("new", parts(source, rotated))
    writer.put("late", parts(source, codebooks))  # parts that were made before the rotation
    # One that has never seen any codebooks, and one that knows only the new ones.
    for reader in (CacheStore(values), CacheStore(values, rotated)):
        assert all(fetch(reader, key, cache) for key in ("old", "new", "late"))


def test_a_set_of_codebooks_is_stored_once(source, codebooks):
    values = DictValues()
    for name in "abc":
        CacheStore(values, codebooks).put(name, parts(source, codebooks))
    sets = [key for key in values.values if "codebooks" in key]
    assert len(sets) == 1 and values.values[sets[0]] == codebooks.to_bytes()


def test_a_store_that_was_emptied_gets_the_codebooks_again(source, cache, codebooks):
    values = DictValues()
    store = CacheStore(values, codebooks)
    store.put("a", parts(source, codebooks))
    values.values.clear()
    store.put("a", parts(source, codebooks))
    assert fetch(CacheStore(values), "a", cache)


def test_lost_or_damaged_codebooks_are_a_miss(source, cache, codebooks):
    values = DictValues()
    CacheStore(values, codebooks).put("a", parts(source, codebooks))
    [key] = [key for key in values.values if "codebooks" in key]
    good = values.values[key]
    for bad in (None, good[:-1], good[:100] + b"?" + good[101:]):
        values.values.pop(key, None)
        if bad is not None:
            values.values[key] = bad
        reader = CacheStore(values)
        assert not fetch(reader, "a", cache)
        assert reader.counters["missing_codebooks"] == 1 and key not in values.values
    values.values[key] = good
    assert fetch(CacheStore(values), "a", cache)


def test_prefixes_keep_models_apart(source, cache, codebooks):
    values = DictValues()
    CacheStore(values, codebooks, prefix="one/").put("a", parts(source, codebooks))
    assert not CacheStore(values, codebooks, prefix="two/").contains("a")
    assert all(key.startswith("one/") for key in values.values)


def test_every_damaged_byte_is_found(source, cache, codebooks):
    values = DictValues()
    store = CacheStore(values, codebooks, StoreOptions(breaker=1000))
    size = store.put("a", parts(source, codebooks))
    good = values.values["a"]
    for position in [*range(64), *np.random.default_rng(1).integers(64, size, 100)]:
        bad = bytearray(good)
        bad[position] ^= 0x04
        values.values["a"] = bytes(bad)
        try:
            found = fetch(store, "a", cache)
        except (BadValue, SplitzipError):
            assert "a" not in values.values, "a damaged value stays in the way of a good one"
        else:
            assert 16 <= position < 48 and not found, "only the name of the codebooks can be wrong without a damage"
    values.values["a"] = good[:-1]
    with pytest.raises(BadValue):
        fetch(store, "a", cache)
    values.values["a"] = good[:20]
    with pytest.raises(BadValue):
        fetch(store, "a", cache)
    values.values["a"] = good
    assert fetch(store, "a", cache)


def test_a_value_under_another_key_is_found(source, cache, codebooks):
    values = DictValues()
    store = CacheStore(values, codebooks)
    store.put("a", parts(source, codebooks))
    values.values["b"] = values.values["a"]
    with pytest.raises(SplitzipError):
        fetch(store, "b", cache)


def test_other_tensors_than_those_that_are_there(source, cache, codebooks):
    values = DictValues()
    store = CacheStore(values, codebooks)
    store.put("a", parts(source, codebooks))
    pool = Pool(cache, 16, seed=1)
    for wrong in (parts(pool)[1:], parts(pool)[::-1]):
        with pytest.raises(GeometryMismatch):
            store.get("a", wrong)
    assert store.contains("a"), "what is sound stays"
    stranger = Calibration()
    stranger.add("x", Layout(np.ones((4, 64), np.float16), "token,dim"))
    with pytest.raises(ValueError, match="no set of codebooks"):
        array = np.ones((4, 64), np.float16)
        store.put("b", [Part(array, "token,dim", key=0, codebook=stranger.finish().find("x"))])


def coded(values, key):
    return any(Frame(values.values[key][64:]).codebook_hashes())


def test_kill_switch(monkeypatch, source, cache, codebooks):
    values = DictValues()
    CacheStore(values, codebooks).put("coded", parts(source, codebooks))
    monkeypatch.setenv("SPLITZIP_RAW", "1")
    off = CacheStore(values, codebooks)
    off.put("raw", parts(source, codebooks))
    assert coded(values, "coded") and not coded(values, "raw")
    assert fetch(off, "coded", cache) and fetch(off, "raw", cache)


def test_breaker(source, cache, codebooks):
    values = DictValues()
    store = CacheStore(values, codebooks, StoreOptions(breaker=3))
    for _ in range(3):
        store.put("a", parts(source, codebooks))
        assert coded(values, "a") and store.coding
        values.values["a"] = values.values["a"][:-50] + bytes(50)
        with pytest.raises(SplitzipError):
            fetch(store, "a", cache)
    assert store.counters["damaged_values"] == 3
    store.put("a", parts(source, codebooks))
    assert not coded(values, "a") and fetch(store, "a", cache)


def test_shadow_mode(monkeypatch, source, cache, codebooks):
    values = DictValues()
    store = CacheStore(values, codebooks, StoreOptions(shadow=2))
    checked = []
    real = cache_store.decodes_to_itself
    monkeypatch.setattr(cache_store, "decodes_to_itself", lambda *x: checked.append(real(*x)) or checked[-1])
    for name in "abcd":
        store.put(name, parts(source, codebooks))
    assert checked == [True, True]
    monkeypatch.setattr(cache_store, "decodes_to_itself", lambda *x: False)
    store.put("e", parts(source, codebooks))
    assert not coded(values, "e") and not store.coding and store.counters["shadow_mismatches"] == 1
    assert fetch(CacheStore(values), "e", cache)


def test_staging_is_capped(source, codebooks):
    raw = sum(part.raw_bytes for part in parts(source))
    with pytest.raises(StoreError, match="staging_bytes"):
        CacheStore(DictValues(), codebooks, StoreOptions(staging_bytes=raw // 2)).put("a", parts(source, codebooks))

    class Slow(DictValues):
        at_once = most = 0
        inside = threading.Lock()

        def put(self, key, value, *, keep=False):
            if "codebooks" not in key:
                with self.inside:
                    Slow.at_once += 1
                    Slow.most = max(Slow.most, Slow.at_once)
                threading.Event().wait(0.05)
                with self.inside:
                    Slow.at_once -= 1
            super().put(key, value)

    store = CacheStore(Slow(), codebooks, StoreOptions(staging_bytes=int(2.9 * raw)))
    threads = [threading.Thread(target=store.put, args=(str(n), parts(source, codebooks))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.counters["puts"] == 6 and Slow.most == 2


def test_keys_of_files(tmp_path):
    values = FileValues(tmp_path)
    for key in ("a/../b", ".", "..", "ä", ""):
        values.put(key, memoryview(key.encode() + b"!"))
        assert values.get(key) == key.encode() + b"!"
    assert all(path.parent == tmp_path for path in tmp_path.rglob("*")) and len(list(tmp_path.iterdir())) == 5
    with pytest.raises(ValueError, match="too long"):
        values.put("x" * 300, memoryview(b""))


def test_options():
    for wrong in ({"staging_bytes": 1}, {"breaker": 0}, {"shadow": -1}):
        with pytest.raises(ValueError):
            StoreOptions(**wrong)


def objects(cache):
    """As LMCache has them: [K and V, layer, token, heads and dim]."""
    rows = [tensor.values.reshape(len(tensor.values), -1) for tensor in cache]
    return np.stack([np.stack(rows[kind::2]) for kind in (0, 1)])


def test_codebooks_that_are_learned(tmp_path, cache):
    whole = objects(cache).view(ml_dtypes.bfloat16)
    file = tmp_path / "books" / "model.szcb"
    values = DictValues()
    store = CacheStore(values)
    learner = Learner(store, 100, file)
    for number, first in enumerate((0, 64, 128)):
        tensors = Tensors([whole[:, :, first : first + 64].copy()])
        learner.see(tensors.layouts(), tensors.tokens)
        store.put(str(number), tensors.parts(learner.find))
    assert not coded(values, "0") and coded(values, "1") and coded(values, "2")
    # Another process has them from the file, and one without the file reads what was stored.
    assert Learner(CacheStore(values), 100, file).done
    back = np.zeros_like(whole[:, :, :64])
    for number, first in enumerate((0, 64, 128)):
        assert CacheStore(values).get(str(number), Tensors([back]).parts())
        assert np.array_equal(back.view(np.uint16), whole[:, :, first : first + 64].view(np.uint16))


def test_objects_that_codebooks_do_not_fit(cache):
    store = CacheStore(DictValues())
    learner = Learner(store, 1)
    first = Tensors([objects(cache).view(ml_dtypes.bfloat16)])
    learner.see(first.layouts(), first.tokens)
    assert all(part.tensor.codebook for part in first.parts(learner.find))
    narrow = np.arange(4 * 8 * 16, dtype=np.uint16).reshape(2, 2, 8, 16).view(ml_dtypes.bfloat16)
    half, bytes_of_any_shape = narrow.view(np.float16), np.arange(7, dtype=np.int64)
    for array in (narrow, half, bytes_of_any_shape):
        parts = Tensors([array]).parts(learner.find)
        assert not any(part.tensor.codebook for part in parts)
        store.put("a", parts)
        back = np.zeros_like(array)
        assert store.get("a", Tensors([back]).parts()) and back.tobytes() == array.tobytes()
    with pytest.raises(TypeError, match="in one piece"):
        Tensors([objects(cache).transpose(1, 0, 3, 2)[:, :, ::2]])


def test_addresses(tmp_path):
    assert isinstance(open_values(f"file://{tmp_path}/a%20b"), FileValues) and (tmp_path / "a b").is_dir()
    assert isinstance(open_values("memory:"), DictValues)
    for wrong in ("", "file:relative", "ftp://x/y", "mooncake://127.0.0.1:9?no=1", "mooncake://h:1?segment_bytes=x"):
        with pytest.raises(StoreError):
            open_values(wrong)
