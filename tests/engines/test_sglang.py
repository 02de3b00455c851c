# SPDX-License-Identifier: Apache-2.0
"""Run by tools/test_engine.sh sglang: SGLang's servers with SmolLM2-135M, prefill to decode with our plugin."""

import os
import urllib.error

import pytest

from sglang_cases import CHUNK, CODEBOOKS, Server, disaggregated, prompts, servers

PROMPTS = prompts(int(os.environ.get("SPLITZIP_PROMPTS", "20")))
RAW_TOKEN = 30 * 2 * 192 * 2
SETTINGS = {"codebooks": str(CODEBOOKS), "timeout": 20.0, "shadow": 4}


@pytest.fixture(scope="module")
def answers():
    """Of a single server that is not disaggregated; and how many tokens each prompt has."""
    with servers(Server()) as [server]:
        given = [server.ask(prompt) for prompt in PROMPTS]
        return [one["output_ids"] for one in given], [one["meta_info"]["prompt_tokens"] for one in given]


def difference(after: dict, before: dict) -> dict:
    return {name.removeprefix("splitzip_"): value - before.get(name, 0) for name, value in after.items() if name.startswith("splitzip_")}


def test_prefill_and_decode(answers, tmp_path):
    expected, tokens = answers
    fault = tmp_path / "fault"
    with servers(Server("prefill", SETTINGS, SPLITZIP_FAULT=str(fault)), Server("decode", SETTINGS)) as (
        prefill,
        decode,
    ):
        assert [disaggregated(prefill, decode, prompt) for prompt in PROMPTS] == expected
        sent, received = difference(prefill.metrics(), {}), difference(decode.metrics(), {})
        print(sent, received)
        # Every token of every prompt, in chunks as they were computed.
        assert sent["sent_pieces"] == sum(-(-count // CHUNK) for count in tokens) > len(PROMPTS)
        assert sent["sent_raw_bytes"] == received["received_raw_bytes"] == sum(tokens) * RAW_TOKEN
        assert sent["sent_bytes"] == received["received_bytes"]
        assert sent["sent_raw_bytes"] / sent["sent_bytes"] > 1.4
        assert not any(sent.get(name, 0) for name in ("failed_pieces", "untaken_pieces", "shadow_mismatches"))

        # What is sent is what is used: another cache gives another text.
        fault.write_text("scramble")
        wrong = [disaggregated(prefill, decode, prompt) for prompt in PROMPTS[:6]]
        assert not any(a == b for a, b in zip(wrong, expected, strict=False))

        # A link that damages everything: the request fails, the servers and the next request do not.
        fault.write_text("damage")
        for prompt in PROMPTS[:2]:
            with pytest.raises(urllib.error.HTTPError) as caught:
                disaggregated(prefill, decode, prompt)
            assert caught.value.code == 500
        fault.unlink()
        assert difference(prefill.metrics(), {})["failed_pieces"] == 2
        assert [disaggregated(prefill, decode, prompt) for prompt in PROMPTS[:3]] == expected[:3]

        # A decode server without the plugin gets what SGLang sends, from the same prefill server.
        before = prefill.metrics()
        with servers(Server("decode")) as [plain]:
            assert [disaggregated(prefill, plain, prompt) for prompt in PROMPTS[:4]] == expected[:4]
        assert not any(difference(prefill.metrics(), before).values())


def test_a_prefill_server_without_the_plugin(answers):
    expected, _ = answers
    with servers(Server("prefill"), Server("decode", SETTINGS)) as (prefill, decode):
        assert [disaggregated(prefill, decode, prompt) for prompt in PROMPTS[:4]] == expected[:4]
        assert not any(difference(decode.metrics(), {}).values())


def test_the_kill_switch(answers):
    expected, _ = answers
    with servers(Server("prefill", SETTINGS, SPLITZIP_RAW="1"), Server("decode", SETTINGS)) as (prefill, decode):
        assert [disaggregated(prefill, decode, prompt) for prompt in PROMPTS[:2]] == expected[:2]
        assert not any(difference(decode.metrics(), {}).values())
