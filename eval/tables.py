# SPDX-License-Identifier: Apache-2.0
"""The tables of the page as CSV, each row with the machine, version and date that it is from."""

import csv
import json
import re

from . import report

ORIGIN = ("machine", "version", "date")


def origins(bench_results):
    """ORIGIN by the name of a file of results, and by what was measured."""
    found = {}
    for path in sorted(bench_results.glob("c*-*.json")):
        result = json.loads(path.read_text())
        device = result.get("device") or result.get("machine")
        if device:
            version = f"splitzip {result['splitzip']}" if "splitzip" in result else ""
            found[path.name] = found[device] = (device, version, result.get("date", ""))
    return found


def origin_of(text, found, default):
    if "cited" in text:
        return ("cited", "", "")
    named = [origin for name, origin in found.items() if name in text]
    return named[0] if named else default


def cells(line):
    return [cell.strip().replace("`", "").replace("**", "") for cell in line.strip().strip("|").split("|")]


def tables_of(document):
    """(heading, text before it, head, rows) of each table."""
    heading, before, lines = "", "", document.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("#"):
            heading, before = line.lstrip("# "), ""
        elif line.startswith("|") and lines[number + 1 : number + 2] and re.fullmatch(r"(\|---)+\|", lines[number + 1]):
            rows = []
            for row in lines[number + 2 :]:
                if not row.startswith("|"):
                    break
                rows.append(row)
            yield heading, before, line, rows
        elif line and not line.startswith("|"):
            before = line


def write(folder):
    result = json.loads(report.RESULTS.read_text())
    default = (result["machine"], f"splitzip {result['splitzip']}", result["date"])
    found = origins(report.ROOT / "bench" / "results")
    folder.mkdir(parents=True, exist_ok=True)
    for number, (heading, before, head, rows) in enumerate(tables_of(report.documents()[report.DOCUMENT]), 1):
        name = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")[:40].strip("-")
        of_table = origin_of(before, found, default)
        with open(folder / f"{number:02}-{name}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*cells(head), *ORIGIN])
            writer.writerows([*cells(row), *origin_of(row, found, of_table)] for row in rows)
    print(f"{number} tables in {folder}")
