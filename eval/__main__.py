# SPDX-License-Identifier: Apache-2.0
"""The evaluation: figures, and the page that shows them.

    python -m eval measure [--kv NAME=CALIBRATION,TEST[,MORE...]] ...   # writes eval/results/cpu.json
    python -m eval plan      # its plans again, when bench/results has new speeds
    python -m eval render    # writes docs/evaluation.md and its plots
    python -m eval check     # fails if these are not what render would write

Files are safetensors as tools/dump_kv.py makes them. Codebooks come from the first one, the figures from the second
one; all are compared in the tables of data sets. A single file is halved. Without --kv it is the sample in data/.
"""

import argparse
import pathlib

RESULTS = pathlib.Path(__file__).parent / "results"


def main():
    parser = argparse.ArgumentParser(
        prog="python -m eval", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="action", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--kv", action="append", default=[], metavar="NAME=FILE,...", help="may be repeated")
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
    given = parser.parse_args()
    if given.action == "measure":
        from . import measure  # needs numpy and splitzip_kv, the report does not

        measure.measure(given.kv, given.command, given.output, given.machine, given.peers)
    elif given.action == "plan":
        from . import measure

        measure.plan_again(given.command, given.output)
    else:
        from . import report

        report.render() if given.action == "render" else report.check()


if __name__ == "__main__":
    main()
