# SPDX-License-Identifier: Apache-2.0
"""A model served by two processes: one computes the cache of a prompt, the other one answers from it."""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from .engines import add_engine_options, check_engine_options, engine_settings, name_of_link
from .processes import Worker, WorkerFailed
from .runs import median_run, report, summary

SAMPLE = Path("data/smollm2-135m/wikitext2.szcb")
KINDS = {"raw": False, "coded": True}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m splitzip_kv.transfer.demo.generate",
        description="Serve a model by two processes: prefill in one, the KV cache moved raw and encoded, and greedy "
        "decoding in the other; compare the tokens with those of one process, and say what the time to the first token "
        "is made of. Needs torch and transformers.",
    )
    parser.add_argument(
        "model", help="folder of a model in Hugging Face's form (tests/engines/make_model.py makes SmolLM2's)"
    )
    parser.add_argument("text", type=Path, help="UTF-8 text that the prompts are the beginnings of")
    parser.add_argument(
        "--codebook", type=Path, default=SAMPLE, metavar="SET", help=f"*.szcb file for this model (default: {SAMPLE})"
    )
    parser.add_argument(
        "--prompt-tokens",
        type=lambda text: [int(number) for number in text.split(",")],
        default=[512, 2048],
        metavar="N,...",
        help="lengths of the prompts (default: 512,2048)",
    )
    parser.add_argument("--new-tokens", type=int, default=32, help="tokens that are decoded (default: 32)")
    parser.add_argument("--repeat", type=int, default=5, help="transfers of each kind (default: 5)")
    parser.add_argument(
        "--device",
        default="auto",
        choices=("auto", "cpu", "cuda"),
        help="where model and cache are: auto (default: a GPU where there is one), cpu or cuda",
    )
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one transfer (default: 60)")
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of each process that code on the CPU (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_engine_options(parser)
    given = parser.parse_args()
    check_engine_options(parser, given)
    for path in (given.text, given.codebook):
        if not path.is_file():
            parser.error(f"no file {path}")
    if min(*given.prompt_tokens, given.new_tokens, given.repeat) < 1:
        parser.error("--prompt-tokens, --new-tokens and --repeat have to be positive")
    return given


def transfer(prefill: Worker, decode: Worker, address: str, name: str, tokens: int, coded: bool) -> dict[str, Any]:
    decode.ask("expect", name=name, tokens=tokens)
    decode.begin("arrived")
    sent = prefill.ask("send", name=name, address=address, tokens=tokens, coded=coded)
    return summary({**sent, **decode.answer()})


def choose_route(prefill: Worker, decode: Worker, address: str, given: argparse.Namespace) -> None:
    """Move the longest cache until the session has chosen its route."""
    tokens = max(given.prompt_tokens)
    prefill.ask("prefill", tokens=tokens)
    for number in range(12):
        transfer(prefill, decode, address, f"route {number}", tokens, True)
        routes = prefill.ask("routes")
        if routes["chosen"] or len(routes["frames"]) == 1:
            return


def measure(prefill: Worker, decode: Worker, address: str, tokens: int, given: argparse.Namespace) -> dict[str, Any]:
    prefill.ask("prefill", tokens=tokens)  # the first one of a shape loads and tunes
    computed = prefill.ask("prefill", tokens=tokens)
    raw_bytes = tokens * given.token_bytes
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    answers: dict[str, dict[str, Any]] = {}
    for number in range(given.repeat + 1):  # the first one of a length makes tables
        for kind, coded in KINDS.items():
            runs[kind].append(transfer(prefill, decode, address, f"{tokens} {kind} {number}", tokens, coded))
    for kind, coded in KINDS.items():  # once more each, for what is answered from it
        transfer(prefill, decode, address, f"{tokens} {kind}", tokens, coded)
        answers[kind] = decode.ask("go_on", first=computed["first"], count=given.new_tokens)
    alone = prefill.ask("go_on", count=given.new_tokens)
    for kind, answer in answers.items():
        if answer["tokens"] != alone["tokens"]:
            raise WorkerFailed(
                f"{tokens} tokens, {kind}: {answer['tokens']} is not what one process says, {alone['tokens']}"
            )
    return {
        "prompt_tokens": tokens,
        "raw_bytes": raw_bytes,
        "prefill": computed,
        "alone": alone,
        "answers": answers,
        "runs": {kind: median_run(done[1:]) for kind, done in runs.items()},
        "fastest_seconds": {kind: min(run["seconds"] for run in done[1:]) for kind, done in runs.items()},
    }


def columns_of(row: dict[str, Any]) -> dict[str, str]:
    """A line of the report, by the heads of its columns: times are milliseconds."""
    raw, coded, raw_bytes = row["runs"]["raw"], row["runs"]["coded"], row["raw_bytes"]
    prefill = row["prefill"]["seconds"]
    step = statistics.median(answer["first_step_seconds"] for answer in row["answers"].values())
    # What the codec adds to moving as many bytes as the frames have at raw's speed.
    exposed = coded["seconds"] - raw["seconds"] * coded["wire_bytes"] / raw["wire_bytes"]
    times = {
        "prefill": prefill,
        "encode": coded["encode_seconds"],
        "move": coded["write_seconds"],
        "decode": coded["decode_seconds"],
        "exposed": exposed,
        "raw": raw["seconds"],
        "coded": coded["seconds"],
        "step": step,
        "TTFT raw": prefill + raw["seconds"] + step,
        "TTFT coded": prefill + coded["seconds"] + step,
    }
    return {
        "tokens": f"{row['prompt_tokens']:,}",
        "MB": f"{raw_bytes / 1e6:.1f}",
        "ratio": f"{raw_bytes / coded['wire_bytes']:.3f}",
        **{name: f"{seconds * 1e3:.2f}" for name, seconds in times.items()},
        "raw GB/s": f"{raw_bytes / raw['seconds'] / 1e9:.2f}",
        "coded GB/s": f"{raw_bytes / coded['seconds'] / 1e9:.2f}",
    }


def table_of(lines: list[dict[str, str]]) -> list[str]:
    widths = {name: max(len(name), *(len(line[name]) for line in lines)) + 2 for name in lines[0]}
    heads = {name: name for name in lines[0]}
    return ["".join(f"{line[name]:>{width}}" for name, width in widths.items()) for line in [heads, *lines]]


def text_of(result: dict[str, Any]) -> str:
    source, target, routes = result["prefill"], result["decode"], result["routes"]
    frames = ", ".join(f"{count} by {name}" for name, count in routes["frames"].items())
    chosen = f"; {routes['chosen'][0]} was chosen" if routes["chosen"] else ""
    return "\n".join(
        [
            f"model      {result['model']}, {source['layers']} layers, {source['token_bytes']:,} bytes of cache a token",
            f"codebooks  {result['codebook']}; {source['without_codebook']} tensors have none",
            f"prefill    process {source['pid']}, {source['device']}",
            f"decode     process {target['pid']}, {target['device']}",
            f"link       {result['link']}; of {result['repeat']} transfers each, the one of median time",
            "",
            *table_of([columns_of(row) for row in result["rows"]]),
            "",
            f"All {result['new_tokens']} greedy tokens after the first one are those of one process alone, raw and",
            "coded, for each prompt. Times are milliseconds. Exposed: what coding adds to moving as many bytes as the",
            "frames have at the speed of raw. Step: the first token of the decode process. TTFT: prefill, transfer, step.",
            f"Frames by route: {frames}{chosen}.",
        ]
    )


def run(given: argparse.Namespace) -> dict[str, Any]:
    settings = {
        "model": given.model,
        "text": str(given.text),
        "codebook": str(given.codebook),
        "most_tokens": max(given.prompt_tokens),
        "device": given.device,
        "timeout": given.timeout,
        "threads": given.threads,
        **engine_settings(given),
    }
    with (
        Worker("model_decode", seed=2, gpu=given.gpus[1], **settings) as decode,
        Worker("model_prefill", seed=1, gpu=given.gpus[0], **settings) as prefill,
    ):
        source, target = prefill.answer(), decode.answer()
        if source["text_tokens"] < max(given.prompt_tokens):
            raise WorkerFailed(f"{given.text} has {source['text_tokens']} tokens, fewer than the longest prompt")
        given.token_bytes = source["token_bytes"]
        choose_route(prefill, decode, target["address"], given)
        return {
            "model": Path(given.model).name,
            "codebook": str(given.codebook),
            "prefill": source,
            "decode": target,
            "link": name_of_link(given),
            "repeat": given.repeat,
            "new_tokens": given.new_tokens,
            "rows": [measure(prefill, decode, target["address"], count, given) for count in given.prompt_tokens],
            "routes": prefill.ask("routes"),
        }


def main() -> int:
    given = arguments()
    return report(lambda: run(given), text_of, given.json)


if __name__ == "__main__":
    sys.exit(main())
