# SPDX-License-Identifier: Apache-2.0
"""The last part of the page: prefill-decode systems, and where the codec does not help."""

from .page import MADE_BY, made_by, table
from .plans import LATENCY, SIZES

SYSTEMS = [
    [
        "Splitwise",
        "a request's whole cache, from prompt machine to token machine",
        "layer by layer during the prefill of long prompts, at its end for short ones",
        "InfiniBand between machines",
        "the last layers' transfer is what a user waits for: those are encoded layer by layer, too",
    ],
    [
        "DistServe",
        "a request's whole cache, pulled by the decode instance",
        "after the prefill",
        "NVLink where placement can keep both stages of a layer range in one machine, the network otherwise",
        "placement may use slower links; over NVLink see the row of 400 GB/s",
    ],
    [
        "FlowKV",
        "blocks of the cache, laid out so that they move in few pieces",
        "after the prefill, to a node that the scheduler picks by load",
        "the network or links inside of a machine",
        "a frame is one piece, whatever the pages are; the two gains are different ones and add up",
    ],
    [
        "Mooncake",
        "blocks of prefixes, from and to a pooled store, and caches from prefill to decode",
        "while layers are computed, and when a prefix is found",
        "RDMA, several cards a machine; host memory and SSD",
        "the store holds nearly half as much again, and each read is shorter ([store.md](store.md), [transfer.md](transfer.md))",
    ],
    [
        "Dynamo",
        "blocks, between GPUs, and down to host memory and storage",
        "after the prefill, and when blocks are evicted or found again",
        "NIXL over NVLink, InfiniBand, files",
        "the slower the tier, the nearer the gain to the ratio",
    ],
]


def milliseconds(seconds):
    return f"{1000 * seconds:,.0f}" if seconds >= 1 else f"{1000 * seconds:.3g}"


def speed(rate):
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.2f}"


def plan_tables(result):
    text = ""
    for made in result["plans"]:
        speeds = [
            f"`{s['mode']}` {s['ratio']:.3f}, {speed(s['encode_gb_per_s']['median'])} and {speed(s['decode_gb_per_s']['median'])} GB/s"
            for s in made["speeds"]
        ]
        hidden = max(min(s[f"{way}_gb_per_s"]["median"] for way in ("encode", "decode")) / s["ratio"] for s in made["speeds"])
        text += f"**{made['codec']}**; ratio, encode and decode: {'; '.join(speeds)}. In a steady pipeline the codec "
        text += f"is hidden up to a link of {speed(hidden)} GB/s.\n\n"
        cells = {}
        for row in made["plans"]:
            gain = row["plain_seconds"] / row["seconds"]
            shown = (
                "plain"
                if row["way"] == "plain"
                else f"{row['way']}, {milliseconds(row['plain_seconds'])} to {milliseconds(row['seconds'])}, x{gain:.2f}"
            )
            cells.setdefault(row["link"], {})[row["size"]] = shown
        text += table(["link", *SIZES], [[link, *[found[size] for size in SIZES]] for link, found in cells.items()])
    return text


def systems(result):
    text = "## Among prefill-decode systems\n\n"
    text += "What each moves, when, and over what, from its publications (not measured here), and what a smaller "
    text += "cache changes:\n\n"
    text += table(["system", "moves", "when", "over", "with compression"], SYSTEMS)
    text += "All of them move the cache over a link that is slower than memory, and as published, none compresses it "
    text += "without loss; so the "
    text += "codec sits between their pages and their transfer engine. "
    text += "Whether it pays is arithmetic on measured speeds, the planner's:\n\n"
    text += made_by(
        f"`splitzip bench --json` and `splitzip plan --speeds FILE --link LINK --latency {LATENCY} --bytes SIZE --json`, by {MADE_BY}"
    )
    text += 'Predicted milliseconds from plain to the plan, and the gain; "plain" where the planner leaves the '
    text += "codec out. These are predictions of a model, "
    text += "not measurements of systems. The last table can be compared with what the paper measured end to end: KV "
    text += "transfer 1.22 to 1.32 times faster at its largest points, and "
    text += "less or a loss for short sequences (cited). It assumes that a call of the paper's code costs no time beside its bytes, since that is "
    text += "not published, so that its short transfers look better than they can be; calls of ours cost what small ones "
    text += "took:\n\n"
    return text + plan_tables(result)


def worst_layer(model):
    return min(model["figure5"], key=lambda row: row["tiered_ratio"])


def limits(result):
    """Each with the number that says so."""
    models = result["models"]
    items = []
    for name, model in models.items():
        alone = [row for row in model["small"] if row["frame"] == "one tensor"]
        first = alone[0]
        smaller = next((row for row in alone if row["tiered_bytes"] < row["raw_bytes"]), None)
        said = f"{name}: a single token of one tensor, {first['raw_bytes']:.0f} bytes, becomes {first['tiered_bytes']:.0f}"
        items.append(said + (f"; from {smaller['raw_bytes']:.0f} bytes on a frame is smaller than its values" if smaller else ""))
    text = "**Very small transfers.** " + ". ".join(items) + ".\n\n"

    said = []
    for made in result["plans"]:
        plain = {}
        for row in made["plans"]:
            if row["way"] == "plain" and "cited" not in made["codec"]:
                plain.setdefault(row["link"], []).append(row["size"])
        links = [f"{link} ({'any size' if len(sizes) == len(SIZES) else ', '.join(sizes)})" for link, sizes in plain.items()]
        said += [f"{made['codec']}: {', '.join(links)}"] if links else []
    if said:
        text += "**Links that are faster than the codec, or transfers that are too short for it.** The planner leaves it out: "
        text += "; ".join(said) + ".\n\n"

    parts = []
    for name, model in models.items():
        found = {row["type"]: row for row in model["types"]}
        parts.append(
            f"{name}: `fixed4` {found['fp8_e4m3']['fixed4_ratio']:.3f}, `tiered` "
            f"{found['fp8_e4m3']['tiered_ratio']:.3f}; FP16 {found['fp16']['tiered_ratio']:.3f}"
        )
    text += "**Types with few bits of exponent.** FP8 E4M3, " + ", and ".join(parts) + ". Integers have no exponent "
    text += "at all, and what an attention variant has "
    text += "already quantised and packed stays as large as it is.\n\n"

    loser = [
        entry["model"]
        for entry in result["generated"]
        if entry["arrangements"]["by value"]["ratios"]["splitzip tiered"] < entry["arrangements"]["by value"]["ratios"]["the paper's code"]
    ]
    if loser:
        text += "**Values whose scale the channel does not tell.** Generated data without structure, with the statistics of " + ", ".join(
            loser
        )
        text += ", takes more bytes in `tiered` than in the paper's code (above).\n\n"
    shuffle = [
        e["model"]
        for e in result["generated"]
        if max(e["arrangements"]["by value"]["ratios"], key=e["arrangements"]["by value"]["ratios"].get)
        not in ("splitzip tiered", "splitzip fixed4", "the paper's code")
    ]
    if shuffle:
        text += f"An entropy coder is smaller there in {len(shuffle)} of {len(result['generated'])} cases; its speed "
        text += "is in Table 2.\n\n"

    parts = []
    for name, model in models.items():
        worst = worst_layer(model)
        drift = min(
            (row for row in model["table4"] if row["calibrated"] != row["measured"]),
            key=lambda row: row["tiered_ratio"],
        )
        parts.append(
            f"{name}: lowest layer {worst['name']} with {worst['tiered_ratio']:.3f}; "
            f"lowest on another text {drift['tiered_ratio']:.3f} "
            f"({drift['calibrated']} to {drift['measured']})"
        )
    text += "**Some layers and some texts.** " + ". ".join(parts) + ".\n\n"

    parts = []
    for name, model in models.items():
        least = min(model["calibration"], key=lambda row: row["tiered_ratio"])
        parts.append(
            f"{name}: {least['tiered_ratio']:.3f} from {least['tokens']} of them, where the paper's code has {least['paper_ratio']:.3f}"
        )
    text += "**A few tokens of calibration.** The worst codebooks above, " + "; ".join(parts) + ".\n\n"

    parts = [
        f"{name}: {model['table7']['dynamic']['encode_gb_per_s'] / model['table7']['static']['encode_gb_per_s']:.4f}"
        for name, model in models.items()
    ]
    text += "**Codebooks made for every request.** Share of the encoder's speed that is left (Table 7): "
    text += ", ".join(parts) + ".\n\n"

    first = next(iter(models.values()))["table1"]
    group = next(iter(first.values()))["all"]
    text += "**More than half.** Seven bits of mantissa and a sign are verbatim; with all of the exponent's entropy "
    text += "given its channel gone, "
    text += f"the ratio would be {16 / 8:.2f}, and at the {group['entropy_given_channel']:.2f} bits that are there "
    text += f"it cannot pass {16 / (8 + group['entropy_given_channel']):.3f}.\n\n"
    return text


def limits_of_the_page(result):
    sizes = [f"{name} ({', '.join(map(str, sorted(set(model['tokens']))))} tokens)" for name, model in result["models"].items()]
    text = "**What this page does not show.** Real caches are those of " + " and ".join(sizes) + "; "
    if {"smollm2-135m", "gemma3-270m"} & set(result["models"]):
        text += "SmolLM2's and Gemma's come from weights of 4 bits, run in BF16. Models whose keys have a bias "
        text += "(simulated above), and long contexts, were not available. "
    else:
        text += "what they do not cover was not measured. "
    text += "The six models of the paper are generated data. The paper's end-to-end times are of an engine between "
    text += "machines, which were not available; what stands for them is in [links.md](links.md). Plans are predictions. "
    if not any(made["codec"].startswith("GPU, `") for made in result["plans"]):
        text += "No plan for a GPU is built on a measurement of this library."
    return text.strip() + "\n\n"


def write(result):
    return systems(result) + "## Where the codec does not help\n\n" + limits(result) + limits_of_the_page(result)
