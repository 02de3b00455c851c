# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import subprocess

import pytest

import kv

COMMAND = os.environ["SPLITZIP_COMMAND"]


def run(*arguments, code=0, **options):
    """The command with these arguments; it must end with this exit code. Standard input is empty unless given."""
    if "stdin" not in options:
        options.setdefault("input", b"")
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    done = subprocess.run([COMMAND, *map(str, arguments)], timeout=300, check=False, **options)
    errors = (done.stderr or b"").decode(errors="replace")
    assert done.returncode == code, errors
    assert "terminate called" not in errors and "Sanitizer" not in errors, errors
    return done


def message(*arguments, code=1, **options):
    """What the command says on standard error when it fails."""
    return run(*arguments, code=code, **options).stderr.decode()


@pytest.fixture
def work(tmp_path, monkeypatch):
    """An empty folder, which is also the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def samples(tmp_path_factory):
    """in.safetensors of two layers, kv.szcb of other data of the same tensors, out.szkv of both."""
    folder = tmp_path_factory.mktemp("samples")
    (folder / "sample.safetensors").write_bytes(kv.safetensors(kv.cache(seed=100)))
    (folder / "in.safetensors").write_bytes(kv.safetensors(kv.cache(), {"made": "by the tests"}))
    run("calibrate", folder / "sample.safetensors", "-o", folder / "kv.szcb", "-q")
    run("compress", "--codebook", folder / "kv.szcb", folder / "in.safetensors", "-o", folder / "out.szkv", "-q")
    return folder


def round_trip(path, *compress_options, codebook=None, decompress_options=()):
    """Compress and decompress in the folder of `path`; returns the compressed file."""
    packed, back = pathlib.Path(f"{path}.packed"), pathlib.Path(f"{path}.back")
    book = ("--codebook", codebook) if codebook else ()
    run("compress", *book, path, "-o", packed, "-f", "-q", *compress_options)
    run("decompress", *(() if "--embed-codebook" in compress_options else book), packed, "-o", back, "-f", "-q", *decompress_options)
    assert back.read_bytes() == pathlib.Path(path).read_bytes()
    return packed
