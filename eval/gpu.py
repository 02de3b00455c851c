# SPDX-License-Identifier: Apache-2.0
"""The part of the evaluation that needs a GPU: the benchmark programs on the caches, into bench/results."""

import ctypes
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from . import caches
from .page import SCRIPTS

import gpu_report  # isort: skip  of bench/scripts, which page has made known
import link_report  # isort: skip

SERVING = SCRIPTS.parent / "serving"
NO_DEVICE = 77  # the programs' status


def missing(*modules):
    """Why a script cannot run; nothing if it can."""
    names = [name for name in modules if importlib.util.find_spec(name) is None]
    return f"there is no {', no '.join(names)}" if names else None


def nvcomp():
    """Options that name nvCOMP's library where its Python package is installed; without them cuda_bench asks the loader."""
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations if found else ():
        for path in pathlib.Path(folder).glob("libnvcomp/lib*/libnvcomp.so.6"):
            return ["--nvcomp", path]
    return []


def scripts(clone):
    """Other projects' codecs: (what it is, why it is left out, command)."""
    no_clone = "SPLITZIP_PAPER_CODE names no clone of it" if not clone else None
    return [
        ("the paper's code", no_clone or missing("torch", "triton"), [SCRIPTS / "paper_triton.py", clone]),
        ("DFloat11", missing("torch", "cupy", "dfloat11", "dahuffman", "tqdm"), [SCRIPTS / "dfloat11_gpu.py"]),
    ]


def gpu_count(driver="libcuda.so.1"):
    """GPUs that CUDA programs see here; 0 where there is no driver."""
    try:
        cuda = ctypes.CDLL(driver)
    except OSError:
        return 0
    count = ctypes.c_int(0)
    return count.value if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


class Runs:
    """Programs that write what they measured to a file of their own; one that fails is left out, with a word."""

    def __init__(self, folder):
        self.folder = folder
        self.files = []
        self.seconds = {}

    def run(self, what, *command, why_not=None, needed=False):
        if why_not is not None:
            print(f"{what}: left out, {why_not}", flush=True)
            return
        print(what, flush=True)
        path = self.folder / f"{len(self.files)}.json"
        start = time.monotonic()
        done = subprocess.run([*map(str, command), "--json", str(path)], check=False)
        self.seconds[what] = round(time.monotonic() - start)
        print(f"{what}: {self.seconds[what]} s", flush=True)
        if needed and (done.returncode == NO_DEVICE or not path.exists()):
            sys.exit(f"{what}: nothing was measured")
        if done.returncode:
            print(f"{what}: status {done.returncode}; what it wrote before is taken", flush=True)
        if path.exists():
            self.files.append(path)


def measure(specifications, build, name):
    """`build` has cuda_bench, two_gpu_bench, planner_bench and libsplitzip.so."""
    os.environ["SPLITZIP_LIBRARY"] = str(build / "src" / "libsplitzip.so")
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        kv = []
        for specification in specifications:
            model_name, _, files = specification.partition("=")
            model = caches.load_model(model_name, files.split(","), folder)
            kv += ["--kv", f"{model.name}={model.calibration.path},{model.test.path}"]
        codecs = Runs(folder)
        codecs.run("codecs on one GPU", build / "bench" / "cuda" / "cuda_bench", *kv, *nvcomp(), needed=True)
        for what, why_not, command in scripts(os.environ.get("SPLITZIP_PAPER_CODE")):
            codecs.run(what, sys.executable, "-B", *command, *kv, why_not=why_not)
        gpu_report.merge(name, codecs.files, seconds=codecs.seconds)
        gpus = gpu_count()
        if gpus < 2:
            print(f"transfers between GPUs: left out, there is {gpus}", flush=True)
            return
        links = Runs(folder / "links")
        links.folder.mkdir()
        links.run("transfers", build / "bench" / "two_gpu" / "two_gpu_bench", *kv[:2], needed=True)
        serving = [sys.executable, "-B", SERVING]
        library = ["--library", os.environ["SPLITZIP_LIBRARY"]]
        links.run("prefill and decode", *serving, "times", why_not=missing("torch"))
        links.run("transfers beside them", *serving, "interference", *library, why_not=missing("torch"))
        links.run("the planner", build / "bench" / "planner" / "planner_bench", *kv[:2])
        link_report.load(name, links.files)
