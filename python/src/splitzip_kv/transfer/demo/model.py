# SPDX-License-Identifier: Apache-2.0
"""The processes of a model that is served in two places: one computes the cache of a prompt, the other one goes on
from it.

The model is a Hugging Face one, and greedy: what is compared is that the tokens are the same. Its cache is copied from
and to paged pools, which an inference engine's attention uses as they are; the copies are told apart from the
transfer.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from ... import CodebookSet
from .. import Part, Receiver, Sender
from .engines import make_engine
from .sending import options, routes_of, send_all, spans

PAGE_TOKENS = 16


class Model:
    """The model and a pool for the cache of one prompt: pages of 16 tokens, a quarter more than needed, in random
    order."""

    def __init__(self, settings: dict[str, Any]) -> None:
        on_gpu = settings["device"] == "cuda" or (settings["device"] == "auto" and torch.cuda.is_available())
        self.device = torch.device("cuda", settings["gpu"]) if on_gpu else torch.device("cpu")
        torch.manual_seed(0)
        if on_gpu:
            torch.cuda.set_device(self.device)
        self.model = (
            AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.bfloat16).eval().to(self.device)
        )
        ids = AutoTokenizer.from_pretrained(settings["model"])(Path(settings["text"]).read_text("utf-8")).input_ids
        self.ids = torch.tensor([ids[: settings["most_tokens"]]], device=self.device)
        with torch.inference_mode():  # what is loaded by the first calls is in no time that is taken
            cache = self.model(self.ids[:, :1], use_cache=True).past_key_values
            self.model(self.ids[:, :1], past_key_values=cache)
        self.codebooks = CodebookSet.load(settings["codebook"])
        config = self.model.config.get_text_config()
        heads = config.num_key_value_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        count = -(-settings["most_tokens"] // PAGE_TOKENS)
        generator = torch.Generator().manual_seed(settings["seed"])
        self.pages = torch.randperm(count + count // 4 + 1, generator=generator)[:count].to(self.device)
        self.pools = torch.full(
            (config.num_hidden_layers, 2, count + count // 4 + 1, PAGE_TOKENS, heads, dim),
            float("nan"),
            dtype=torch.bfloat16,
            device=self.device,
        )
        self.token_bytes = self.pools[:, :, 0, 0].numel() * 2
        self.about = {
            "pid": os.getpid(),
            "device": torch.cuda.get_device_name(self.device) if on_gpu else "CPU",
            "text_tokens": len(ids),
            "token_bytes": self.token_bytes,
            "layers": config.num_hidden_layers,
            "without_codebook": sum(self.codebooks.find(name) is None for name in self.names()),
        }

    def names(self) -> list[str]:
        return [f"layers.{layer}.{kind}" for layer in range(len(self.pools)) for kind in "kv"]

    def parts(self, tokens: int, coded: bool = False) -> list[Part]:
        self.wait()  # the pools are written on torch's stream
        pages = self.pages[: -(-tokens // PAGE_TOKENS)].tolist()
        return [
            Part(
                self.pools[number // 2, number % 2],
                "page,token,head,dim",
                key=number,
                pages=pages,
                tokens=tokens,
                codebook=self.codebooks.find(name) if coded else None,
            )
            for number, name in enumerate(self.names())
        ]

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def clock(self) -> float:
        self.wait()
        return time.monotonic()

    def from_pages(self, tokens: int) -> DynamicCache:
        cache = DynamicCache()
        pages = self.pages[: -(-tokens // PAGE_TOKENS)]
        for number, pool in enumerate(self.pools):
            keys, values = (place[pages].flatten(0, 1)[:tokens].transpose(0, 1)[None].contiguous() for place in pool)
            cache.update(keys, values, number)
        return cache

    @torch.inference_mode()
    def next_tokens(self, cache: DynamicCache, first: int, count: int) -> dict[str, Any]:
        """Greedy tokens after `first`, which is not in the cache yet, and what the first step took."""
        tokens, seconds = [first], []
        for _ in range(count):
            begin = self.clock()
            step = torch.tensor([[tokens[-1]]], device=self.device)
            logits = self.model(step, past_key_values=cache, use_cache=True).logits
            tokens.append(int(logits[0, -1].argmax()))
            seconds.append(self.clock() - begin)
        return {"tokens": tokens, "first_step_seconds": seconds[0], "step_seconds": sorted(seconds)[len(seconds) // 2]}


class Prefill(Model):
    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self.sender = Sender(
            make_engine(settings, sends=True), self.codebooks, options(settings, self.device.type == "cuda")
        )

    @torch.inference_mode()
    def prefill(self, tokens: int) -> dict[str, Any]:
        """Compute the cache and the first token, and put the cache into its pages."""
        begin = self.clock()
        found = self.model(self.ids[:, :tokens], use_cache=True, logits_to_keep=1)
        self.first = int(found.logits[0, -1].argmax())
        computed = self.clock()
        self.tokens = tokens
        self.pools.fill_(float("nan"))
        pages = self.pages[: -(-tokens // PAGE_TOKENS)]
        for layer, pool in zip(found.past_key_values.layers, self.pools, strict=True):
            for values, place in zip((layer.keys, layer.values), pool, strict=True):
                rows = torch.zeros((len(pages) * PAGE_TOKENS, *place.shape[2:]), dtype=place.dtype, device=self.device)
                rows[:tokens] = values[0].transpose(0, 1)
                place[pages] = rows.view(-1, PAGE_TOKENS, *place.shape[2:])
        return {"first": self.first, "seconds": computed - begin, "into_pages_seconds": self.clock() - computed}

    def send(self, name: str, address: str, tokens: int, coded: bool) -> dict[str, Any]:
        return send_all(self.sender, address, name, [self.parts(tokens, coded)])

    def go_on(self, count: int) -> dict[str, Any]:
        """Without a transfer."""
        return self.next_tokens(self.from_pages(self.tokens), self.first, count)

    def routes(self) -> dict[str, Any]:
        return routes_of(self.sender)

    def close(self) -> None:
        self.sender.close()


class Decode(Model):
    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self.receiver = Receiver(
            make_engine(settings, sends=False), self.codebooks, options(settings, self.device.type == "cuda")
        )
        self.about["address"] = self.receiver.address

    def expect(self, name: str, tokens: int) -> dict[str, Any]:
        self.pools.fill_(float("nan"))
        self.tokens = tokens
        self.request = self.receiver.expect(name, self.parts(tokens))
        return {}

    def arrived(self) -> dict[str, Any]:
        return {"decode": spans(self.request.wait().decode)}

    def go_on(self, first: int, count: int) -> dict[str, Any]:
        """From the cache that has arrived."""
        begin = self.clock()
        cache = self.from_pages(self.tokens)
        return {"from_pages_seconds": self.clock() - begin, **self.next_tokens(cache, first, count)}

    def close(self) -> None:
        self.receiver.close()
