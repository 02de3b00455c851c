# SPDX-License-Identifier: Apache-2.0
"""What happens to files: whole outputs or none, pipes, terminals, links, permissions."""

import os
import pty
import resource
import select
import signal
import subprocess
import time

import pytest

import kv
from conftest import COMMAND, message, run


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def with_default_signals():
    """A run in the background may have been started with signals ignored, which the command respects."""
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_DFL)


def start_half(work, samples, *arguments):
    """A run that has read half of its input from a pipe, and waits for the rest."""
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen([COMMAND, *map(str, arguments)], preexec_fn=with_default_signals, **streams)
    data = (samples / "in.safetensors").read_bytes()
    process.stdin.write(data[: len(data) // 2])
    process.stdin.flush()
    for _ in range(600):
        if any(path.name.endswith(".tmp") for path in work.iterdir()):
            return process
        time.sleep(0.05)
    raise AssertionError("no temporary file appeared")


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_run_removes_its_temporary_file(work, samples, sign):
    process = start_half(work, samples, "compress", "--codebook", samples / "kv.szcb", "-", "-o", "y")
    process.send_signal(sign)
    assert process.wait(60) == -sign
    assert names(work) == []


def test_killed_run_leaves_no_output(work, samples):
    (work / "old").write_bytes(b"old")
    process = start_half(work, samples, "compress", "--codebook", samples / "kv.szcb", "-", "-o", "old", "-f")
    process.kill()
    process.wait(60)
    assert (work / "old").read_bytes() == b"old"
    process = start_half(work, samples, "compress", "--codebook", samples / "kv.szcb", "-", "-o", "new")
    process.kill()
    process.wait(60)
    assert not (work / "new").exists()


def test_failed_run_keeps_what_was_there(work, samples):
    (work / "y").write_bytes(b"old")
    data = (samples / "in.safetensors").read_bytes()
    message("compress", "--codebook", samples / "kv.szcb", "-", "-o", "y", "-f", input=data[:-1])
    assert names(work) == ["y"] and (work / "y").read_bytes() == b"old"


def test_no_overwrite_without_force(work, samples):
    (work / "y").write_bytes(b"old")
    command = ("decompress", "--codebook", samples / "kv.szcb", samples / "out.szkv", "-o", "y")
    assert "y already exists; use -f" in message(*command)
    assert (work / "y").read_bytes() == b"old"
    run(*command, "-f")
    assert (work / "y").read_bytes() == (samples / "in.safetensors").read_bytes()


def test_output_that_appears_meanwhile_is_kept(work, samples):
    process = start_half(work, samples, "compress", "--codebook", samples / "kv.szcb", "-", "-o", "y")
    (work / "y").write_bytes(b"mine")
    data = (samples / "in.safetensors").read_bytes()
    _, errors = process.communicate(data[len(data) // 2 :], timeout=60)
    assert process.returncode == 1 and b"already exists" in errors
    assert names(work) == ["y"] and (work / "y").read_bytes() == b"mine"


@pytest.mark.parametrize("target", ["/dev/full", "-"])
def test_full_device(samples, target):
    with open("/dev/full", "wb") as full:
        text = message("compress", "--codebook", samples / "kv.szcb", samples / "in.safetensors", "-o", target, stdout=full)
    assert "No space left on device" in text


def test_file_size_limit(work, samples):
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
    text = message("compress", "--codebook", samples / "kv.szcb", samples / "in.safetensors", "-o", "y", preexec_fn=limit)
    assert "cannot write y: File too large" in text
    assert names(work) == []


def test_text_that_cannot_be_written(samples):
    with open("/dev/full", "wb") as full:
        assert "cannot write standard output" in message("inspect", samples / "out.szkv", stdout=full)


def test_devices_are_written_directly(samples):
    run("compress", "--codebook", samples / "kv.szcb", samples / "in.safetensors", "-o", "/dev/null")
    assert os.stat("/dev/null").st_rdev == os.makedev(1, 3)


def test_input_is_not_output(work, samples):
    (work / "x").write_bytes((samples / "in.safetensors").read_bytes())
    os.link("x", "hard")
    os.symlink("x", "soft")
    for name in ("x", "./x", "hard", "soft"):
        assert "same file" in message("compress", "--mode", "raw", "x", "-o", name, "-f")
    with open("x", "rb") as stdin:
        assert "same file" in message("compress", "--mode", "raw", "-", "-o", "x", "-f", stdin=stdin)
    assert (work / "x").read_bytes() == (samples / "in.safetensors").read_bytes()


def test_links_stay_links(work, samples):
    (work / "folder").mkdir()
    (work / "folder" / "real").write_bytes(b"old")
    os.symlink("folder/real", "link")
    run("decompress", "--codebook", samples / "kv.szcb", samples / "out.szkv", "-o", "link", "-f")
    assert os.path.islink("link")
    assert (work / "folder" / "real").read_bytes() == (samples / "in.safetensors").read_bytes()
    assert names(work / "folder") == ["real"]


def test_permissions_follow_the_input(work, samples):
    path = work / "x.safetensors"
    path.write_bytes((samples / "in.safetensors").read_bytes())
    for mode in (0o600, 0o640, 0o444):
        path.chmod(mode)
        run("compress", "--mode", "raw", path, "-f")
        assert (work / "x.safetensors.szkv").stat().st_mode & 0o777 == mode & ~0o022


def test_folders_and_missing_files(work, samples):
    assert "cannot open nothing: No such file" in message("compress", "--mode", "raw", "nothing")
    assert "is a directory" in message("compress", "--mode", "raw", ".", "-o", "y")
    assert "is a directory" in message("compress", "--mode", "raw", samples / "in.safetensors", "-o", ".", "-f")
    assert "cannot create a/b: No such file" in message("compress", "--mode", "raw", samples / "in.safetensors", "-o", "a/b")
    assert names(work) == []


def test_default_names(work, samples):
    original = (samples / "in.safetensors").read_bytes()
    for name in ("a.safetensors", "b.safetensors"):
        (work / name).write_bytes(original)
    run("compress", "--codebook", samples / "kv.szcb", "a.safetensors", "b.safetensors")
    (work / "a.safetensors").unlink()
    run("decompress", "--codebook", samples / "kv.szcb", "a.safetensors.szkv")
    assert (work / "a.safetensors").read_bytes() == original
    (work / "plain").write_bytes((samples / "out.szkv").read_bytes())
    assert "does not end in .szkv" in message("decompress", "--codebook", samples / "kv.szcb", "plain", code=2)


def test_one_bad_input_of_several(work, samples):
    original = (samples / "in.safetensors").read_bytes()
    for name, data in {"a": original, "b": b"bad", "c": original}.items():
        (work / name).write_bytes(data)
    text = message("compress", "--codebook", samples / "kv.szcb", "a", "b", "c", "-q")
    assert text.count("\n") == 1 and "splitzip: b: not a safetensors file" in text
    assert names(work) == ["a", "a.szkv", "b", "c", "c.szkv"]


def test_pipes(work, samples):
    packed = run("compress", "--codebook", samples / "kv.szcb", "-", input=(samples / "in.safetensors").read_bytes()).stdout
    assert packed == (samples / "out.szkv").read_bytes()
    back = run("decompress", "--codebook", samples / "kv.szcb", "-", "-o", "-", input=packed).stdout
    assert back == (samples / "in.safetensors").read_bytes()
    assert run("test", "--codebook", samples / "kv.szcb", "-", input=packed).stdout == b""
    assert b"layers.0.k" in run("inspect", "-", input=packed).stdout
    with open("y", "wb") as out:
        run("decompress", "--codebook", samples / "kv.szcb", samples / "out.szkv", "-o", "-", stdout=out)
    assert (work / "y").read_bytes() == back
    run("calibrate", "-", "-o", "x.szcb", "--provenance", "p", input=(samples / "sample.safetensors").read_bytes())
    again = run("calibrate", samples / "sample.safetensors", "-o", "-", "--provenance", "p").stdout
    assert (work / "x.szcb").read_bytes() == again


def test_raw_array_from_a_pipe(work):
    data = kv.values((10, 16))
    assert "needs --shape" in message("compress", "--mode", "raw", "--dtype", "bf16", "-", code=2, input=data)
    array = ("--dtype", "bf16", "--shape", "10,16", "--mode", "raw", "-", "-o", "y")
    assert "ends at byte 318" in message("compress", *array, input=data[:-2])
    assert "bytes after the end" in message("compress", *array, input=data + b"x")
    run("compress", *array, input=data)
    assert run("decompress", "y", "-o", "-").stdout == data


def test_names_that_begin_with_a_dash(work, samples):
    (work / "-x").write_bytes((samples / "in.safetensors").read_bytes())
    run("compress", "--mode", "raw", "--", "-x")
    assert names(work) == ["-x", "-x.szkv"]
    run("decompress", "-o", "-y", "--", "-x.szkv")
    assert (work / "-y").read_bytes() == (work / "-x").read_bytes()


def on_terminal(*arguments, stdin=subprocess.DEVNULL, streams=("stdout", "stderr"), feed=None):
    """Runs with these streams on a terminal; returns the exit code and what was seen there."""
    master, slave = pty.openpty()
    options = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | dict.fromkeys(streams, slave)
    process = subprocess.Popen([COMMAND, *map(str, arguments)], **options)
    os.close(slave)
    if feed is not None:
        feed(process)
    seen = b""
    while True:
        ready, _, _ = select.select([master], [], [], 60)
        try:
            part = os.read(master, 65536) if ready else b""
        except OSError:  # the other side is closed
            break
        if not part:
            break
        seen += part
    os.close(master)
    return process.wait(60), seen.decode()


def test_no_binary_on_a_terminal(work, samples):
    code, seen = on_terminal("decompress", "--codebook", samples / "kv.szcb", samples / "out.szkv", "-o", "-")
    assert code == 2 and "refusing to write binary data to a terminal" in seen
    code, seen = on_terminal("compress", "--mode", "raw", samples / "in.safetensors", "-o", "-")
    assert code == 2 and "refusing" in seen
    code, seen = on_terminal("test", "-", streams=("stdin", "stderr"))
    assert code == 2 and "refusing to read binary data from a terminal" in seen


def slow_feed(samples):
    def feed(process):
        data = (samples / "in.safetensors").read_bytes()
        for start in range(0, len(data), len(data) // 3):
            process.stdin.write(data[start : start + len(data) // 3])
            process.stdin.flush()
            time.sleep(0.4)
        process.stdin.close()

    return feed


def test_progress_on_a_terminal_only(work, samples):
    command = ("compress", "--codebook", samples / "kv.szcb", "-", "-o", "y", "-f")
    code, seen = on_terminal(*command, stdin=subprocess.PIPE, streams=("stderr",), feed=slow_feed(samples))
    assert code == 0 and "\r\x1b[K" in seen and " %" in seen
    code, seen = on_terminal(*command, "-q", stdin=subprocess.PIPE, streams=("stderr",), feed=slow_feed(samples))
    assert code == 0 and seen == ""
    process = subprocess.Popen([COMMAND, *map(str, command)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    slow_feed(samples)(process)
    assert b"\r" not in process.stderr.read() and process.wait(60) == 0
    process.stderr.close()


def test_a_file_of_another_kind_is_named(work, samples):
    run("calibrate", samples / "sample.safetensors", "--save-counts", "counts")
    book, packed, cache = samples / "kv.szcb", samples / "out.szkv", samples / "in.safetensors"
    assert f"{packed} is a *.szkv file, not a safetensors file" in message("compress", "--codebook", book, packed, "-o", "y")
    assert f"{packed} is a *.szkv file, not a safetensors file" in message("calibrate", packed, "-o", "y")
    assert f"{packed} is a *.szkv file, not a codebook set" in message("compress", "--codebook", packed, cache, "-o", "y")
    assert f"{book} is a codebook set, not a *.szkv file" in message("test", book)
    assert f"{book} is a codebook set, not a safetensors file" in message("analyze", book)
    assert "counts is a file of counts, not a *.szkv file" in message("inspect", "counts")
    assert "counts is a file of counts, not a codebook set" in message("compress", "--codebook", "counts", cache, "-o", "y")
    assert names(work) == ["counts"]


def test_full_standard_output_says_why(samples):
    with open("/dev/full", "wb") as full:
        assert "cannot write standard output: No space left on device" in message("inspect", samples / "out.szkv", stdout=full)
