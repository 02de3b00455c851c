# SPDX-License-Identifier: Apache-2.0
"""The package as its users get it: version, types, examples, wheel and source distribution."""

import ast
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest

import splitzip_kv
from splitzip_kv import _core

PACKAGE = pathlib.Path(splitzip_kv.__file__).parent
PROJECT = pathlib.Path(__file__).resolve().parents[1]
EXAMPLES = sorted((PROJECT.parent / "examples").glob("*.py"))
HEADER = (PROJECT / "library/include/splitzip/version.h").read_text(encoding="utf-8")


def test_version_is_that_of_the_header():
    [version] = re.findall(r'SPLITZIP_VERSION_STRING "(.*)"', HEADER)
    [format_version] = re.findall(r"SPLITZIP_FORMAT_VERSION (\d+)", HEADER)
    assert splitzip_kv.__version__ == version and int(format_version) == splitzip_kv.FORMAT_VERSION
    try:
        assert importlib.metadata.version("splitzip-kv") == version
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed")


def stub_signature(function: ast.FunctionDef) -> list[str]:
    names = function.args
    return [a.arg for a in names.posonlyargs + names.args + names.kwonlyargs if a.arg != "self"]


def real_signature(function: object) -> list[str]:
    [(text, *_)] = function.__nb_signature__
    [parsed] = ast.parse(re.sub(r"\\\d+", "...", text) + ": ...").body
    return stub_signature(parsed)


def test_the_stub_is_true():
    stub = ast.parse((PACKAGE / "_core.pyi").read_text(encoding="utf-8"))
    told = {node.name for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    told |= {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)}
    assert told == {name for name in dir(_core) if not name.startswith("_")}
    for node in stub.body:
        real = getattr(_core, getattr(node, "name", ""), None)
        if isinstance(node, ast.FunctionDef):
            assert stub_signature(node) == real_signature(real), node.name
        elif isinstance(node, ast.ClassDef) and issubclass(real, int):
            assert {n.targets[0].id: n.value.value for n in node.body if isinstance(n, ast.Assign)} == real.__members__
        elif isinstance(node, ast.ClassDef):
            members = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
            public = {name for name in vars(real) if not name.startswith("_")}
            assert public == {name for name in members if not name.startswith("_")}, node.name
            for name, member in members.items():
                attribute = getattr(real, name)
                if not isinstance(attribute, property) and hasattr(attribute, "__nb_signature__"):
                    assert stub_signature(member) == real_signature(attribute), name


def test_all_names_are_there():
    assert (PACKAGE / "py.typed").is_file()
    assert all(hasattr(splitzip_kv, name) for name in splitzip_kv.__all__)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples(example):
    done = subprocess.run([sys.executable, "-B", "-W", "error", example], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"ratio ([\d.]+)", done.stdout)[1]) > 1.3


def test_without_ml_dtypes_and_torch():
    script = """
import sys
sys.modules["ml_dtypes"] = sys.modules["torch"] = None
import numpy, splitzip_kv as s
half = numpy.arange(999, dtype=numpy.float16)
assert (s.decompress(s.compress(half, "token"), "token") == half).all()
layout = s.Layout(half.view(numpy.uint16), "token", type=s.ElementType.BF16)
frame = s.encode([layout.tensor()], [layout])
try:
    s.decompress(frame, "token")
except ImportError as error:
    assert "ml_dtypes" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """A source distribution of the tree, and a wheel made from it alone."""
    pytest.importorskip("build")
    out = tmp_path_factory.mktemp("dist")
    # Kernels take minutes to compile, and so does what makes code fast.
    environment = {**os.environ, "SKBUILD_CMAKE_DEFINE": "SPLITZIP_CUDA=OFF;CMAKE_CXX_FLAGS_RELEASE=-O0"}
    subprocess.run([sys.executable, "-m", "build", "-q", "--outdir", out, PROJECT], check=True, env=environment)
    [source] = out.glob("*.tar.gz")
    [wheel] = out.glob("*.whl")
    return source, wheel


@pytest.mark.slow
def test_what_is_distributed(distributions):
    source, wheel = distributions
    [version] = re.findall(r'SPLITZIP_VERSION_STRING "(.*)"', HEADER)
    assert source.name == f"splitzip_kv-{version}.tar.gz"
    with tarfile.open(source) as archive:
        members = archive.getmembers()
        assert all(m.isfile() or m.isdir() for m in members)
        names = {m.name.split("/", 1)[1] for m in members}
    assert {"PKG-INFO", "CMakeLists.txt", "csrc/module.cpp", "library/src/capi/codec.cpp", "library/LICENSE"} <= names
    assert {"library/headers/xxhash.h", "library/headers/hwy/highway.h"} <= names
    names = zipfile.ZipFile(wheel).namelist()
    assert all(name.startswith(("splitzip_kv/", f"splitzip_kv-{version}.dist-info/")) for name in names)
    assert {"splitzip_kv/py.typed", "splitzip_kv/_core.pyi", "splitzip_kv/__init__.py"} <= set(names)
    assert sum(name.endswith(".so") for name in names) == 1
    assert not any("tests/" in name or name.endswith((".cpp", ".hpp", ".a")) for name in names)
    assert {"LICENSE", "xxhash.txt", "nanobind.txt"} <= {
        name.rsplit("/", 1)[1] for name in names if "/licenses/" in name
    }


@pytest.mark.slow
def test_the_wheel_in_a_new_environment(distributions, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env/bin/python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    packages = [distributions[1], "ml_dtypes"]
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages], check=True, env=environment
    )
    for example in EXAMPLES:
        subprocess.run([python, example], check=True, env=environment, cwd=tmp_path)
    version = "import importlib.metadata as m, splitzip_kv as s; assert m.version('splitzip-kv') == s.__version__"
    subprocess.run([python, "-c", version], check=True, env=environment, cwd=tmp_path)
