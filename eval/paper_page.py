# SPDX-License-Identifier: Apache-2.0
"""The first half of the page: the paper's tables and figures."""

import json
import statistics

from . import gpu_page, published
from .page import MADE_BY, made_by, percent, picture, plots, powers, table


def table1(result):
    rows = []
    for name, model in result["models"].items():
        for text in model["texts"]:
            group = model["table1"][text]["all"]
            rows.append(
                [
                    f"{name}, {text}",
                    percent(group["top8_coverage"], 1),
                    percent(group["top16_coverage"]),
                    f"{group['entropy']:.2f}",
                ]
                + [f"{group['entropy_given_channel']:.2f}", f"{group['paper_ratio']:.3f}"]
                + [f"{group[f'expected_{mode}_ratio']:.3f}" for mode in ("fixed4", "tiered")]
                + ["-" if text == model["texts"][0] else f"{group['tiered_ratio']:.3f}"]
            )
    for name, (top8, top16, entropy, ratio) in published.EXPONENTS.items():
        rows.append([f"{name} (cited)", f"{top8:.1f} %", f"{top16:.1f} %", f"{entropy:.2f}", "-", f"{ratio:.2f}", "-", "-", "-"])
    text = "## Table 1: exponents\n\n" + made_by("`splitzip analyze --json FILE`, by " + MADE_BY)
    text += "All tensors of a cache together. `fixed4` and `tiered` are expected ratios with codebooks made from the same text, "
    text += "without headers and directory; the last column is "
    text += "measured with the codebooks of the first text, each tensor as a frame of its own:\n\n"
    return text + table(
        [
            "cache",
            "Top-8",
            "Top-16",
            "entropy",
            "given the channel",
            "paper's code",
            "`fixed4`",
            "`tiered`",
            "`tiered`, measured",
        ],
        rows,
    )


def gpu_rows(path):
    """Of the first cache and layout that were measured."""
    measured = json.loads(path.read_text())
    named = {"main": "splitzip ", "nvcomp": "nvCOMP ", "paper": "the ", "dfloat11": ""}
    rows = [row for row in measured["rows"] if row["group"] in named and "failure" not in row]
    for row in rows:
        if any(row[key] != rows[0][key] for key in ("data", "layout", "bytes")):
            continue
        if row["group"] in ("paper", "dfloat11") and not row["codec"].startswith((gpu_page.PAPER, "DFloat11")):
            continue  # measured again beside it
        name = named[row["group"]] + row["codec"]
        if row.get("checksums") is False:
            name += ", no checksums"
        speeds = [row["bytes"] / row[way]["us"][1] / 1000 for way in ("encode", "decode")]
        speeds = [f"{speed:,.0f}" if speed >= 1 else f"{speed:.4f}" for speed in speeds]
        yield [name, f"{row['ratio']:.3f}", *speeds, f"measured, {measured['device']}, `{path.name}`"]


def table2(bench_results):
    rows = []
    for path in sorted(bench_results.glob("cuda-*.json")):
        rows += gpu_rows(path)
    gpu = bool(rows)
    for path in sorted(bench_results.glob("cpu-peers-*.json")):
        measured = json.loads(path.read_text())
        largest = max(peer["bytes"] for peer in measured["peers"])
        for peer in measured["peers"]:
            if peer["bytes"] != largest or peer["threads"] != 1 or peer["name"] == "memcpy":
                continue
            speeds = [f"{peer['bytes'] / peer[f'{way}_ns']:.2f}" for way in ("compress", "decompress")]
            rows.append([peer["name"], f"{peer['ratio']:.3f}", *speeds, f"measured, CPU, one thread, `{path.name}`"])
    for name, (ratio, encode, decode) in published.CODECS.items():
        speeds = ["-" if speed is None else f"{speed:,}" for speed in (encode, decode)]
        rows.append([name, f"{ratio:.3f}", *speeds, "cited: H200, Qwen3-32B"])
    text = "## Table 2: codecs\n\n"
    text += made_by("`bench/scripts/cpu_peers.py` and [`cuda_bench`](benchmarks.md)" if gpu else "`bench/scripts/cpu_peers.py`")
    text += "GB/s (10^9) of raw bytes. Cited rows are of another cache, so their ratios say how codecs rank there, "
    text += "not more; "
    text += "the rest is on real caches of small models. One thread of a CPU and a GPU are in one table, as they are "
    text += "in the paper's. The paper also names ZipLLM, without a figure; Falcon and ZipServ have no package to install:\n\n"
    text += table(["codec", "ratio", "encode", "decode", "where"], rows)
    if not any(row[0].startswith("DFloat11") and "measured" in row[-1] for row in rows):
        text += "`bench/scripts/dfloat11_gpu.py` measures DFloat11's decoder where a GPU and its package are; it has not been run for "
        text += "this page.\n\n"
    if not gpu:
        text += "No GPU results are in bench/results yet: `cuda_bench` has not been run on a GPU for this page.\n\n"
    return text


def table3(result):
    rows = []
    for name, model in result["models"].items():
        rows += [[name, f"Top-{row['k']}", percent(row["coverage"]), f"{row['ratio']:.3f}"] for row in model["table3"]]
        measured = [("`fixed4`", "fixed4, base for each channel"), ("`tiered`", "tiered, base for each channel")]
        rows += [[name, f"splitzip {mode}, measured", "-", f"{model['tiers'][key]['ratio']:.3f}"] for mode, key in measured]
    for k, (coverage, ratio, decode) in published.TOP_K.items():
        rows.append(["Qwen3-32B (cited)", f"Top-{k}, decode {decode:,} GB/s", f"{coverage:.2f} %", f"{ratio:.3f}"])
    text = "## Table 3: Top-8 or Top-16\n\n" + made_by()
    text += "Arithmetic, one codebook for all tensors. Top-8 saves one bit a value, and loses it to escapes of three "
    text += "bytes. In tiers of two bits, a less frequent exponent costs "
    text += "two bits more, not 24:\n\n"
    return text + table(["cache", "code", "coverage", "ratio"], rows)


def table4(result):
    text = "## Table 4: which text calibrates\n\n" + made_by()
    text += "Coverage of one Top-16 codebook for all tensors (arithmetic) and measured ratio of `tiered`, with "
    text += "codebooks from the text of the row, on the text of the "
    text += "column. On the diagonal both are the same text:\n\n"
    for name, model in result["models"].items():
        found = {(row["calibrated"], row["measured"]): row for row in model["table4"]}
        rows = []
        for source in model["texts"]:
            cells = [found[source, target] for target in model["texts"]]
            rows.append([source, *[f"{percent(cell['coverage'])}, {cell['tiered_ratio']:.3f}" for cell in cells]])
        text += table([f"{name}: calibrated on", *model["texts"]], rows)
    text += "Cited: calibrated on WikiText-2, more than 99 % on HumanEval, GSM8K, MMLU and PTB, close to calibrating "
    text += "on the target itself.\n\n"
    return text


PARTS = {
    "all tensors": "one for all tensors",
    "tensor": "each tensor (the paper's choice)",
    "head": "each head",
    "channel": "each channel",
    "token": "each token's own, sent with it",
}


def table5(result):
    names = list(result["models"])
    text = "## Table 5: how many codebooks\n\n" + made_by()
    text += "Arithmetic: a Top-16 codebook for each of these parts, coverage and ratio. A token's codebook cannot be "
    text += "calibrated; its 16 bytes are counted:\n\n"
    rows = []
    for part, label in PARTS.items():
        found = [next(row for row in result["models"][name]["table5"] if row["part"] == part) for name in names]
        rows.append([label, *[f"{percent(row['coverage'])}, {row['ratio']:.3f}" for row in found]])
    text += table(["codebook for", *names], rows)
    text += "Cited: codebooks for each token or each channel cover 99.90 %, but run below 1 GB/s.\n\n"
    text += "This library keeps one rank table a tensor and subtracts a base for each channel. Ratios of whole "
    text += "frames:\n\n"
    labels = [
        "tiered, one base",
        "tiered, base for each channel",
        "rank table for each channel",
        "fixed4, one base",
        "fixed4, base for each channel",
    ]
    rows = []
    for label in labels:
        found = [result["models"][name]["tiers"][label] for name in names]
        shown = label if found[0]["measured"] else f"tiered, {label} (arithmetic, nothing else counted)"
        rows.append([shown, *[f"{cell['ratio']:.3f}" for cell in found]])
    text += table(["code", *names], rows)
    rows = []
    for name in names:
        for label, modes in result["models"][name]["base_speeds"].items():
            for mode, speed in modes.items():
                relative = [f"{speed[way]:.2f} ({speed[way] / speed['memcpy']:.2f})" for way in ("encode", "decode")]
                rows.append([name, f"{mode}, {label}", *relative])
    text += "Speed with and without bases for each channel, GB/s on one thread of the CPU, and in parentheses of "
    text += "memcpy in the same run (`splitzip bench`, "
    text += "codebooks by `splitzip calibrate` with and without `--one-base`; best repetitions):\n\n"
    return text + table(["cache", "code", "encode", "decode"], rows)


def table6(result):
    rows = []
    for name, model in result["models"].items():
        for label, shown in (("sentinel", "15 exponents and a sentinel"), ("explicit", "16 exponents and positions")):
            found = model["table6"][label]
            rows.append([name, shown, percent(found["coverage"]), f"{found['ratio']:.3f}"])
        rows.append(
            [
                name,
                "`fixed4` (sentinel, channel bases), measured",
                "-",
                f"{model['tiers']['fixed4, base for each channel']['ratio']:.3f}",
            ]
        )
    for label, (ratio, decode) in published.ESCAPES.items():
        rows.append([f"Qwen3-32B (cited), decode {decode:,} GB/s", label, "-", f"{ratio:.3f}"])
    text = "## Table 6: sentinel or positions\n\n" + made_by()
    text += "The paper uses explicit positions, because its decoder was 3.5 times slower with a sentinel. `fixed4` "
    text += "has a sentinel; the speed of its decoder "
    text += "is in Table 2. Sizes, arithmetic with one codebook for all tensors:\n\n"
    return text + table(["cache", "escapes", "coverage", "ratio"], rows)


def table7(result):
    rows = []
    for name, model in result["models"].items():
        for label in ("static", "dynamic"):
            found = model["table7"][label]
            rows.append(
                [
                    name,
                    label,
                    percent(found["paper"]["coverage"]),
                    f"{found['tiered_ratio']:.3f}",
                    f"{found['encode_gb_per_s']:.3g}",
                ]
            )
    for label, speed in published.DYNAMIC_ENCODE.items():
        rows.append(["Qwen3-32B (cited)", label, "-", "-", f"{speed}"])
    text = "## Table 7: a codebook for every input\n\n" + made_by()
    text += "Dynamic: codebooks made from each input before it is encoded; they would have to be sent with it. "
    text += "Encode: GB/s on one thread of the CPU, calibration "
    text += "included, through the Python package. Most of the time goes into choosing a base for each channel, "
    text += "whatever the number of tokens. The paper's choice (once, offline) is the right one "
    text += "here, too:\n\n"
    return text + table(["cache", "codebook", "coverage, Top-16 (arithmetic)", "ratio of `tiered`", "encode"], rows)


def table8(bench_results):
    text = "## Table 8: width of vectors\n\n" + made_by("`bench/micro/cpu_bench`, [cpu.md](cpu.md); `cuda_bench --only widths`")
    rows = []
    for path in sorted(bench_results.glob("cpu-*.json")):
        measured = json.loads(path.read_text())
        if "cases" not in measured:
            continue
        size = statistics.mode(case["bytes"] for case in measured["cases"])
        for case in measured["cases"]:
            usual = case["type"] == "bf16" and case["bytes"] == size and case["threads"] == 1 and case["checksums"]
            if usual and not case["unit_tokens"] and not case["page_tokens"] and case["mode"] in ("tiered", "fixed4"):
                speeds = [f"{case['bytes'] / case[f'{way}_ns']:.2f}" for way in ("encode", "decode")]
                rows.append([case["mode"], case["target"], *speeds, f"`{path.name}`"])
    for row, cells in gpu_page.measured(bench_results, "widths"):
        rows.append([row["codec"], f"GPU, rows at {row['layout']}", *cells])
    before, after = published.QUAD64_ENCODE
    rows += [["Quad64 (cited, H200)", label, speed, "-", "cited"] for label, speed in (("without", before), ("with", after))]
    text += "The paper's Quad64 takes four values as one word. The same question on a CPU is which instructions: "
    text += "GB/s of BF16, one thread. On a GPU it is how wide loads and stores are: rows that start at multiples "
    text += "of 16 bytes are moved as vectors, all others value by value, by separate kernels:\n\n"
    return text + table(["mode", "instructions", "encode", "decode", "where"], rows)


def layer_rows(model, role):
    return [row for row in model["figure5"] if row["role"] == role]


def figure5(result, images):
    panels, least = [], 1.0
    rows = []
    for name, model in result["models"].items():
        series = []
        for role, shown in (("key", "K"), ("value", "V")):
            points = [(row["layer"], 100 * row["shared_coverage"]) for row in layer_rows(model, role) if row["layer"] is not None]
            if not points:
                continue
            series.append((shown, points))
            covers = [y for _, y in points]
            least = min(least, min(covers) / 100)
            worst = min(points, key=lambda point: point[1])
            rows.append(
                [
                    name,
                    shown,
                    len(points),
                    sum(c >= 99 for c in covers),
                    sum(c >= 99.8 for c in covers),
                    f"{worst[1]:.2f} % ({worst[0]})",
                    f"{statistics.median(covers):.2f} %",
                ]
            )
        panels.append((name, series))
    rows.append(["Qwen3-32B (cited)", "K", 64, 64, 61, "> 99.0 %", "-"])
    rows.append(["Qwen3-32B (cited)", "V", 64, 62, "-", "98.77 %", "99.88 %"])
    text = "## Figure 5: layers under one shared codebook\n\n" + made_by("`splitzip analyze --json`, by " + MADE_BY)
    text += "Coverage of each layer by the Top-16 of the calibration text, one for all layers. With a codebook for "
    text += "each tensor, this library's "
    text += "default, no layer shares (see K and V by layer):\n\n"
    text += table(["cache", "", "layers", ">= 99.0 %", ">= 99.8 %", "worst (layer)", "median"], rows)
    layers = max(x for _, series in panels for _, points in series for x, _ in points)
    image = plots.lines(
        panels,
        [(x, str(x)) for x in range(0, layers + 5, 5)],
        "Top-16 coverage, %",
        plots.steps(100 * least, 100),
        float,
    )
    return text + picture(images, "evaluation-coverage.svg", "Coverage by layer", image)


def figure6(result, bench_results, images):
    series = [(name, [(row["chunk"], row["ratio"]) for row in model["figure6"]]) for name, model in result["models"].items()]
    ratios = [y for _, points in series for _, y in points]
    chunks = [x for _, points in series for x, _ in points]
    image = plots.lines(
        [("ratio of the paper's code by values in a chunk", series)],
        powers(chunks),
        "ratio",
        plots.steps(min(ratios), max(ratios)),
    )
    text = "## Figure 6: chunk size\n\n" + made_by()
    text += "Arithmetic: positions of 8 or 16 bits, as the size of the chunk needs, and a count of escapes for each "
    text += "chunk, which the paper's formula leaves out. "
    text += "From 1024 values on the ratio hardly changes; the paper takes 1024. So does this library (2048 for "
    text += "types of one byte), whose `fixed4` needs no "
    text += "positions but keeps a checksum of each chunk:\n\n"
    text += picture(images, "evaluation-chunks.svg", "Ratio by chunk size", image)
    rows = [[row["layout"], row["codec"], f"{row['ratio']:.3f}", *cells] for row, cells in gpu_page.measured(bench_results, "units")]
    if not rows:
        return text
    text += "Measured on a GPU (`cuda_bench --only units`): the chunk is part of the format here, but units, which can be "
    text += "decoded alone, may be smaller. Each has a chunk of its own, with its checksum and its entry in the "
    text += "directory. GB/s:\n\n"
    return text + table(["unit", "mode", "ratio", "encode", "decode", "where"], rows)


def types(result, bench_results):
    names = list(result["models"])
    rows = []
    shown = {"fp8_e5m2": "FP8 E5M2", "fp8_e4m3": "FP8 E4M3", "fp16": "FP16"}
    for place, kind in enumerate(row["type"] for row in result["models"][names[0]]["types"]):
        found = [result["models"][name]["types"][place] for name in names]
        if "paper" in found[0]:
            cells = [f"{cell['paper']['ratio']:.3f} (escapes {percent(1 - cell['paper']['coverage'])})" for cell in found]
            rows.append([shown[kind], "paper's code, arithmetic", *cells])
        for mode in ("fixed4", "tiered"):
            rows.append([shown[kind], f"`{mode}`", *[f"{cell[f'{mode}_ratio']:.3f}" for cell in found]])
    cited = published.FP8_E5M2
    text = "## FP8 and FP16\n\n" + made_by()
    text += f"Casts of the same caches. Cited for FP8 E5M2: ratio {cited['ratio']}, escape rate {cited['escapes']} %:\n\n"
    text += table(["type", "code", *names], rows)
    rows = []
    for row, cells in gpu_page.measured(bench_results, "types"):
        model, _, kind = row["data"].partition(" as ")
        if kind.startswith("fp8") and row.get("checksums") is not False:
            code = f"`{row['codec']}`" if row["codec"] in ("fixed4", "tiered") else f"nvCOMP {row['codec']}"
            rows.append([shown[kind], model, code, f"{row['ratio']:.3f}", *cells])
    if not rows:
        return text
    rows.append(["FP8 E5M2", "Qwen3-32B", "SplitZip", cited["ratio"], cited["encode"], cited["decode"], "cited: H200"])
    text += "Speeds, GB/s, by [`cuda_bench`](benchmarks.md), with checksums; its frames are of all tensors together:\n\n"
    return text + table(["type", "cache", "code", "ratio", "encode", "decode", "where"], rows)


def write(result, bench_results, images):
    text = table1(result) + table2(bench_results) + table3(result) + table4(result) + table5(result) + table6(result) + table7(result)
    text += table8(bench_results) + gpu_page.roofline(bench_results, images) + gpu_page.transfers(bench_results)
    return text + figure5(result, images) + figure6(result, bench_results, images) + types(result, bench_results)
