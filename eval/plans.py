# SPDX-License-Identifier: Apache-2.0
"""What `splitzip plan` says of transfers between prefill and decode workers."""

import json
import pathlib
import tempfile

from . import published

SIZES = {"1 MiB": 1 << 20, "64 MiB": 1 << 26, "1 GiB": 1 << 30, "16 GiB": 1 << 34}
HOST_LINKS = ["1Gbit/s", "2.5Gbit/s", "5Gbit/s", "10Gbit/s", "25Gbit/s", "100Gbit/s"]
DEVICE_LINKS = ["12.5GB/s", "25GB/s", "50GB/s", "100GB/s", "200GB/s", "400GB/s"]
LATENCY = "20us"


def plan(command, speeds, links):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "speeds.json"
        path.write_text(json.dumps(speeds))
        for link in links:
            sizes = [part for size in SIZES.values() for part in ("--bytes", size)]
            result = command.json("plan", "--speeds", path, "--link", link, "--latency", LATENCY, *sizes)
            for (label, _), found in zip(SIZES.items(), result["plans"]):
                kept = {key: found[key] for key in ("way", "slice_bytes", "seconds", "plain_seconds", "bound", "reason")}
                rows.append({"link": link, "size": label, **kept})
    return rows


def best_of(runs):
    """Of several outputs of `splitzip bench --json` one, with the best of all repetitions in place of the median, since
    other programs may have run beside. Ratios are the same in all of them."""
    best = runs[0]
    for number, result in enumerate(best["results"]):
        for key in [key for key in result if key.endswith("gb_per_s")]:
            result[key] = {"median": max(run["results"][number][key]["highest"] for run in runs)}
        for key in [key for key in result if key.endswith("call_seconds")]:
            result[key] = min(run["results"][number][key] for run in runs)
    return best


def bench_in_turns(command, cache, options_by_label, rounds=6, repeats=15):
    """Each way to run `splitzip bench`, in turns, so that a busy moment does not meet one of them alone."""
    runs = {label: [] for label in options_by_label}
    for _ in range(rounds):
        for label, options in options_by_label.items():
            runs[label].append(command.json("bench", cache.path, "--rows", "--repeats", repeats, *options))
    return {label: best_of(found) for label, found in runs.items()}


def published_speeds():
    """The paper's code at the paper's speeds, as `splitzip bench --json` says it. What a call costs is not known: 0."""
    ratio, encode, decode = published.CODECS["SplitZip"]
    result = {"mode": "fixed4", "ratio": ratio, "encode_call_seconds": 0.0, "decode_call_seconds": 0.0}
    return {
        "threads": 1,
        "results": [result | {"encode_gb_per_s": {"median": encode}, "decode_gb_per_s": {"median": decode}}],
    }


def device_speeds(path):
    """Of bench/results/cuda-*.json: large calls with checksums; the smallest ones for the cost of a call."""
    rows = [row for row in json.loads(path.read_text())["rows"] if "failure" not in row and row.get("checksums") is True]
    results = []
    for mode in ("tiered", "fixed4"):
        large = [row for row in rows if row["group"] == "main" and row["codec"] == mode]
        small = [row for row in rows if row["group"] == "sizes" and row["codec"] == mode]
        if not large:
            continue
        row = large[0]
        entry = {"mode": mode, "ratio": row["ratio"]}
        for way in ("encode", "decode"):
            rate = row["bytes"] / row[way]["us"][1] / 1000
            least = min(small, key=lambda r: r["bytes"]) if small else None
            entry[f"{way}_gb_per_s"] = {"median": rate}
            entry[f"{way}_call_seconds"] = max(0.0, least[way]["us"][1] * 1e-6 - least["bytes"] / rate / 1e9) if least else 0.0
        results.append(entry)
    return {"threads": 1, "results": results}


def host_speeds(command, cache, codebook_path):
    measured = bench_in_turns(command, cache, {"one thread": ("--codebook", codebook_path)})
    return {label: bench | {"file": cache.file} for label, bench in measured.items()}


def all_plans(command, hosts, bench_results):
    """`hosts`: what `host_speeds` measured. GPU speeds are those of bench/results, and the paper's."""
    made = [
        {
            "codec": f"CPU, {label}, as measured here",
            "speeds": bench["results"],
            "plans": plan(command, bench, HOST_LINKS),
        }
        for label, bench in hosts.items()
    ]
    for path in sorted(bench_results.glob("cuda-*.json")):
        speeds = device_speeds(path)
        if speeds["results"]:
            made.append(
                {
                    "codec": f"GPU, `{path.name}`",
                    "speeds": speeds["results"],
                    "plans": plan(command, speeds, DEVICE_LINKS),
                }
            )
    speeds = published_speeds()
    made.append(
        {
            "codec": "GPU, the paper's code at the paper's speeds (cited)",
            "speeds": speeds["results"],
            "plans": plan(command, speeds, DEVICE_LINKS),
        }
    )
    return made
