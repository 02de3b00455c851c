# SPDX-License-Identifier: Apache-2.0
"""Everything that docs/evaluation.md shows, as one JSON file."""

import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

import numpy as np

import splitzip_kv as sz

from . import ablations, beyond, caches, generator, library, plans

ROOT = pathlib.Path(__file__).parent.parent
BENCH_RESULTS = ROOT / "bench" / "results"


def machine():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def rounded(value):
    """Six digits are more than any table shows."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part) for part in value]
    if isinstance(value, (float, np.floating)):
        return round(float(value), 1) if abs(value) >= 1e5 else float(f"{value:.6g}")
    return int(value) if isinstance(value, np.integer) else value


def base_speeds(command, cache, books):
    """Speed with and without channel bases, by `splitzip bench`: the best of the repetitions."""
    found = plans.bench_in_turns(command, cache, {label: ("--codebook", path) for label, path in books.items()})
    ways = ("encode", "decode", "memcpy")
    return {
        label: {result["mode"]: {way: result[f"{way}_gb_per_s"]["median"] for way in ways} for result in bench["results"]}
        for label, bench in found.items()
    }


def evaluate(model, command, folder):
    calibration, test = model.calibration.tensors, model.test.tensors
    books = {label: folder / f"{model.name}-{label.replace(' ', '-')}.szcb" for label in ("base for each channel", "one base")}
    for (_, path), options in zip(books.items(), ([], ["--one-base"])):
        command.run("calibrate", "-q", "-f", *options, model.calibration.path, "-o", path)
    channel_book = books["base for each channel"]
    codebooks = library.calibrate(calibration)
    symbols = [ablations.all_exponents(tensors) for tensors in (calibration, test)]
    beyond.check_model(symbols[0], codebooks)

    analysis, histograms = {}, {}
    for cache in model.caches:
        analysis[cache.text], histograms[cache.text] = ablations.analyzed(command, cache, channel_book)
    result = {
        "halved": model.halved,
        "files": [cache.file for cache in model.caches],
        "texts": [cache.text for cache in model.caches],
        "tokens": [cache.tokens for cache in model.caches],
        "tensors": len(test),
        "raw_bytes": model.test.raw_bytes,
        "table1": {text: part["groups"] for text, part in analysis.items()},
        "advice": {text: part["advice"] for text, part in analysis.items()},
        "figure5": ablations.layers(
            analysis[model.test.text]["tensors"], histograms[model.test.text], ablations.total_histogram(symbols[0])
        ),
        "table3": ablations.top_k(*symbols),
        "table4": ablations.data_sets(model),
        "table5": ablations.granularity(*symbols, {name: values.shape[1] for name, values in test.items()}),
        "tiers": ablations.tiers(*symbols, calibration, test),
        "base_speeds": base_speeds(command, model.test, books),
        "table6": ablations.escapes(*symbols),
        "table7": ablations.dynamic(*symbols, calibration, test),
        "figure6": ablations.chunk_sizes(*symbols),
        "types": ablations.other_types(calibration, test),
        "positions": beyond.positions(symbols[1], codebooks),
        "rotation": beyond.rotation(symbols[1], codebooks, {name: values.shape[2] for name, values in test.items()}),
        "bias": beyond.biased_keys(calibration, test),
        "calibration": beyond.calibration_amount(calibration, test),
        "small": beyond.small_transfers(test, codebooks),
        "pages": beyond.pages(test, codebooks),
    }
    return result, channel_book


def measure_peers(model, name, described_machine):
    """Table 2's codecs on the CPU."""
    print("other codecs", flush=True)
    program = ROOT / "bench" / "scripts" / "cpu_peers.py"
    subprocess.run([sys.executable, program, model.calibration.path, model.test.path, name, described_machine], check=True)


def plan_again(command_path, output):
    """New plans from the speeds that were measured, and from what bench/results have now."""
    result = json.loads(output.read_text())
    result["plans"] = plans.all_plans(library.Command(command_path), result["hosts"], BENCH_RESULTS)
    save(result, output)


def save(result, output):
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(rounded(result), indent=1) + "\n")
    print(output)


def measure(specifications, command_path, output, described_machine, peers_name):
    command = library.Command(command_path)
    result = {
        "splitzip": sz.__version__,
        "command": command.run("--version").strip(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": described_machine or machine(),
        "processors": os.cpu_count(),
        "date": datetime.date.today().isoformat(),
        "models": {},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for specification in specifications:
            model_name, _, files = specification.partition("=")
            print(model_name, flush=True)
            model = caches.load_model(model_name, files.split(","), folder)
            result["models"][model_name], codebook = evaluate(model, command, folder)
        print("plans", flush=True)
        result["hosts"] = plans.host_speeds(command, model.test, codebook)
        result["plans"] = plans.all_plans(command, result["hosts"], BENCH_RESULTS)
        if peers_name:
            measure_peers(model, peers_name, result["machine"])
    print("generated data", flush=True)
    result["generated"] = generator.rank_codecs()
    save(result, output)
