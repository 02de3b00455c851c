#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that includes follow the arrows of CONTRIBUTING.md, that no Python modules import each other in a circle, and that each source
file says its licence first."""

import ast
import graphlib
import pathlib
import re
import sys

PUBLIC = "splitzip"
CORE = ("common", "format", "codebook")
# A folder of src/ may include from itself, from the public C headers and from these.
ARROWS = {
    "common": (),
    "format": ("common",),
    "codebook": ("common", "format"),
    "cpu": CORE,
    "cuda": CORE,
    "capi": (*CORE, "cpu", "cuda"),
}
# What folders outside of src/ may include of the project; tests and benchmarks may look inside.
OUTSIDE = {
    "include": (PUBLIC,),
    "cli": (PUBLIC, "common", "format"),
    "examples": (PUBLIC,),
    "python": (PUBLIC,),
}
SOURCES = ("c", "h", "cpp", "hpp", "cu", "cuh", "py", "cmake", "sh")
FOLDERS = ("include", "src", "cli", "python", "tests", "fuzz", "bench", "eval", "examples", "tools", "cmake", "docs")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def allowed(path: pathlib.PurePath, include: str) -> bool:
    top = path.parts[0]
    if "/" not in include:
        return top != "include"  # a neighbour
    if top == "src":
        folder = path.parts[1]
        if include.startswith(PUBLIC + "/"):
            return include.endswith(".h")
        return include.split("/")[0] in (folder, *ARROWS[folder])
    return top not in OUTSIDE or include.split("/")[0] in OUTSIDE[top]


def problems(root: pathlib.Path):
    files = [p for f in FOLDERS for p in sorted((root / f).rglob("*")) if p.suffix[1:] in SOURCES and p.is_file()]
    files += sorted(root.rglob("CMakeLists.txt"))
    for file in files:
        path = file.relative_to(root)
        if path.parts[0] == "build":
            continue
        text = file.read_text(encoding="utf-8")
        if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(text.split("\n")[:2]):
            yield f"{path}: the first lines do not say SPDX-License-Identifier: Apache-2.0"
        if path.suffix[1:] in ("c", "h", "cpp", "hpp", "cu", "cuh"):
            for match in INCLUDE.finditer(text):
                if not allowed(path, match.group(1)):
                    line = text.count("\n", 0, match.start(1)) + 1
                    yield f'{path}:{line}: the arrows of CONTRIBUTING.md do not allow #include "{match.group(1)}"'


def imports(node: ast.AST):
    """Relative imports, in functions, too; not those that are there for annotations alone."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    if isinstance(node, ast.ImportFrom) and node.level:
        yield node
    for child in ast.iter_child_nodes(node):
        yield from imports(child)


def circles(package: pathlib.Path):
    files = {}
    for file in package.rglob("*.py"):
        *folders, name = file.relative_to(package.parent).with_suffix("").parts
        files[(*folders,) if name == "__init__" else (*folders, name)] = file
    arrows: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for module, file in files.items():
        here = module if file.name == "__init__.py" else module[:-1]
        arrows[module] = set()
        for node in imports(ast.parse(file.read_text(encoding="utf-8"))):
            base = here[: len(here) - node.level + 1] + tuple(node.module.split(".") if node.module else ())
            for alias in node.names:
                arrows[module].add((*base, alias.name) if (*base, alias.name) in files else base)
        arrows[module] -= {module}
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError as error:
        yield "modules import each other in a circle: " + " -> ".join(".".join(module) for module in error.args[1])


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    found = [*problems(root), *circles(root / "python" / "src" / "splitzip_kv"), *circles(root / "eval")]
    print("\n".join(found) if found else "licence lines, include arrows and imports are right")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
