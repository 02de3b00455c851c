#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command on a large file, beside cp and zstd, by wall clock.

    bench/scripts/cpu_files.py CALIBRATE.safetensors TEST.safetensors FOLDER NAME "what the machine and the folder are" \\
        --command after=build/release/cli/splitzip [--command before=old/splitzip]

Writes bench/results/cpu-files-NAME.json; cpu_report.py renders it. The tensors of the test file, BF16 [heads, tokens, dim], are repeated
token-wise until the file has --gib, each time with other fractions: these seven bits are as good as random, and zstd would find a repetition.
All files lie in FOLDER and their inputs are in memory before. What is written is complete on the disk when a time ends: the command
synchronises its output itself, and for the others `sync` does it. Runs take turns; times are the best of --repeats. zstd is left out where
it is not installed.
"""

import argparse
import datetime
import filecmp
import json
import pathlib
import resource
import shutil
import subprocess
import time

import numpy as np

RESULTS = pathlib.Path(__file__).parent.parent / "results"


def load(path):
    data = pathlib.Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return header, data[8 + size :]


def write_large(path, test, target_bytes):
    header, data = load(test)
    repetitions = max(1, round(target_bytes / len(data)))
    large, at = {}, 0
    noise = np.random.default_rng(0)
    for name, entry in header.items():
        heads, tokens, dim = entry["shape"]
        size = 2 * heads * tokens * dim * repetitions
        large[name] = {"dtype": "BF16", "shape": [heads, tokens * repetitions, dim], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(large).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for entry in header.values():
            begin, end = entry["data_offsets"]
            head_bytes = (end - begin) // entry["shape"][0]
            for head in range(begin, end, head_bytes):
                values = np.frombuffer(data[head : head + head_bytes], np.uint16)
                for _ in range(repetitions):
                    file.write((values ^ noise.integers(0, 128, values.size, np.uint16)).tobytes())


def timed(command):
    """Wall seconds, and seconds of all processors."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(["sh", "-c", command], check=True)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calibrate")
    parser.add_argument("test")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("name")
    parser.add_argument("description")
    parser.add_argument("--command", action="append", required=True, help="LABEL=PATH")
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    arguments = parser.parse_args()
    commands = dict(command.split("=", 1) for command in arguments.command)

    folder = arguments.folder / "splitzip-files"
    folder.mkdir()
    try:
        source, packed, back, other, codebooks = (folder / name for name in ("a.safetensors", "a.szkv", "b", "c", "kv.szcb"))
        write_large(source, arguments.test, arguments.gib * 2**30)
        subprocess.run([next(iter(commands.values())), "calibrate", "-q", arguments.calibrate, "-o", codebooks], check=True)
        size = source.stat().st_size

        cases = [("cp", 1, f"cp {source} {other} && sync {other}", None)]
        for threads in arguments.threads or [1, 2]:
            for label, path in commands.items():
                options = f"-q -f -T{threads} --codebook {codebooks}"
                cases.append((f"compress {label}", threads, f"{path} compress {options} {source} -o {packed}", packed))
                cases.append((f"decompress {label}", threads, f"{path} decompress {options} {packed} -o {back}", None))
            if shutil.which("zstd"):
                zstd = f"zstd -q -f -1 -T{threads}"
                cases.append(("zstd -1", threads, f"{zstd} {source} -o {other} && sync {other}", other))
                cases.append(("zstd -1 -d", threads, f"zstd -q -f -d {other} -o {back} && sync {back}", None))
        results = {}
        for _ in range(arguments.repeats):
            for what, threads, command, result in cases:
                if what == "zstd -1 -d":  # its input must be that of zstd, not of cp
                    assert other.stat().st_size < size
                wall, processors = timed(command)
                best = results.setdefault((what, threads), {"what": what, "threads": threads, "seconds": wall})
                if wall <= best["seconds"]:
                    best |= {"seconds": round(wall, 3), "processor_seconds": round(processors, 3)}
                if result is not None:
                    best["ratio"] = round(size / result.stat().st_size, 4)
                if " -d" in what or what.startswith("decompress"):
                    assert filecmp.cmp(source, back, shallow=False), what
    finally:
        shutil.rmtree(folder)
    for case in results.values():
        print(case)
    path = arguments.output / f"cpu-files-{arguments.name}.json"
    path.write_text(
        json.dumps(
            {
                "machine": arguments.description,
                "bytes": size,
                "repeats": arguments.repeats,
                "date": datetime.date.today().isoformat(),
                "files": list(results.values()),
            },
            indent=1,
        )
        + "\n"
    )
    print(path)


if __name__ == "__main__":
    main()
