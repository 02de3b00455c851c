# SPDX-License-Identifier: Apache-2.0
"""Run by tools/test_engine.sh vllm: vLLM's API servers with SmolLM2-135M, a shared store, and prefill to decode."""

import os
import shutil
import urllib.error
from pathlib import Path

import numpy as np
import pytest

from splitzip_kv import CodebookSet, ElementType
from splitzip_kv.store import CacheStore, FileValues
from splitzip_kv.transfer import Part
from vllm_cases import BLOCK, CODEBOOKS, connector, disaggregated, free_port, prompts, servers

PROMPTS = prompts(int(os.environ.get("SPLITZIP_PROMPTS", "20")))
RAW_BLOCK = 30 * 2 * BLOCK * 192 * 2


def values_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.value") if "codebooks" not in path.name)


@pytest.fixture(scope="module")
def answers():
    """Of a single server without a connector."""
    with servers(None) as [server]:
        return [server.tokens(prompt) for prompt in PROMPTS]


def block_parts(arrays: list[np.ndarray], books: CodebookSet) -> list[Part]:
    return [
        Part(
            array,
            "token,head,dim",
            key=number,
            type=ElementType.BF16,
            codebook=books.find(f"layers.{number // 2}.{'kv'[number % 2]}"),
        )
        for number, array in enumerate(arrays)
    ]


def scramble(folder: Path) -> None:
    """Another cache in every block, perfectly encoded: V of its tokens in reverse order. (With K in the same order
    attention would give the same.)"""
    books = CodebookSet.load(CODEBOOKS)
    for path in values_of(folder):
        prefix, _, key = path.name.removesuffix(".value").replace("%2F", "/").rpartition("/")
        store = CacheStore(FileValues(folder), books, prefix=f"{prefix}/")
        arrays = [np.zeros((BLOCK, 3, 64), np.uint16) for _ in range(60)]
        assert store.get(key, block_parts(arrays, books))
        for value in arrays[1::2]:
            value[:] = value[::-1].copy()
        store.put(key, block_parts(arrays, books))


def test_prefill_and_decode(answers, tmp_path, monkeypatch):
    fault = tmp_path / "fault"
    settings = {"codebooks": str(CODEBOOKS), "timeout": 20.0}
    prefill_settings = connector("kv_producer", module="faulty_connector", port=free_port(), **settings)
    decode_settings = connector("kv_consumer", **settings)
    with servers(prefill_settings, decode_settings, SPLITZIP_FAULT=str(fault)) as (prefill, decode):
        assert [disaggregated(prefill, decode, prompt) for prompt in PROMPTS] == answers
        sent, received = (side.metric(name, len(PROMPTS)) for side, name in ((prefill, "splitzip_sends"), (decode, "splitzip_loads")))
        tokens = received["external_prefix_cache_hits"]
        assert tokens > len(PROMPTS) * 100
        assert received["splitzip_received_raw_bytes"] == tokens * RAW_BLOCK / BLOCK
        assert received["splitzip_received_bytes"] == sent["splitzip_sent_bytes"]
        assert received["splitzip_received_raw_bytes"] / received["splitzip_received_bytes"] > 1.4
        assert received.get("splitzip_failed_blocks", 0) == 0

        # A link that damages everything: the decode server computes what it cannot have.
        fault.touch()
        assert [disaggregated(prefill, decode, prompt) for prompt in PROMPTS[:2]] == answers[:2]
        assert decode.metrics()["splitzip_failed_blocks"] > 0
        fault.unlink()
        assert disaggregated(prefill, decode, PROMPTS[4]) == answers[4]

        # The prefill server dies with a cache that is asked for.
        asked = prefill.ask(PROMPTS[5], 1, {"do_remote_decode": True, "do_remote_prefill": False})
        prefill.kill()
        assert decode.tokens(PROMPTS[5], params=asked["kv_transfer_params"]) == answers[5]
        assert decode.tokens(PROMPTS[6]) == answers[6]
        print({name: count for name, count in decode.metrics().items() if "splitzip" in name})


def test_prefill_and_decode_over_nixl(answers):
    settings = {"codebooks": str(CODEBOOKS), "protocol": "nixl"}
    transfers = connector("kv_producer", port=free_port(), **settings), connector("kv_consumer", **settings)
    with servers(*transfers, UCX_TLS="tcp,self", UCX_NET_DEVICES="lo") as (prefill, decode):
        assert [disaggregated(prefill, decode, prompt) for prompt in PROMPTS[:5]] == answers[:5]
        received = decode.metric("splitzip_loads", 5)
        assert received["splitzip_received_raw_bytes"] / received["splitzip_received_bytes"] > 1.4
        assert received.get("splitzip_failed_blocks", 0) == 0


def test_a_store_that_two_servers_share(answers, tmp_path):
    folder = tmp_path / "store"
    settings = {"store": f"file://{folder}", "codebooks": str(CODEBOOKS), "shadow": 4}
    # The second one fails requests whose cache is damaged, the first one computes it.
    with servers(connector("kv_both", **settings), connector("kv_both", "fail", **settings)) as (first, second):
        assert [first.tokens(prompt) for prompt in PROMPTS] == answers
        assert len(values_of(folder)) >= len(PROMPTS)
        written = first.metric("splitzip_stored_blocks", len(values_of(folder)))
        assert written["splitzip_stored_raw_bytes"] == RAW_BLOCK * len(values_of(folder))
        assert written["splitzip_stored_raw_bytes"] / written["splitzip_stored_bytes"] > 1.4
        assert written["splitzip_stored_bytes"] == sum(path.stat().st_size for path in values_of(folder))
        assert written.get("splitzip_shadow_mismatches", 0) == 0

        assert [second.tokens(prompt) for prompt in PROMPTS] == answers
        read = second.metrics()
        assert read["external_prefix_cache_hits"] == BLOCK * read["splitzip_loaded_blocks"]
        assert read["splitzip_loaded_blocks"] >= len(PROMPTS) and read.get("splitzip_failed_blocks", 0) == 0

        good = tmp_path / "good"
        shutil.copytree(folder, good)

        def damage():
            for path in values_of(folder):
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 8
                path.write_bytes(data)

        # Damage ends in a failed request, or in the right text; and it is gone afterwards.
        damage()
        for prompt in PROMPTS[:2]:
            with pytest.raises(urllib.error.HTTPError) as caught:
                second.tokens(prompt)
            assert caught.value.code == 500
        shutil.rmtree(folder)
        shutil.copytree(good, folder)
        damage()
        assert [first.tokens(prompt) for prompt in PROMPTS[:4]] == answers[:4]
        assert first.metrics()["splitzip_damaged_blocks"] >= 4
        assert [second.tokens(prompt) for prompt in PROMPTS[:4]] == answers[:4]

        # What is loaded is what is used: another cache gives another text.
        shutil.rmtree(folder)
        shutil.copytree(good, folder)
        scramble(folder)
        wrong = [second.tokens(prompt) for prompt in PROMPTS[:6]]
        assert not any(a == b for a, b in zip(wrong, answers, strict=False))
