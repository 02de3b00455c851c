# SPDX-License-Identifier: Apache-2.0
"""Speeds on GPUs against what memory allows, and the paper's figures 2 to 4: from bench/results."""

import json

from .page import made_by, picture, plots, table

LINKS = "[links.md](links.md)"
PAPER = "paper's Triton code"


def attainable(copy, ratio):
    """L in GB/s: the traffic of a device copy, which reads and writes `copy` GB/s each, spent on reading 2 bytes of a
    value and writing 2 / ratio, or the other way round."""
    return 2 * copy / (1 + 1 / ratio)


def took(bench_results):
    """How long `python -m eval gpu` took, where its results say so."""
    text = ""
    for path in sorted(bench_results.glob("cuda-*.json")):
        found = json.loads(path.read_text())
        if seconds := found.get("seconds"):
            parts = ", ".join(f"{what} {number} s" for what, number in seconds.items())
            text += f"`python -m eval gpu` took {sum(seconds.values())} s on one {found['device']} ({parts}).\n\n"
    return text


def measured(bench_results, group):
    """Rows of a group of cuda_bench, each with cells: encode and decode in GB/s, and where that was measured."""
    for path in sorted(bench_results.glob("cuda-*.json")):
        for row in json.loads(path.read_text())["rows"]:
            if row["group"] == group and "failure" not in row:
                speeds = [f"{row['bytes'] / row[way]['us'][1] / 1000:,.0f}" for way in ("encode", "decode")]
                yield row, [*speeds, f"`{path.name}`"]


def roofline(bench_results, images):
    paths = sorted(bench_results.glob("cuda-*.json"))
    if not paths:
        return ""
    text = "## Roofline\n\n" + made_by("[`cuda_bench`](benchmarks.md)")
    text += "A codec that is bound by memory alone does L: it reads each value once and writes each coded byte once, "
    text += "or the other way round, at the speed of a device copy. So L grows with the ratio, and the distance to it is "
    text += "what the code itself costs. Large calls, checksums on:\n\n"
    for path in paths:
        measured = json.loads(path.read_text())
        device = measured["device"]
        copied = next(row for row in measured["rows"] if row["group"] == "copy")
        copy = copied["bytes"] / min(copied[way]["us"][1] for way in ("encode", "decode")) / 1000
        first = next(row for row in measured["rows"] if row["group"] == "main")
        rows, points = [], {"encode": {}, "decode": {}}
        for row in measured["rows"]:
            ours, papers = row["group"] == "main", row["codec"] == PAPER
            named = row["codec"] if papers else f"splitzip {row['codec']}" if ours else f"nvCOMP {row['codec']}"
            if row.get("failure") or not (ours or papers or named.startswith("nvCOMP ANS")):
                continue
            if any(row[key] != first[key] for key in ("data", "layout", "bytes")) or (ours and not row["checksums"]):
                continue
            limit = attainable(copy, row["ratio"])
            cells = [named, f"{row['ratio']:.3f}", f"{limit:,.0f}"]
            for way in ("encode", "decode"):
                speed = row["bytes"] / row[way]["us"][1] / 1000
                cells += [f"{speed:,.0f}", f"{speed / limit:.2f}"]
                points[way].setdefault("splitzip" if ours else "paper's code" if papers else "nvCOMP ANS", []).append((row["ratio"], speed))
            rows.append(cells)
        text += f"{device}, {first['data']}, {first['bytes'] >> 20} MiB; device copy {copy:,.0f} GB/s:\n\n"
        text += table(["codec", "ratio", "L", "encode", "of L", "decode", "of L"], rows)
        ticks = plots.steps(0.95, 1.55)
        line = [(ratio / 100, attainable(copy, ratio / 100)) for ratio in range(95, 156, 10)]
        image = plots.lines(
            [(f"{way.capitalize()}, {device}", [("L", line), *found.items()]) for way, found in points.items()],
            [(tick, f"{tick:.2f}") for tick in ticks],
            "GB/s of raw bytes",
            plots.steps(0, attainable(copy, ticks[-1])),
            float,
        )
        text += picture(images, f"evaluation-{path.stem}-roofline.svg", "Speed by ratio, and what memory allows", image)
    return text


def transfers(bench_results):
    """The paper's figures 2 to 4 are of an engine between two machines; ours of two GPUs, in docs/links.md."""
    paths = sorted(bench_results.glob("links-*.json"))
    if not paths:
        return ""
    text = "## Figures 2 to 4: transfers, time to first token, throughput\n\n"
    text += made_by("`two_gpu_bench`, `python bench/serving`, `bench/scripts/link_report.py`")
    text += f"They need two GPUs and have a page of their own, {LINKS}: KV transfer by model, batch and length over "
    text += "NVLink and over pinned host memory, time to first token and request throughput from measured prefill and "
    text += "decode steps, each beside the paper's figures, and what transfers do to prefill and decode that run "
    text += "beside them.\n\n"
    return text
