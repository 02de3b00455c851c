#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check what libsplitzip exports, calls and needs.

It exports exactly the listed functions; it neither ends the process nor writes to its streams; it needs no library but those of
the C++ run time.
"""

import argparse
import pathlib
import re
import subprocess
import sys

FORBIDDEN = re.compile(
    r"^(abort|exit|_exit|_Exit|quick_exit|(v|f|d|vf|vd)?printf|__(v|f|vf)?printf_chk|puts|fputs|putchar|putc|fputc|fwrite|perror"
    r"|stdout|stderr|_ZSt4cout|_ZSt4cerr|_ZSt4clog|_ZNSt8ios_base4InitC[12]Ev|getenv|secure_getenv)$"
)
NEEDED = re.compile(r"^(libstdc\+\+|libm|libgcc_s|libc|libpthread|libdl|librt|ld-linux[\w-]*)\.so(\.\d+)*$")


def run(*command: str) -> list[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def names(lines: list[str]) -> set[str]:
    return {line.split()[-1].split("@")[0] for line in lines if line and not line.endswith(":")}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", required=True)
    parser.add_argument("--static", required=True)
    parser.add_argument("exports", nargs="+")
    arguments = parser.parse_args()
    failures = []

    listed = [line.strip() for path in arguments.exports for line in pathlib.Path(path).read_text("utf-8").splitlines()]
    listed = {line for line in listed if line and not line.startswith("#")}
    exported = names(run("nm", "-D", "--defined-only", arguments.shared))
    failures += [f"exported, but not listed: {name}" for name in sorted(exported - listed)]
    failures += [f"listed, but not exported: {name}" for name in sorted(listed - exported)]

    # The archive has our own objects alone; the shared library may hold the CUDA run time, which does call such functions.
    called = names(run("nm", "-u", arguments.static))
    failures += [f"must not be called by a library: {name}" for name in sorted(called) if FORBIDDEN.match(name)]

    dynamic = run("readelf", "-d", arguments.shared)
    needed = [m.group(1) for line in dynamic if (m := re.search(r"\(NEEDED\).*\[(.+)\]", line))]
    failures += [f"needs the library {name}" for name in needed if not NEEDED.match(name)]

    print("\n".join(failures) if failures else f"{len(exported)} exported functions, {len(needed)} libraries needed")
    return 1 if failures or not exported or not called else 0


if __name__ == "__main__":
    sys.exit(main())
