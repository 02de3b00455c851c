# SPDX-License-Identifier: Apache-2.0
"""The evaluation: figures, and the page that shows them.

    python -m eval gpu --build FOLDER [--kv NAME=CALIBRATION,TEST] ...  # writes bench/results/cuda-local.json
    python -m eval measure [--kv NAME=CALIBRATION,TEST[,MORE...]] ...   # writes eval/results/cpu.json
    python -m eval plan      # its plans again, when bench/results has new speeds
    python -m eval render    # writes docs/evaluation.md and its plots
    python -m eval tables FOLDER    # writes each table of it as CSV
    python -m eval check     # fails if these are not what render would write

Files are safetensors as tools/dump_kv.py makes them. Codebooks come from the first one, the figures from the second
one; all are compared in the tables of data sets. A single file is halved. Without --kv it is the sample in data/.
"""

import argparse
import pathlib
import sys

RESULTS = pathlib.Path(__file__).parent / "results"
SAMPLE = f"smollm2-135m={pathlib.Path(__file__).parents[1] / 'data' / 'smollm2-135m' / 'gsm8k.safetensors'}"


def caches_of(given):
    for specification in given.kv or [SAMPLE]:
        name, equals, files = specification.partition("=")
        if not name or not equals or not files:
            sys.exit(f"--kv {specification}: NAME=FILE,FILE,... is wanted")
    return given.kv or [SAMPLE]


def main():
    parser = argparse.ArgumentParser(prog="python -m eval", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="action", required=True)
    on_gpu = commands.add_parser("gpu")
    on_gpu.add_argument("--build", type=pathlib.Path, required=True, help="where the benchmark programs were built")
    on_gpu.add_argument("--name", default="local", help="of the results (local)")
    measuring = commands.add_parser("measure")
    for parser_with_caches in (on_gpu, measuring):
        parser_with_caches.add_argument("--kv", action="append", metavar="NAME=FILE,...", help="may be repeated")
    measuring.add_argument("--command", default="splitzip", help="the program (splitzip)")
    measuring.add_argument("--output", type=pathlib.Path, default=RESULTS / "cpu.json")
    measuring.add_argument("--machine", help="what the machine is, if its own name does not tell")
    measuring.add_argument(
        "--peers",
        metavar="NAME",
        help="other codecs, too, into bench/results/cpu-peers-NAME.json; needs SPLITZIP_LIBRARY",
    )
    planning = commands.add_parser("plan")
    planning.add_argument("--command", default="splitzip", help="the program (splitzip)")
    planning.add_argument("--output", type=pathlib.Path, default=RESULTS / "cpu.json")
    commands.add_parser("render")
    commands.add_parser("check")
    commands.add_parser("tables").add_argument("folder", type=pathlib.Path)
    given = parser.parse_args()
    if given.action == "gpu":
        from . import gpu

        gpu.measure(caches_of(given), given.build, given.name)
    elif given.action == "measure":
        from . import measure  # needs numpy and splitzip_kv, the report does not

        measure.measure(caches_of(given), given.command, given.output, given.machine, given.peers)
    elif given.action == "plan":
        from . import measure

        measure.plan_again(given.command, given.output)
    elif given.action == "tables":
        from . import tables

        tables.write(given.folder)
    else:
        from . import report

        report.render() if given.action == "render" else report.check()


if __name__ == "__main__":
    main()
