#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that code quoted in the documentation is code that the tests compile and run, that links lead somewhere, and that README.md leads to each page.

A quote is a code block after a line `<!-- quote examples/FILE NAME -->`; it must equal, but for indentation, what lies in that file
between the lines `// begin NAME` and `// end NAME` (or `# begin NAME`, or `/* begin NAME */`).
"""

import pathlib
import re
import sys
import textwrap

QUOTE = re.compile(r"^<!-- quote (\S+) (\S+) -->\n+```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def region(text: str, name: str) -> str | None:
    match = re.search(rf"^[ \t]*\S+ begin {name}\b.*?\n(.*?)^[ \t]*\S+ end {name}\b", text, re.MULTILINE | re.DOTALL)
    return textwrap.dedent(match.group(1)).strip() if match else None


LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: pathlib.Path) -> list[str]:
    dead = []
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        if "://" not in path and (not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8")))):
            dead.append(f"{path}#{anchor}" if anchor else path)
    return dead


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    failures = quotes = 0
    for page in sorted(pages):
        text = page.read_text(encoding="utf-8")
        if len(re.findall("^<!-- quote ", text, re.MULTILINE)) != len(QUOTE.findall(text)):
            print(f"{page.relative_to(root)}: a quote line is not followed by a code block")
            failures += 1
        for source, name, quoted in QUOTE.findall(text):
            quotes += 1
            file = root / source
            expected = region(file.read_text(encoding="utf-8"), name) if file.is_file() else None
            if expected is None:
                print(f"{page.relative_to(root)}: {source} has no part named {name}")
                failures += 1
            elif textwrap.dedent(quoted).strip() != expected:
                print(f"{page.relative_to(root)}: the quote of {name} differs from {source}, which has:\n{expected}\n")
                failures += 1
        for link in dead_links(page):
            print(f"{page.relative_to(root)}: a link leads nowhere: {link}")
            failures += 1
    listed = {path for path, _ in LINK.findall((root / "README.md").read_text(encoding="utf-8"))}
    for page in sorted((root / "docs").glob("*.md")):
        if f"docs/{page.name}" not in listed:
            print(f"README.md does not lead to docs/{page.name}")
            failures += 1
    print(f"{quotes} quotes, {failures} failures")
    return 1 if failures or not quotes else 0


if __name__ == "__main__":
    sys.exit(main())
