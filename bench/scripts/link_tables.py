# SPDX-License-Identifier: Apache-2.0
"""Parts of docs/links.md that are not about the link alone: requests, interference, the planner."""

import plots
from cpu_report import table
from gpu_report import human
from link_model import OUTPUT_TOKENS, median

# Paper, "End to end": SGLang over Mooncake; Qwen3-32B, batch 16, over 4 x 200 Gbit/s.
PUBLISHED = [
    ["KV transfer, Llama-3-8B, largest points", "1.27-1.32"],
    ["KV transfer, Qwen3-30B-A3B, largest points", "1.22-1.32"],
    ["KV transfer, Qwen3-32B, batch 16, 2K / 16K / 64K tokens", f"{56.5 / 53.1:.3f} / {441.4 / 353.8:.3f} / {1749.3 / 1397.0:.3f}"],
    ["TTFT, batch 1 / 16, up to", "1.303 / 1.274"],
    ["request throughput, batch 1 / 16, up to (ours: in turn)", "1.233 / 1.206"],
    ["the same, side by side", "-"],
]


def milliseconds(seconds):
    return f"{seconds * 1e3:,.1f}"


def greatest(gains):
    gains = [gain for gain in gains if gain is not None]
    return f"{max(gains):.3f}" if gains else "-"


def render_requests(cases):
    if not cases.times:
        return ""
    text = "### Time to first token, request throughput\n\n"
    text += "TTFT is prefill + transfer + first token, one after the other. Prefill and decoding are those of one GPU, measured on decoder layers of the model's shape with random weights "
    text += '(`bench/serving`), times the number of layers; experts are chosen evenly. "Cached": all but the last '
    text += f"{cases.suffix} tokens of each prompt were in a prefix cache, so only these are computed, and the whole cache is moved. Throughput is with cached "
    text += f'prompts and {OUTPUT_TOKENS} tokens of output: "in turn", where a batch goes through all stages before the next one begins, and "side by side", where prefill, link and decoding '
    text += "each work on a batch of their own, so that the slowest stage sets the pace; longer answers leave less to gain. The way is the one over the host, which is the slower link.\n\n"
    for shape in cases.shapes:
        body = []
        for batch, tokens in cases.sizes(shape):
            case = (shape, batch, tokens)
            full, cached = (cases.ttft("host", kind, *case) for kind in ("prefill_seconds", "suffix_seconds"))
            if full is None or cached is None:
                continue
            times, requests = cases.times[case], cases.throughput("host", *case)
            row = [
                str(batch),
                f"{tokens:,}",
                milliseconds(times["prefill_seconds"]),
                milliseconds(times["suffix_seconds"]),
                milliseconds(times["step_seconds"]),
            ]
            row += [milliseconds(median(cases.raw("host", *case))), milliseconds(median(cases.ours("host", *case)))]
            row += [
                f"{full[0] / full[1]:.3f}",
                f"{cached[0] / cached[1]:.3f}",
                f"{requests[0][0]:.2f}",
                f"{requests[0][1] / requests[0][0]:.3f}",
                f"{requests[1][0]:.2f}",
                f"{requests[1][1] / requests[1][0]:.3f}",
            ]
            body.append(row)
        heads = [
            "batch",
            "tokens",
            "prefill ms",
            "cached ms",
            "step ms",
            "raw ms",
            "ours ms",
            "TTFT x",
            "cached x",
            "in turn req/s",
            "x",
            "side by side",
            "x",
        ]
        if body:
            text += f"{shape}:\n\n" + table(heads, body)

    def over(gain, link, batch, shape=None):
        shapes = [shape] if shape else cases.shapes
        return greatest(gain(link, name, b, tokens) for name in shapes for b, tokens in cases.sizes(name) if b == batch)

    ours = [
        over(cases.gain, "host", 1, "Llama-3-8B"),
        over(cases.gain, "host", 1, "Qwen3-30B-A3B"),
        over(cases.gain, "host", 16, "Qwen3-32B"),
    ]
    ours += [
        " / ".join(over(gain, "host", batch) for batch in (1, 16))
        for gain in (cases.ttft_gain, cases.throughput_gain, cases.side_by_side_gain)
    ]
    text += "The paper's figures beside ours over the host (the greatest of the table; TTFT and throughput with cached prompts, so that the transfer bounds them):\n\n"
    return text + table(["", "paper", "ours"], [[*row, own] for row, own in zip(PUBLISHED, ours)])


def render_interference(result):
    if not result:
        return ""
    text = "### What transfers do to prefill and decode on the same GPU\n\n"
    text += f"{result['model']}, random weights, all layers: prompts of {result['prompt']:,} tokens are prefilled, then {result['batch']} requests with {result['context']:,} tokens each decode, while slices of "
    text += f'{human(result["slice_bytes"])} of a cache leave for, or come from, pinned host memory, one after the other, as fast as the codec beside the model and the link take them (GB/s says how full the link is). Frames have budgets, so that nothing waits for their lengths. "At raw\'s pace": no more raw bytes a second than raw moved. '
    text += f"torch {result['torch']}, CUDA graphs, one {result['device']}, {result['date']}.\n\n"
    for side, unit in (("prefill", "prompt"), ("decode", "token")):
        rows = [row for row in result["interference"] if row["side"] == side]
        if not rows:
            continue
        alone = rows[0]["tokens_per_second"]
        body = []
        for row in rows:
            name = row["way"] + (", at raw's pace" if row["paced"] else "")
            sms = "" if row["max_sms"] is None else str(row["max_sms"] or "all")
            moved = f"{row['raw_bytes_per_second'] / 1e9:,.1f}" if row["raw_bytes_per_second"] else "-"
            body.append([name, sms, moved, f"{row['tokens_per_second']:,.0f}", f"{row['tokens_per_second'] / alone:.3f}"])
            body[-1] += [f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}"]
        text += f"{side}; times are of a {unit}:\n\n" + table(
            ["transfers", "SMs", "GB/s raw", "tokens/s", "of alone", "p50 ms", "p99 ms"], body
        )
    return text


def render_planner(planner, processors):
    """Text, and plots by name."""
    text, images, cases = "### The planner\n\n", {}, planner.cases
    body, least, points = [], None, {}
    for shape in cases.shapes:
        for batch, tokens in cases.sizes(shape):
            for link in ("NVLink", "host"):
                chosen = planner.choose(link, shape, batch, tokens)
                if chosen is None:
                    continue
                row, predicted, raw = chosen
                gain = median(raw) / median(row)
                least = gain if least is None else min(least, gain)
                points.setdefault(link, []).append((row["bytes"], median(row) / predicted))
                way = "raw" if row is raw else f"slices of {human(row['slice_bytes'])}"
                body.append(
                    [
                        link,
                        shape,
                        human(row["bytes"]),
                        way,
                        milliseconds(predicted),
                        milliseconds(median(row)),
                        f"{median(row) / predicted:.3f}",
                        f"{gain:.3f}",
                    ]
                )
    if body:
        text += "Codec and link are measured alone, fitted to the model of `splitzip_plan.h`, and each transfer is planned with the ways that were measured (the encoder that writes "
        text += "into the peer is no stage of its own, so it is not in the model; over the host a slice is written twice, which the model counts as one more write):\n\n"
        text += table(["link", "model", "raw bytes", "plan", "predicted ms", "took ms", "took / predicted", "speed-up"], body)
        text += f"The least speed-up over raw of a planned transfer is {least:.3f}.\n\n"
        images["planner"] = _plot(list(points.items()))
    if processors:
        body, points = [], {}
        for row in processors["rows"]:
            points.setdefault(f"{row['gigabits']:g} Gbit/s", []).append((row["bytes"], row["seconds"] / row["predicted"]))
            body.append([f"{row['gigabits']:g} Gbit/s", human(row["bytes"]), row["way"], human(row["slice_bytes"])])
            body[-1] += [
                f"{row['predicted'] * 1e3:,.3f}",
                f"{row['seconds'] * 1e3:,.3f}",
                f"{row['seconds'] / row['predicted']:.3f}",
                f"{row['raw_seconds'] / row['seconds']:.3f}",
            ]
        least = min(row["raw_seconds"] / row["seconds"] for row in processors["rows"])
        text += f"On processors (`planner_bench`, {processors['threads']} thread for each side, links kept to a speed, {processors['link_seconds'] * 1e6:.0f} us a write; the codec's speeds are those in a pipeline, with what handing a slice from thread to thread takes); the least speed-up is {least:.3f}:\n\n"
        text += table(["link", "raw bytes", "plan", "slice", "predicted ms", "took ms", "took / predicted", "speed-up"], body)
        images["planner-processors"] = _plot(list(points.items()))
    return (text, images) if body else ("", {})


def _plot(series):
    sizes = sorted({size for _, points in series for size, _ in points})
    powers = range(sizes[0].bit_length() - 1, sizes[-1].bit_length() + 1, 2)
    values = [value for _, points in series for _, value in points]
    ticks = plots.steps(min(*values, 0.9), max(*values, 1.1))
    return plots.lines(
        [("measured / predicted, by raw bytes", series)],
        [(1 << power, human(1 << power)) for power in powers],
        "measured / predicted",
        ticks,
    )
