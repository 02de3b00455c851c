# SPDX-License-Identifier: Apache-2.0
"""Pieces that the sections of the page share."""

import pathlib
import sys

SCRIPTS = pathlib.Path(__file__).parent.parent / "bench" / "scripts"
sys.path.insert(0, str(SCRIPTS))
import plots as plots  # those of docs/benchmarks.md, for the sections

MADE_BY = "`python -m eval measure`"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n\n"


def percent(share, digits=2):
    return f"{100 * share:.{digits}f} %"


def human(size):
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.4g} {unit}"
    return f"{size:.0f} B"


def made_by(command=MADE_BY):
    return f"Made by: {command}\n\n"


def picture(images, name, title, image):
    images[name] = image
    return f"![{title}]({name})\n\n"


def powers(values, step=2):
    """Labels for a logarithmic axis over these sizes."""
    low, high = int(min(values)).bit_length() - 1, int(max(values) - 1).bit_length()
    return [(1 << power, str(1 << power)) for power in range(low, high + step, step)]
