# SPDX-License-Identifier: Apache-2.0
"""Help, version, verbosity, and command lines that are wrong: exit code 2, and nothing on standard output."""

import pathlib
import re

import pytest

from conftest import message, run

COMMANDS = ["calibrate", "compress", "decompress", "inspect", "test", "bench", "analyze", "plan"]


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_is_on_standard_output(command):
    for flag in ("-h", "--help"):
        done = run(*command, flag)
        assert done.stderr == b""
        assert ("Usage: splitzip " + " ".join(command)).encode().strip() in done.stdout
    assert b"Exit codes: 0 done" in run("--help").stdout
    assert b"splitzip COMMAND --help" in run("--help").stdout


def test_version():
    done = run("-V")
    assert re.fullmatch(rb"splitzip \d+\.\d+\.\d+, format \d+\n", done.stdout) and done.stderr == b""
    assert run("--version").stdout == done.stdout


def test_nothing_asked():
    done = run(code=2)
    assert done.stdout == b"" and b"Subcommands:" in done.stderr


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["explode", "it"], "no command of that name: explode it"),
        (["inspect", "--first", "--second", "x"], "not expected: --first --second"),
        (["compress", "--bad"], "not expected: --bad"),
        (["--bad"], "not expected: --bad"),
        (["compress"], "no input file"),
        (["compress", "x"], "needs --codebook FILE"),
        (["compress", "--mode", "best", "x"], "best"),
        (["compress", "--mode", "raw", "--embed-codebook", "x"], "--embed-codebook needs --codebook FILE"),
        (["compress", "x", "-o"], "--output"),
        (["compress", "--mode", "raw", "--window", "1KiB", "x"], "--window"),
        (["compress", "--mode", "raw", "--window", "2GiB", "x"], "--window"),
        (["compress", "--mode", "raw", "--window", "much", "x"], "--window"),
        (["compress", "--mode", "raw", "--unit-tokens", "-1", "x"], '--unit-tokens: "-1" is no whole number'),
        (["compress", "--mode", "raw", "--dtype", "u8", "--shape", "-1", "x"], '--shape: "-1" is no whole number'),
        (["compress", "--mode", "raw", "--dtype", "u8", "--shape", "8,x", "x"], '--shape: "x" is no whole number'),
        (["compress", "--mode", "raw", "--threads", "-1", "x"], '--threads: "-1" is no whole number from 0 to 4096'),
        (["compress", "--mode", "raw", "--threads", "4097", "x"], '--threads: "4097" is no whole number from 0 to 4096'),
        (["compress", "--mode", "raw", "-T", "many", "x"], '--threads: "many" is no whole number'),
        (["calibrate", "x"], "needs -o FILE or --save-counts FILE"),
        (["calibrate", "-o", "y"], "no input file"),
        (["decompress"], "no input file"),
        (["inspect"], "no input file"),
        (["test"], "no input file"),
        (["bench"], "no input file"),
        (["bench", "--repeats", "0", "x"], '--repeats: "0" is no whole number from 1 to 100000'),
        (["calibrate", "--budget-tokens", "16,0", "x"], '--budget-tokens: "0" is no whole number of at least 1'),
        (["analyze"], "no input file"),
        (["analyze", "x", "y", "--plot", "z"], "--plot names one file"),
        (["analyze", "x", "--json", "--plot", "-"], "cannot both go to standard output"),
        (["plan", "--link", "1GB/s"], "--speeds"),
        (["plan", "--speeds", "x"], "--link"),
        (["plan", "--speeds", "x", "--link", "1GB/s", "--bytes", "some"], "--bytes"),
        (["plan", "--speeds", "x", "--link", "1GB/s", "--least-gain", "-1"], "--least-gain"),
    ],
)
def test_wrong_command_line(work, arguments, expected):
    done = run(*arguments, code=2)
    text = done.stderr.decode()
    assert done.stdout == b"" and text.startswith("splitzip: ") and expected in text
    assert re.search(r"Try 'splitzip.* --help'\.", text)


@pytest.mark.parametrize(
    "options, expected",
    [
        (["--shape", "3"], "--shape needs --dtype"),
        (["--dtype", "q7"], "--dtype q7 is none of bf16, fp16"),
        (["--dtype", "f4"], "--dtype f4"),
        (["--dtype", "bf16", "--shape", "4294967296,4294967296"], "overflows"),
        (["--axes", "head,row"], '"row" is none of'),
        (["--axes", "dim,token"], "the order has to be"),
        (["--axes", "head,batch,token,dim"], "the order has to be"),
        (["--axes", ""], "is none of"),
        (["--axes", "token,dim", "--axes", "batch,token"], "given twice"),
        (["-o", "-", "--json"], "standard output"),
    ],
)
def test_options_that_cannot_be(work, samples, options, expected):
    assert expected in message("compress", "--mode", "raw", samples / "in.safetensors", *options, code=2)
    assert list(work.iterdir()) == []


def test_the_manual_page_has_the_options_of_all_commands():
    helps = b"".join(run(command, "--help").stdout for command in COMMANDS) + run("--help").stdout
    manual = (pathlib.Path(__file__).parents[2] / "cli/splitzip.1.md").read_text().split("# OPTIONS")[1].split("# EXIT STATUS")[0]
    described = re.findall(r"\*\*(--[a-z-]+)\*\*", "".join(line for line in manual.splitlines() if line.startswith("**-")))
    assert set(described) == set(re.findall(r"^ +(?:-.,)?(--[a-z-]+)", helps.decode(), re.MULTILINE))


def test_one_output_for_several_inputs(work, samples):
    text = message("compress", "--mode", "raw", samples / "in.safetensors", samples / "sample.safetensors", "-o", "y", code=2)
    assert "several inputs" in text and list(work.iterdir()) == []


def test_shape_that_is_not_the_file(work):
    (work / "x").write_bytes(bytes(100))
    array = ("compress", "--mode", "raw", "--dtype", "bf16", "x")
    assert "has 100 bytes, but 98 by its shape" in message(*array, "--shape", "49")
    (work / "x").write_bytes(bytes(101))
    assert "101 bytes are no whole number of values" in message(*array)


def test_verbosity(work, samples):
    command = ("compress", "--codebook", samples / "kv.szcb", samples / "in.safetensors", "-o", "y", "-f")
    assert b"ratio" in run(*command).stderr
    assert run(*command, "-q").stderr == b"" == run(*command, "-q").stdout
    assert run(*command, "-k").stdout == b""
    assert (samples / "in.safetensors").exists()
