# SPDX-License-Identifier: Apache-2.0
"""The second half of the page: what the paper does not show."""

from . import systems_page
from .page import MADE_BY, human, made_by, picture, plots, powers, table

# Layers of full attention, from the models' configurations; the others have a sliding window.
FULL_ATTENTION = {"gemma3-270m": {5, 11, 17}}

CODES = {"tiered_ratio": "`tiered`", "fixed4_ratio": "`fixed4`", "paper_ratio": "paper's code, arithmetic"}


def layers(result, images):
    panels, rows, ratios = [], [], []
    for name, model in result["models"].items():
        series = []
        for role, shown in (("key", "K"), ("value", "V")):
            found = [row for row in model["figure5"] if row["role"] == role and row["layer"] is not None]
            if not found:
                continue
            points = [(row["layer"], row["tiered_ratio"]) for row in found]
            series.append((shown, points))
            ratios += [y for _, y in points]
            mean = [sum(row[key] for row in found) / len(found) for key in ("entropy", "entropy_given_channel", "tiered_ratio")]
            low, high = (pick(points, key=lambda point: point[1]) for pick in (min, max))
            rows.append(
                [
                    f"{name}, {shown}",
                    f"{mean[0]:.2f}",
                    f"{mean[1]:.2f}",
                    f"{mean[2]:.3f}",
                    f"{low[1]:.3f} ({low[0]})",
                    f"{high[1]:.3f} ({high[0]})",
                ]
            )
        panels.append((name, series))
    last = max(x for _, series in panels for _, points in series for x, _ in points)
    image = plots.lines(
        panels,
        [(x, str(x)) for x in range(0, last + 5, 5)],
        "ratio of `tiered`".replace("`", ""),
        plots.steps(min(ratios), max(ratios)),
        float,
    )
    text = "## K and V by layer\n\n" + made_by("`splitzip analyze --json --codebook`, by " + MADE_BY)
    text += "Measured ratio of `tiered`, each tensor as a frame of its own, and entropy of its exponents, mean over "
    text += "the layers:\n\n"
    text += table(["tensors", "entropy", "given the channel", "mean ratio", "lowest (layer)", "highest (layer)"], rows)
    return text + picture(images, "evaluation-layers.svg", "Ratio by layer", image)


def windows(result):
    rows = []
    for name, model in result["models"].items():
        full = FULL_ATTENTION.get(name)
        for role, shown in (("key", "K"), ("value", "V")) if full else ():
            found = [row for row in model["figure5"] if row["role"] == role]
            for label, kept in (
                ("sliding window", [r for r in found if r["layer"] not in full]),
                ("full attention", [r for r in found if r["layer"] in full]),
            ):
                rows.append([name, shown, label, len(kept), f"{sum(row['tiered_ratio'] for row in kept) / len(kept):.3f}"])
    if not rows:
        return ""
    text = "## Sliding windows\n\n" + made_by()
    text += "Mean ratio of `tiered` by kind of layer. The caches are not longer than the window, so this compares "
    text += "the layers, not what a window drops:\n\n"
    return text + table(["cache", "", "layers of", "layers", "ratio"], rows)


def first_tokens(result):
    said = []
    for name, model in result["models"].items():
        rows = model["positions"]
        for role, shown in (("key", "K"), ("value", "V")):
            if rows[0][role]:
                said.append(f"{rows[0][role]:.3f} in {shown} of {name} ({rows[-1][role]:.3f} in the last stretch)")
    return ", ".join(said)


def positions(result, images):
    panels, ratios = [], []
    for name, model in result["models"].items():
        series = []
        for role, shown in (("key", "K"), ("value", "V")):
            points = [(row["first"] + 1, row[role]) for row in model["positions"] if row[role]]
            if points:
                series.append((shown, points))
                ratios += [y for _, y in points]
        panels.append((name, series))
    places = [x for _, series in panels for _, points in series for x, _ in points]
    image = plots.lines(panels, powers(places, 1), "ratio of tiered, codes alone", plots.steps(min(ratios), max(ratios)))
    text = "## Place in the sequence\n\n" + made_by()
    text += "Stretches of tokens that double in length, from the first one on (numbered from 1); codes alone, "
    text += "without the directory, which is the same everywhere. "
    text += f"The first token, which attention uses as a sink, has {first_tokens(result)}:\n\n"
    return text + picture(images, "evaluation-positions.svg", "Ratio by place in the sequence", image)


def rotation(result):
    rows = [[name, *[f"{bits:.2f}" for bits in model["rotation"]]] for name, model in result["models"].items() if model["rotation"]]
    text = "## Rotary pairs\n\n" + made_by()
    text += "Bits of the exponent in `tiered`, of keys, by the speed at which their pair of channels is rotated. A "
    text += "rotation moves magnitude between the two channels of a "
    text += "pair, so a fast pair could be expected to spoil the base of its channels:\n\n"
    return text + table(["cache", "fastest quarter", "second", "third", "slowest"], rows)


def bias(result):
    rows, here = [], []
    for name, model in result["models"].items():
        for kind, rotated in (("turns with the position", True), ("constant", False)):
            here = [row for row in model["bias"] if row["rotated"] == rotated]
            for key, code in CODES.items() if here else ():
                rows.append([name, kind, code, *[f"{row[key]:.3f}" for row in here]])
    if not rows:
        return ""
    text = "## Keys with a bias\n\n" + made_by()
    text += "**Simulated.** Some models add a bias to each channel of a key before it is rotated, others do not rotate at all. Caches of "
    text += "such models were not available. So random biases are added to these caches' keys, as large as the key's own root "
    text += "mean square times the factor above the column, the same for both texts. It "
    text += "makes the exponents of a channel more equal, so that its base predicts them better; less so where the bias turns with the position:\n\n"
    scales = [row["scale"] for row in here]
    return text + table(["cache", "bias", "code", *[f"x {scale}" for scale in scales]], rows)


def calibration(result, images):
    panels, ratios, rows = [], [], []
    for name, model in result["models"].items():
        found = model["calibration"]
        lines = {"tiered": "tiered_ratio", "fixed4": "fixed4_ratio", "paper's code (arithmetic)": "paper_ratio"}
        series = [(shown, [(row["tokens"], row[key]) for row in found]) for shown, key in lines.items()]
        ratios += [y for _, points in series for _, y in points]
        panels.append((name, series))
        best = found[-1]["tiered_ratio"]
        for share in (0.95, 0.98, 0.99):
            enough = next(row for row in found if all(later["tiered_ratio"] >= share * best for later in found[found.index(row) :]))
            rows.append([name, f"{100 * share:.0f} %", enough["tokens"], f"{enough['tiered_ratio']:.3f} of {best:.3f}"])
    tokens = [x for _, series in panels for _, points in series for x, _ in points]
    image = plots.lines(panels, powers(tokens, 1), "ratio", plots.steps(min(ratios), max(ratios)))
    text = "## How much calibration is enough\n\n" + made_by()
    text += "Codebooks of the first tokens of the calibration text, measured ratio on the other text; arithmetic for "
    text += "the paper's code, whose sixteen exponents need next to nothing:\n\n"
    text += table(["cache", "of the ratio of all tokens", "needs tokens", "ratio"], rows)
    return text + picture(images, "evaluation-calibration.svg", "Ratio by tokens of calibration", image)


def small(result, images):
    panels, rows, ratios = [], [], []
    for name, model in result["models"].items():
        series = []
        for label in ("one tensor", "all tensors"):
            found = [row for row in model["small"] if row["frame"] == label]
            points = [(row["raw_bytes"], row["raw_bytes"] / row["tiered_bytes"]) for row in found]
            series.append((label, points))
            ratios += [y for _, y in points]
            for row in found[:: 1 if label == "one tensor" else 3][:6]:
                rows.append(
                    [
                        name,
                        label,
                        row["tokens"],
                        f"{row['raw_bytes']:,.0f}",
                        f"{row['raw_mode_overhead']:,.0f}",
                        f"{row['tiered_bytes']:,.1f}",
                    ]
                    + [f"{row['raw_bytes'] / row[f'{mode}_bytes']:.3f}" for mode in ("tiered", "fixed4")]
                )
        panels.append((name, series))
    sizes = [x for _, series in panels for _, points in series for x, _ in points]
    ticks = [(size, human(size)) for size, _ in powers(sizes, 4)]
    image = plots.lines(panels, ticks, "ratio of tiered", plots.steps(min(ratios), max(ratios)))
    text = "## Small transfers\n\n" + made_by()
    text += "Frames of the first tokens: of one tensor (mean over all of them), and of all tensors together. The "
    text += "overhead is what a frame of mode raw has "
    text += "beside the values, exactly: header, 48 bytes a tensor, directory, padding. A 4-bit or 2-bit code has to "
    text += "win that back:\n\n"
    text += table(
        [
            "cache",
            "frame of",
            "tokens",
            "raw bytes",
            "overhead in mode raw",
            "bytes, `tiered`",
            "ratio, `tiered`",
            "ratio, `fixed4`",
        ],
        rows,
    )
    return text + picture(images, "evaluation-small.svg", "Ratio by size of the transfer", image)


def pages(result):
    names, rows = list(result["models"]), []
    for place, row in enumerate(result["models"][names[0]]["pages"]):
        unit = "all" if row["unit_tokens"] is None else row["unit_tokens"]
        ratios = [f"{result['models'][name]['pages'][place]['ratio']:.4f}" for name in names]
        rows.append([unit, "each head" if row["heads"] else "all heads", *ratios])
    text = "## Pages\n\n" + made_by()
    text += "Measured ratio of `tiered` if units of so many tokens, of one head or of all heads, can be decoded alone. Only units "
    text += "that do not fill whole vectors of 16 bytes or whole chunks lower the ratio:\n\n"
    return text + table(["tokens", "of", *names], rows)


def channel_bits(result):
    """Range over the caches."""
    groups = [group["all"] for model in result["models"].values() for group in model["table1"].values()]
    bits = [group["entropy"] - group["entropy_given_channel"] for group in groups]
    return f"{min(bits):.2f} to {max(bits):.2f}"


def generated_bits(result):
    found = [entry["arrangements"]["by channel"] for entry in result["generated"]]
    bits = [statistics["entropy"] - statistics["entropy_given_channel"] for statistics in found]
    return f"{min(bits):.2f} to {max(bits):.2f}"


def generated(result):
    text = "## Models that were not available\n\n" + made_by("`python -m eval measure` (`eval/generator.py`)")
    text += "**Not real caches.** These are random numbers whose exponents have the Top-8 and Top-16 coverage and "
    text += "the entropy that the paper publishes for six models, as "
    text += "far as a mixture of two groups of scales can be fitted to them. The published figures do not say "
    text += "whether a scale belongs to a channel, which a calibrated base "
    text += "can use, or changes from value to value, which nothing can. So each model is generated in both ways, "
    text += "and a real cache lies between. In the real caches above, "
    text += f"the channel takes {channel_bits(result)} bits off the entropy; in the generated ones, "
    text += f"{generated_bits(result)}, or nothing.\n\n"
    rows = []
    for entry in result["generated"]:
        top8, top16, entropy = entry["fitted"]
        rows.append([entry["model"], f"{100 * top8:.1f} %", f"{100 * top16:.1f} %", f"{entropy:.2f}"])
    text += "What was fitted (compare Table 1):\n\n" + table(["generated for", "Top-8", "Top-16", "entropy"], rows)
    for label, said in (
        ("by channel", "scales by channel: the best case of channel bases"),
        ("by value", "scales by value: no structure at all"),
    ):
        codecs = list(result["generated"][0]["arrangements"][label]["ratios"])
        rows = []
        for entry in result["generated"]:
            ratios = entry["arrangements"][label]["ratios"]
            best = max(ratios.values())
            rows.append(
                [
                    f"{entry['model']} (generated)",
                    *[f"**{ratios[c]:.3f}**" if ratios[c] == best else f"{ratios[c]:.3f}" for c in codecs],
                ]
            )
        text += f"Ratios, {said}:\n\n" + table(["statistics of", *codecs], rows)
    text += "Without structure `tiered` can fall below `fixed4`; `splitzip analyze` says which mode to "
    text += "use for a cache, before anything is deployed.\n\n"
    text += "### The same tables for a real model\n\n"
    text += "With Qwen3-32B, or any model that `transformers` loads, and two texts:\n\n"
    text += "```sh\npip install torch transformers safetensors accelerate\n"
    text += "tools/dump_kv.py Qwen/Qwen3-32B wikitext2-train.txt qwen3-32b-wikitext2.safetensors --tokens 2048 "
    text += "--device cuda\n"
    text += "tools/dump_kv.py Qwen/Qwen3-32B gsm8k-test.txt qwen3-32b-gsm8k.safetensors --tokens 2048 --device cuda\n"
    text += "eval/run.sh --kv qwen3-32b=qwen3-32b-wikitext2.safetensors,qwen3-32b-gsm8k.safetensors\n```\n\n"
    text += "The model runs in BF16 and needs about 65 GB of memory on the device, or `--device cpu` and more time; a "
    text += "directory with its files can be given instead of the name. "
    text += "2048 tokens are 512 MiB of cache. The files can be copied to another machine; the evaluation needs no "
    text += "GPU and no PyTorch.\n\n"
    return text


def write(result, images):
    text = (
        layers(result, images) + windows(result) + positions(result, images) + rotation(result) + bias(result) + calibration(result, images)
    )
    text += small(result, images) + pages(result) + generated(result)
    return text + systems_page.write(result)
