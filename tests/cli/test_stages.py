# SPDX-License-Identifier: Apache-2.0
"""Reading, coding and writing run at the same time: failures of any of them end the run, with the message of the first."""

import os
import pathlib
import resource
import signal
import subprocess

import pytest

import kv
from conftest import COMMAND, message, run

WINDOW = ("--window", "4KiB")


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """in.safetensors of a few hundred frames, out.szkv of it with its codebooks inside, and kv.szcb."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "in.safetensors").write_bytes(kv.safetensors(kv.cache(layers=4, heads=8, tokens=200, dim=64)))
    run("calibrate", folder / "in.safetensors", "-o", folder / "kv.szcb", "-q")
    run(
        "compress",
        "--codebook",
        folder / "kv.szcb",
        "--embed-codebook",
        *WINDOW,
        folder / "in.safetensors",
        "-o",
        folder / "out.szkv",
        "-q",
    )
    return folder


def compress_of(many):
    return ["compress", "--codebook", many / "kv.szcb", "--embed-codebook", *WINDOW]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_same_bytes_from_files_and_pipes(work, many, threads):
    original, packed = ((many / name).read_bytes() for name in ("in.safetensors", "out.szkv"))
    run(*compress_of(many), f"-T{threads}", many / "in.safetensors", "-o", "x")
    assert pathlib.Path("x").read_bytes() == packed
    assert run(*compress_of(many), f"-T{threads}", "-", input=original).stdout == packed
    run("decompress", f"-T{threads}", many / "out.szkv", "-o", "y")
    assert pathlib.Path("y").read_bytes() == original
    assert run("decompress", f"-T{threads}", "-", "-o", "-", input=packed).stdout == original


def start(arguments, ignored=(), **streams):
    def prepare():
        for sign in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sign, signal.SIG_IGN if sign in ignored else signal.SIG_DFL)

    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | streams
    return subprocess.Popen([COMMAND, *map(str, arguments)], preexec_fn=prepare, **streams)


def start_with_open_input(arguments, data, **options):
    """The run gets `data`, but not the end of its input."""
    process = start(arguments, **options)
    try:
        process.stdin.write(data)
        process.stdin.flush()
    except BrokenPipeError:  # it has failed already
        pass
    return process


def errors_of(process, code):
    """Its input is still open: that it ends at all is what is tested."""
    errors = process.stderr.read().decode()
    assert process.wait(60) == code
    try:
        process.stdin.close()
    except BrokenPipeError:
        pass
    return errors


@pytest.mark.parametrize("command", ["compress", "decompress"])
def test_full_device_while_the_input_is_idle(many, command):
    arguments = [*compress_of(many), "-"] if command == "compress" else ["decompress", "-"]
    data = (many / ("in.safetensors" if command == "compress" else "out.szkv")).read_bytes()
    process = start_with_open_input([*arguments, "-o", "/dev/full"], data[: len(data) // 2])
    assert "No space left on device" in errors_of(process, 1)


@pytest.mark.parametrize("ignored", [False, True])
def test_reader_that_goes_away_while_the_input_is_idle(many, ignored):
    read_end, write_end = os.pipe()
    os.close(read_end)
    data = (many / "in.safetensors").read_bytes()
    process = start_with_open_input(
        [*compress_of(many), "-"], data[: len(data) // 2], stdout=write_end, ignored=[signal.SIGPIPE] if ignored else []
    )
    os.close(write_end)
    errors = errors_of(process, 1 if ignored else -signal.SIGPIPE)
    assert errors == ("splitzip: cannot write standard output: Broken pipe\n" if ignored else "")


def test_reader_that_takes_only_a_part(many):
    process = start(["decompress", many / "out.szkv", "-o", "-"])
    assert process.stdout.read(5000) == (many / "in.safetensors").read_bytes()[:5000]
    process.stdout.close()
    assert process.wait(60) == -signal.SIGPIPE
    process.stdin.close()
    process.stderr.close()


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_a_reader_is_slow(work, many, sign):
    process = start(["decompress", many / "out.szkv", "-o", "-"])
    process.stdout.read(1)
    process.send_signal(sign)
    assert process.wait(60) == -sign
    process.communicate()


def test_cut_input(work, many):
    """What came before the end of a cut input is written to a pipe, and nothing to a file."""
    original, packed = ((many / name).read_bytes() for name in ("in.safetensors", "out.szkv"))
    done = run("decompress", "-", "-o", "-", input=packed[: len(packed) // 2], code=1)
    assert b"before the end of" in done.stderr
    assert len(original) // 4 < len(done.stdout) < len(original) and original.startswith(done.stdout)
    message("decompress", "-", "-o", "y", input=packed[: len(packed) // 2])
    message(*compress_of(many), "-", "-o", "y", input=original[: len(original) // 2])
    assert list(work.iterdir()) == []


def test_first_failure_is_reported(work, many):
    packed = bytearray((many / "out.szkv").read_bytes())
    third = len(packed) // 3
    packed[third] ^= 1
    text = message("decompress", "-", "-o", "y", input=packed)
    assert "frame " in text
    assert message("decompress", "-", "-o", "y", input=packed[: 2 * third]) == text
    with open("/dev/full", "wb") as full:
        assert "No space left on device" in message("decompress", "-", "-o", "-", input=packed, stdout=full)
    assert list(work.iterdir()) == []


def test_size_limit_in_the_middle(work, many):
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    assert "cannot write y: File too large" in message("decompress", many / "out.szkv", "-o", "y", preexec_fn=limit)
    assert "cannot write y: File too large" in message(*compress_of(many), many / "in.safetensors", "-o", "y", preexec_fn=limit)
    assert list(work.iterdir()) == []


def test_failed_input_does_not_disturb_the_next(work, many):
    packed = (many / "out.szkv").read_bytes()
    pathlib.Path("a.szkv").write_bytes(packed[: len(packed) // 2])
    pathlib.Path("b.szkv").write_bytes(packed)
    text = message("decompress", "a.szkv", "b.szkv", "-q")
    assert text.count("\n") == 1 and "a.szkv ends at byte" in text
    assert pathlib.Path("b").read_bytes() == (many / "in.safetensors").read_bytes() and not pathlib.Path("a").exists()
