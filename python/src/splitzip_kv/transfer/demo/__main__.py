# SPDX-License-Identifier: Apache-2.0
"""The main job: two processes, two paged pools, one cache, compared bit for bit."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .engines import add_engine_options, check_engine_options, engine_settings, name_of_link
from .processes import Worker, WorkerFailed
from .runs import median_run, report, summary
from .table import text_of

SAMPLE = Path("data/smollm2-135m")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m splitzip_kv.transfer.demo",
        description="Move a KV cache from a prefill process to a decode process over a transfer engine: page by page, "
        "packed, and packed and encoded; compare every bit, and say what it took.",
    )
    parser.add_argument(
        "--kv",
        type=Path,
        metavar="FILE",
        help="safetensors file with tensors [head, token, dim] (default: the sample in data/)",
    )
    parser.add_argument(
        "--codebook",
        type=Path,
        metavar="SET",
        help="*.szcb file; without it, one is made of the first quarter of the tokens of FILE, and the rest is moved",
    )
    parser.add_argument("--page-tokens", type=int, default=16, help="tokens of a page (default: 16)")
    parser.add_argument(
        "--repeat", type=int, default=5, help="runs of each kind; the one of median time is reported (default: 5)"
    )
    add_engine_options(parser)
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds for one transfer (default: 30)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process that code (default: 1; 0: all)")
    parser.add_argument(
        "--device",
        default="auto",
        choices=("auto", "cpu", "cuda"),
        help="where the pools are and who codes: auto (default: a GPU where there is one), cpu or cuda",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args()
    if given.kv is None:
        given.kv = SAMPLE / "gsm8k.safetensors"
        given.codebook = given.codebook or SAMPLE / "wikitext2.szcb"
        if not given.kv.exists():
            parser.error(f"{given.kv} is not here: run this in the repository, or give --kv FILE")
    check_engine_options(parser, given)
    for path in (given.kv, given.codebook):
        if path is not None and not path.is_file():
            parser.error(f"no file {path}")
    if min(given.page_tokens, given.repeat) < 1 or given.threads < 0:
        parser.error("--page-tokens and --repeat have to be positive, and --threads not negative")
    return given


class Job:
    def __init__(self, prefill: Worker, decode: Worker) -> None:
        self.prefill, self.decode = prefill, decode
        self.source = prefill.answer()
        self.target = decode.answer()
        self.count = 0

    def page_by_page(self) -> dict[str, Any]:
        places = self.decode.ask("pages")["places"]
        sent = self.prefill.ask("write_pages", data_address=self.target["data_address"], places=places)
        return {**sent, **self.decode.ask("pages_arrived")}

    def packed(self, coded: bool) -> dict[str, Any]:
        self.count += 1
        name = f"request {self.count}"
        self.decode.ask("expect", name=name)
        self.decode.begin("arrived")
        sent = self.prefill.ask("send", name=name, address=self.target["address"], coded=coded)
        return {**sent, **self.decode.answer()}


def measure(job: Job, repeat: int, by_pages: bool) -> dict[str, Any]:
    kinds: dict[str, Callable[[], dict[str, Any]]] = {
        **({"page_by_page": job.page_by_page} if by_pages else {}),
        "packed_raw": lambda: job.packed(False),
        "splitzip": lambda: job.packed(True),
    }
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in kinds}
    for number in range(repeat + 1):
        for name, kind in kinds.items():
            run = summary(kind())
            if run["different_values"] or run["touched_bytes"]:
                values, others = run["different_values"], run["touched_bytes"]
                raise WorkerFailed(f"{name}: {values} values differ, {others} bytes of other pages were written")
            if number > 0:  # the first opens connections
                runs[name].append(run)
    return {name: median_run(done) for name, done in runs.items()}


def run(given: argparse.Namespace) -> dict[str, Any]:
    settings = {
        "kv": str(given.kv),
        "codebook": str(given.codebook) if given.codebook is not None else None,
        "page_tokens": given.page_tokens,
        "timeout": given.timeout,
        "threads": given.threads,
        "device": given.device,
        **engine_settings(given),
    }
    gpus = dict(zip(("prefill", "decode"), given.gpus, strict=True))
    with (
        Worker("decode", seed=2, gpu=gpus["decode"], **settings) as decode,
        Worker("prefill", seed=1, gpu=gpus["prefill"], **settings) as prefill,
    ):
        job = Job(prefill, decode)
        return {
            "kv": str(given.kv),
            "codebook": settings["codebook"] or "made of the first quarter of the tokens, which is not moved",
            "link": name_of_link(given),
            "page_tokens": given.page_tokens,
            "repeat": given.repeat,
            "prefill": job.source,
            "decode": job.target,
            "runs": measure(job, given.repeat, by_pages=given.engine == "mooncake"),
            "routes": prefill.ask("routes"),
        }


def main() -> int:
    given = arguments()
    return report(lambda: run(given), text_of, given.json)


if __name__ == "__main__":
    sys.exit(main())
