# SPDX-License-Identifier: Apache-2.0
"""The two sides of the connector for vLLM without vLLM: what is asked of the store, loaded, saved and held."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from conftest import free_port
from splitzip_kv import ElementType
from splitzip_kv.integrations.blocks import Blocks, Geometry, block_keys, layer_memory
from splitzip_kv.integrations.vllm_scheduler import SchedulerSide
from splitzip_kv.integrations.vllm_settings import Load, Settings, Step
from splitzip_kv.integrations.vllm_worker import WorkerSide
from transfer_cases import values

BLOCK = 16


def settings(role="kv_both", cache_dtype="auto", **extra):
    return Settings(
        SimpleNamespace(
            kv_transfer_config=SimpleNamespace(kv_role=role, kv_connector_extra_config=extra),
            parallel_config=SimpleNamespace(rank=0, world_size=1),
            model_config=SimpleNamespace(model="a/model", revision=None, dtype="torch.bfloat16"),
            cache_config=SimpleNamespace(block_size=BLOCK, cache_dtype=cache_dtype),
        )
    )


def request(name, tokens, computed=0, **params):
    return SimpleNamespace(
        request_id=name,
        prompt_token_ids=tokens,
        num_prompt_tokens=len(tokens),
        num_computed_tokens=computed,
        cache_salt=None,
        lora_request=None,
        mm_features=[],
        kv_transfer_params=params or None,
    )


def scheduled(new=(), cached=(), tokens=None):
    """What vLLM's scheduler says of a step: new (name, blocks, computed) and cached (name, new blocks, computed)."""
    return SimpleNamespace(
        scheduled_new_reqs=[
            SimpleNamespace(req_id=name, block_ids=(blocks,), num_computed_tokens=computed)
            for name, blocks, computed in new
        ],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[name for name, _, _ in cached],
            new_block_ids=[None if blocks is None else (blocks,) for _, blocks, _ in cached],
            num_computed_tokens=[computed for _, _, computed in cached],
            resumed_req_ids=set(),
        ),
        num_scheduled_tokens=tokens or {},
    )


PROMPT = list(range(70))  # four blocks and six tokens
KEYS = block_keys(PROMPT, BLOCK, "\0")


@pytest.fixture
def address(tmp_path):
    return f"file://{tmp_path}/store"


def make_blocks(seed):
    rng = np.random.default_rng(seed)
    arrays = [values(rng, 12 * 3 * BLOCK, 128).reshape(12, 3, BLOCK, 128) for _ in range(2)]
    return arrays, Blocks([layer_memory(array, Geometry(BLOCK, 3, 64, 64)) for array in arrays], BLOCK)


def run(worker, step):
    """One step of the engine, and its loads to their end."""
    worker.start(step)
    worker.save(step)
    done, deadline = set(), time.monotonic() + 10
    while done != {load.request for load in step.loads} and time.monotonic() < deadline:
        done |= worker.finished()[1] or set()
    return worker.failed_blocks()


@pytest.fixture
def stored(address):
    """A server's memory, whose blocks 5, 3, 9, 1 of PROMPT are in the store, and its scheduler."""
    arrays, blocks = make_blocks(1)
    scheduler, worker = SchedulerSide(settings(store=address)), WorkerSide(settings(store=address, learn_tokens=BLOCK))
    worker.register(blocks)
    assert scheduler.matched(request("r", PROMPT), 0) == (0, False)
    # Prefilled in two chunks: 40 tokens, then 30.
    first = scheduler.step(scheduled(new=[("r", [5, 3, 9], 0)], tokens={"r": 40}))
    assert first.saves == [(KEYS[0], 5), (KEYS[1], 3)]
    second = scheduler.step(scheduled(cached=[("r", [1, 7], 40)], tokens={"r": 30}))
    assert second.saves == [(KEYS[2], 9), (KEYS[3], 1)]
    # Generated tokens fill no block of the prompt.
    assert scheduler.step(scheduled(cached=[("r", None, 70)], tokens={"r": 1})).saves == []
    for step in (first, second):
        assert run(worker, step) == set()
    worker.close()
    counts = worker.counts()
    assert counts["stored_blocks"] == 4 and counts["stored_raw_bytes"] > 1.3 * counts["stored_bytes"]
    return arrays, scheduler


def bits(array):
    return np.ascontiguousarray(array).view(np.uint16)


def test_another_server_loads_them(stored, address):
    arrays, _ = stored
    scheduler, worker = SchedulerSide(settings(store=address)), WorkerSide(settings(store=address))
    others, blocks = make_blocks(2)
    before = [bits(array).copy() for array in others]
    worker.register(blocks)
    longer = [*PROMPT, 1, 2, 3]
    assert scheduler.matched(request("a", PROMPT[:64]), 0) == (48, True), "the last token is always computed"
    assert scheduler.matched(request("b", longer), 16) == (48, True)
    assert scheduler.matched(request("c", [*PROMPT[:20], 99, *PROMPT[21:]]), 0) == (16, True)
    assert scheduler.matched(request("d", PROMPT), 7) == (0, False)
    one = request("e", longer)
    assert scheduler.matched(one, 0) == (64, True)
    scheduler.allocated(one, [2, 4, 6, 8, 10], 64)
    step = scheduler.step(scheduled())
    assert [(load.blocks, load.keys) for load in step.loads] == [([2, 4, 6, 8], KEYS)]
    assert run(worker, step) == set()
    for array, other, old in zip(arrays, others, before, strict=True):
        assert np.array_equal(bits(other)[[2, 4, 6, 8]], bits(array)[[5, 3, 9, 1]])
        untouched = np.setdiff1d(np.arange(12), [2, 4, 6, 8])
        assert np.array_equal(bits(other)[untouched], old[untouched])
    # What was loaded is not saved again.
    assert scheduler.step(scheduled(new=[("e", [2, 4, 6, 8, 10], 64)], tokens={"e": 9})).saves == []
    worker.close()


def test_what_cannot_be_loaded_is_reported_and_not_asked_for_again(stored, address, tmp_path):
    scheduler, worker = SchedulerSide(settings(store=address)), WorkerSide(settings(store=address))
    worker.register(make_blocks(2)[1])
    [third] = [path for path in (tmp_path / "store").iterdir() if KEYS[2] in path.name]
    data = bytearray(third.read_bytes())
    data[len(data) // 2] ^= 2
    third.write_bytes(data)
    one = request("e", PROMPT)
    assert scheduler.matched(one, 0) == (64, True)
    scheduler.allocated(one, [2, 4, 6, 8, 10], 64)
    assert run(worker, scheduler.step(scheduled())) == {6, 8}
    assert scheduler.matched(one, 32) == (0, False)
    # It is computed, and stored anew.
    saves = scheduler.step(scheduled(new=[("e", [2, 4, 6, 8, 10], 32)], tokens={"e": 38})).saves
    assert saves == [(KEYS[2], 6), (KEYS[3], 8)]
    assert not third.exists()
    run(worker, Step(saves=saves))
    worker.close()
    assert third.exists()
    scheduler.finished(one, [2, 4, 6, 8, 10])
    assert scheduler.matched(request("f", PROMPT), 0) == (64, True)


def test_a_consumer_saves_nothing(address):
    scheduler = SchedulerSide(settings("kv_consumer", store=address))
    scheduler.matched(request("r", PROMPT), 0)
    assert scheduler.step(scheduled(new=[("r", [5, 3, 9, 1, 7], 0)], tokens={"r": 70})).saves == []


def test_keys_tell_adapters_images_and_tenants_apart(address):
    scheduler = SchedulerSide(settings(store=address))
    made = []
    for number, changes in enumerate(
        [
            {},
            {"cache_salt": "tenant"},
            {"lora_request": SimpleNamespace(lora_name="adapter")},
            {"mm_features": [SimpleNamespace(identifier="image", mm_position=SimpleNamespace(offset=3))]},
        ]
    ):
        one = request(str(number), PROMPT)
        vars(one).update(changes)
        made.append(tuple(scheduler._keys_of(one)))
    assert len(set(made)) == 4 and made[0] == tuple(KEYS)


def test_prefill_and_decode_scheduling():
    prefill = SchedulerSide(settings("kv_producer", port=18100))
    decode = SchedulerSide(settings("kv_consumer"))
    one = request("p1", PROMPT, computed=70, do_remote_decode=True)
    held, params = prefill.finished(one, [5, 3, 9, 1, 7])
    assert held and prefill.held == {"p1"} and prefill.step(scheduled()).held == [("p1", [5, 3, 9, 1, 7], 70)]
    assert prefill.step(scheduled()).held == []
    assert prefill.finished(request("p2", PROMPT, computed=70), [5]) == (False, None)
    assert prefill.finished(request("p3", PROMPT, computed=40, do_remote_decode=True), [5]) == (False, None)

    asked = request("d1", PROMPT, **params)
    assert decode.matched(asked, 16) == (54, True)
    assert decode.matched(asked, 0) == (70, True)
    decode.allocated(asked, [2, 4, 6, 8, 10], 70)
    [load] = decode.step(scheduled()).loads
    assert load == Load("d1", [2, 4, 6, 8, 10], address="127.0.0.1:18100", remote_request="p1", tokens=70)
    assert decode.matched(asked, 0) == (0, False)
    for wrong in ({}, {"splitzip_tokens": 69}, {"splitzip_address": 7}, {"do_remote_prefill": False}):
        bad = request("d2", PROMPT, **({**params, **wrong} if wrong else {}))
        assert decode.matched(bad, 0) == (0, False)


class Launched:
    """The fence of an engine whose work is done when somebody waits for it, or at the end."""

    def __init__(self):
        self.work = []

    def __call__(self):
        return self.finish

    def finish(self):
        while self.work:
            self.work.pop()()


def test_blocks_are_saved_when_they_are_written(address):
    engine, (arrays, blocks) = Launched(), make_blocks(1)
    computed, _ = make_blocks(2)
    worker = WorkerSide(settings(store=address))
    worker.register(blocks, engine)
    engine.work = [lambda: [np.copyto(array[5], new[5]) for array, new in zip(arrays, computed, strict=True)]]
    worker.save(Step(saves=[(KEYS[0], 5)]))
    worker.close()
    reader, (others, blocks) = WorkerSide(settings(store=address)), make_blocks(3)
    reader.register(blocks)
    assert run(reader, Step(loads=[Load("r", [2], keys=[KEYS[0]])])) == set()
    reader.close()
    assert all(np.array_equal(bits(other[2]), bits(new[5])) for other, new in zip(others, computed, strict=True))


def test_blocks_are_loaded_when_their_last_owner_has_left(stored, address):
    arrays, _ = stored
    engine, (others, blocks) = Launched(), make_blocks(2)
    worker = WorkerSide(settings(store=address))
    worker.register(blocks, engine)
    engine.work = [lambda: [array.fill(7) for array in others]]
    assert run(worker, Step(loads=[Load("r", [2, 4], keys=KEYS[:2])])) == set()
    worker.close()
    engine.finish()
    for array, other in zip(arrays, others, strict=True):
        assert np.array_equal(bits(other[[2, 4]]), bits(array[[5, 3]]))


def test_a_cache_is_sent_when_it_is_complete():
    engine, (arrays, blocks) = Launched(), make_blocks(1)
    computed, _ = make_blocks(2)
    others, targets = make_blocks(3)
    port = free_port()
    prefill, decode = WorkerSide(settings("kv_producer", port=port)), WorkerSide(settings("kv_consumer"))
    prefill.register(blocks, engine)
    decode.register(targets)
    engine.work = [lambda: [np.copyto(array, new) for array, new in zip(arrays, computed, strict=True)]]
    prefill.start(Step(held=[("p", [5, 3], 30)]))
    load = Load("d", [2, 4], address=f"127.0.0.1:{port}", remote_request="p", tokens=30)
    assert run(decode, Step(loads=[load])) == set()
    for new, other in zip(computed, others, strict=True):
        assert np.array_equal(bits(other[2]), bits(new[5])) and np.array_equal(
            bits(other[4][:, :14]), bits(new[3][:, :14])
        )
    for worker in (prefill, decode):
        worker.close()


def test_a_device_that_fails_fails_the_load(address):
    worker = WorkerSide(settings(store=address))

    def broken():
        raise RuntimeError("an illegal memory access was encountered")

    worker.register(make_blocks(1)[1], lambda: broken)
    assert run(worker, Step(loads=[Load("r", [2, 4], keys=KEYS[:2])])) == {2, 4}
    worker.close()


def test_what_bytes_are():
    assert settings(store="x").bytes_are is ElementType.BYTES
    config = {"store": "x"}
    for cache_dtype, type in (("fp8", "FP8_E4M3"), ("fp8_e4m3", "FP8_E4M3"), ("fp8_e5m2", "FP8_E5M2")):
        assert settings(cache_dtype=cache_dtype, **config).bytes_are is ElementType[type]
    array = np.zeros((4, 3, BLOCK, 128), np.uint8)
    blocks = Blocks([layer_memory(array, Geometry(BLOCK, 3, 64, 64))], BLOCK, ElementType.FP8_E4M3)
    assert {part.tensor.type for part in blocks.parts([0])} == {ElementType.FP8_E4M3}


def test_settings_that_make_no_sense(address):
    with pytest.raises(ValueError, match="no such setting: strore"):
        settings(strore=address)
    with pytest.raises(ValueError, match="port"):
        settings("kv_producer")
    with pytest.raises(ValueError, match="GPUs"):
        WorkerSide(settings("kv_consumer", protocol="cuda_peer")).register(make_blocks(1)[1])
    assert settings(store=address, staging_bytes=1 << 20).options == {"staging_bytes": 1 << 20}
