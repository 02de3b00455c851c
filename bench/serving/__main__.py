# SPDX-License-Identifier: Apache-2.0
"""What prefill and decode take on this GPU, alone and with transfers of KV caches beside them.

    python bench/serving times --json times.json                  # layers of Llama-3-8B, Qwen3-32B and Qwen3-30B-A3B
    python bench/serving interference --library libsplitzip.so --json interference.json

Models have their shapes and random weights (decoder.py). `times`: one layer of each, times the number of layers, and the matrix
product of the head. `interference`: a whole Llama-3-8B that prefills prompts, then one that decodes, while slices of a cache go
over pinned host memory, raw or encoded, as fast as the link takes them, or encoded at the pace of raw. The codec works on the
repository's sample cache. Needs torch with CUDA.
"""

import argparse
import datetime
import functools
import json
import pathlib
import sys
import time

import torch
from decoder import MODELS, Layer, captured, intervals, rotary, weights
from device_codec import Codec, on_device
from traffic import SLOTS, Raw, Receiving, Sending

DATA = pathlib.Path(__file__).parents[2] / "data" / "smollm2-135m"
BATCHES = (1, 4, 16)
TOKENS = (512, 2048, 8192, 32768, 131072)
MOST_TOKENS = 16384  # of requests that are prefilled together
SUFFIX = 256  # tokens of a prompt that no prefix cache holds
SLICE_TOKENS = 1456  # 32 MiB of the sample cache
MARGIN = 0.01  # of the frames' budgets


def median(values):
    return sorted(values)[len(values) // 2]


def facts():
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "date": datetime.date.today().isoformat(),
    }


def sample_cache():
    """{name: [tokens, channels]} of the sample, as 16-bit words."""
    data = bytearray((DATA / "gsm8k.safetensors").read_bytes())
    size = int.from_bytes(data[:8], "little")
    rows = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = torch.frombuffer(data, dtype=torch.int16, count=(end - begin) // 2, offset=8 + size + begin)
            rows[name] = values.reshape(entry["shape"]).transpose(0, 1).flatten(1).contiguous()
    return rows


# ---- times


@functools.cache
def layer_seconds(layer, batch, tokens):
    x = torch.randn(batch, tokens, layer.model.hidden, device="cuda", dtype=torch.bfloat16)
    cosines, sines = rotary(layer.model, tokens)
    graph = captured(lambda: layer.prefill(x, cosines, sines))
    return median(intervals(graph.replay, 5)) / 1000


def prefill_seconds(layer, batch, tokens):
    """Of one layer and a whole batch, of which as many requests as fit are prefilled together."""
    together = max(1, min(batch, MOST_TOKENS // tokens))
    return layer_seconds(layer, together, tokens) * batch / together


def step_seconds(layer, batch, context, tokens=1):
    """Of one layer and the last `tokens` tokens of each context."""
    m = layer.model
    x = torch.randn(batch, tokens, m.hidden, device="cuda", dtype=torch.bfloat16)
    cosines, sines = (part[-tokens:] for part in rotary(m, context))
    keys, values = (torch.randn(batch, m.kv_heads, context, m.dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    graph = captured(lambda: layer.step(x, cosines, sines, keys, values))
    return median(intervals(graph.replay, 10)) / 1000


def head_seconds(model, batch):
    x, head = torch.randn(batch, model.hidden, device="cuda", dtype=torch.bfloat16), weights(model.vocabulary, model.hidden)
    graph = captured(lambda: torch.nn.functional.linear(x, head).argmax(-1))
    return median(intervals(graph.replay, 20)) / 1000


def times(arguments):
    rows = []
    for model in MODELS:
        layer = Layer(model)
        for batch in BATCHES:
            head = head_seconds(model, batch)
            for tokens in TOKENS:
                if batch * tokens > arguments.most_tokens:
                    continue
                row = {"model": model.name, "batch": batch, "tokens": tokens}
                try:
                    row["prefill_seconds"] = model.layers * prefill_seconds(layer, batch, tokens) + head
                    row["step_seconds"] = model.layers * step_seconds(layer, batch, tokens) + head
                    # Where all but the last tokens of each prompt are in a prefix cache.
                    row["suffix_seconds"] = model.layers * step_seconds(layer, batch, tokens, SUFFIX) + head
                except torch.cuda.OutOfMemoryError as error:
                    row["failure"] = str(error).partition(".")[0]
                rows.append(row)
                print(row, flush=True)
                torch.cuda.empty_cache()
        layer_seconds.cache_clear()
        del layer
    return {"suffix": SUFFIX, "times": rows}


# ---- interference


class Whole:
    """All layers of a model, with weights of their own."""

    def __init__(self, model):
        self.model = model
        self.layers = [Layer(model) for _ in range(model.layers)]

    def prefill(self, tokens):
        x = torch.randn(1, tokens, self.model.hidden, device="cuda", dtype=torch.bfloat16)
        cosines, sines = rotary(self.model, tokens)

        def work():
            y = x
            for layer in self.layers:
                y = layer.prefill(y, cosines, sines)

        return captured(work)

    def step(self, batch, context):
        m = self.model
        x = torch.randn(batch, 1, m.hidden, device="cuda", dtype=torch.bfloat16)
        head = weights(m.vocabulary, m.hidden)
        cosines, sines = (part[-1:] for part in rotary(m, context))
        shape = (m.layers, 2, batch, m.kv_heads, context, m.dim)
        cache = torch.randn(shape, device="cuda", dtype=torch.bfloat16)

        def work():
            y = x
            for layer, (keys, values) in zip(self.layers, cache):
                y = layer.step(y, cosines, sines, keys, values)
            return torch.nn.functional.linear(y, head).argmax(-1)

        return captured(work)


def beside(replay, count, traffic):
    """Milliseconds of each replay, and the raw bytes/s that the traffic moved meanwhile (None without)."""
    if traffic is None:
        return intervals(replay, count), None
    traffic.start()
    try:
        traffic.wait_until_running()
        begin, before = time.monotonic(), traffic.done_bytes
        found = intervals(replay, count, warm=0)
        rate = (traffic.done_bytes - before) / (time.monotonic() - begin)
    finally:
        traffic.stop()
    return found, rate


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def interference(arguments):
    rows, cache, codebooks = [], sample_cache(), (DATA / "wikitext2.szcb").read_bytes()
    whole = Whole(MODELS[0])
    sides = (
        ("prefill", True, whole.prefill(arguments.prompt), arguments.prompt, arguments.prefills, Sending),
        ("decode", False, whole.step(arguments.batch, arguments.context), arguments.batch, arguments.steps, Receiving),
    )
    for side, sending, graph, tokens, count, kind in sides:

        def add(way, traffic, codec_sms=None, pace=None):
            found, rate = beside(graph.replay, count, traffic)
            row = {"side": side, "way": way, "max_sms": codec_sms, "paced": pace is not None, "raw_bytes_per_second": rate}
            row |= {"tokens_per_second": tokens * count / sum(found) * 1000, "count": count}
            row |= {f"p{share}_ms": percentile(found, share / 100) for share in (50, 90, 99)}
            rows.append(row)
            print({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}, flush=True)
            return rate

        add("alone", None)
        slice_bytes = SLICE_TOKENS * sum(2 * values.shape[1] for values in cache.values())
        raw_rate = add("raw", Raw(slice_bytes, sending))
        for max_sms in (8, 16, 0):
            for pace in (None, raw_rate):
                pool = on_device(cache, SLICE_TOKENS)
                codec = Codec(arguments.library, codebooks, pool, SLOTS, max_sms=max_sms, budget_margin=MARGIN)
                add("encoded", kind(codec, pace or 0.0), max_sms, pace)
                codec.close()
        add("alone", None)
    shape = {key: getattr(arguments, key) for key in ("prompt", "batch", "context")}
    return {"interference": rows, "model": MODELS[0].name, **shape, "slice_bytes": slice_bytes}


def main():
    parser = argparse.ArgumentParser(prog="bench/serving", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("times")
    one.add_argument("--most-tokens", type=int, default=524288, help="of all requests of a batch together")
    two = commands.add_parser("interference")
    two.add_argument("--library", type=pathlib.Path, required=True, help="libsplitzip.so, built with CUDA")
    two.add_argument("--prompt", type=int, default=8192, help="tokens of a prompt that is prefilled")
    two.add_argument("--prefills", type=int, default=6)
    two.add_argument("--batch", type=int, default=16, help="requests that are decoded together")
    two.add_argument("--context", type=int, default=4096, help="tokens that each of them has")
    two.add_argument("--steps", type=int, default=200)
    for command in (one, two):
        command.add_argument("--json", type=pathlib.Path, help="write the results there")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench/serving: there is no CUDA device", file=sys.stderr)
        return 77
    with torch.no_grad():
        result = facts() | {"times": times, "interference": interference}[arguments.command](arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
