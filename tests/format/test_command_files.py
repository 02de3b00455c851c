# SPDX-License-Identifier: Apache-2.0
"""Files of the command against the reference decoder and the model encoder, and golden files through the command."""

import hashlib
import json
import os
import struct
import subprocess
from pathlib import Path

import pytest
import reference_decoder as reference

import model_encoder as model
import random_tensors

COMMAND = os.environ.get("SPLITZIP_COMMAND")
TESTS = Path(__file__).resolve().parents[1]
SAMPLE, CALIBRATION = (TESTS / "data" / f"smollm2-{text}.safetensors" for text in ("gsm8k-test", "wikitext2-valid"))
MANIFEST = json.loads((TESTS / "golden" / "manifest.json").read_text())
pytestmark = pytest.mark.skipif(not COMMAND, reason="SPLITZIP_COMMAND is not set")


def run(*arguments, status=0):
    ran = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == status, ran.stderr
    return ran.stderr


def files(part):
    return [pytest.param(entry, id=entry["file"]) for entry in MANIFEST[part] if entry["kind"] == "file"]


def codebook_option(entry):
    return ["--codebook", TESTS / "golden" / entry["codebooks"]] if entry["codebooks"] else []


@pytest.mark.parametrize("entry", files("good"))
def test_command_decompresses_good(tmp_path, entry):
    run("decompress", *codebook_option(entry), TESTS / "golden" / entry["file"], "-o", tmp_path / "original")
    assert hashlib.sha256((tmp_path / "original").read_bytes()).hexdigest() == entry["sha256"]


@pytest.mark.parametrize("entry", files("bad"))
def test_command_refuses_bad(tmp_path, entry):
    golden = TESTS / "golden" / entry["file"]
    message = run("decompress", *codebook_option(entry), golden, "-o", tmp_path / "original", status=1)
    assert message and list(tmp_path.iterdir()) == []


def model_codebooks(data):
    return {
        identity: model.Codebook(code, ranks.tolist(), bases.tolist())
        for identity, (code, ranks, bases) in reference.decode_codebook_set(data).items()
    }


def encode_again(data, codebook_set):
    """The file that the model encoder makes of the same original, cut and described alike."""
    kind, at, blocks, offsets, length = data[6], 16, [], [], 0
    codebooks, books = reference.decode_codebook_set(codebook_set), model_codebooks(codebook_set)
    while data[at] != 3:
        block_type, order, _, size = struct.unpack_from("<BBHQ", data, at)
        content = data[at + 16 : at + 16 + size]
        if block_type == 1:
            assert content == codebook_set
        else:
            [(entry, values)] = reference.decode_frame(content, codebooks, length)[1]
            tensor = model.Tensor(
                entry.type,
                entry.mode,
                books.get(entry.codebook),
                values,
                entry.tokens_per_unit,
                entry.tensor_key,
                entry.first_block,
                entry.first_channel,
                entry.slot,
            )
            content = model.encode_frame([tensor], length)
            offsets.append(length)
            length += values.nbytes
        blocks.append(model.Block(block_type, content, order))
        at += 16 + model.up(size, 16)
    return model.File(kind, blocks, offsets, length).bytes()


def check(compressed, codebook_set, embedded, original):
    data = compressed.read_bytes()
    codebooks = {} if embedded else reference.decode_codebook_set(codebook_set)
    assert reference.decode_file(data, codebooks) == original
    assert encode_again(data, codebook_set) == data


@pytest.fixture(scope="module")
def codebook_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("codebook") / "kv.szcb"
    run("calibrate", CALIBRATION, "-o", path)
    return path


@pytest.mark.parametrize("embed", [False, True], ids=["outside", "embedded"])
@pytest.mark.parametrize("mode", ["tiered", "fixed4", "raw"])
def test_compressed_safetensors(tmp_path, codebook_file, mode, embed):
    options = ["--mode", mode, "--codebook", codebook_file, *(["--embed-codebook"] if embed else [])]
    run("compress", *options, SAMPLE, "-o", tmp_path / "sample.szkv")
    check(tmp_path / "sample.szkv", codebook_file.read_bytes(), embed, SAMPLE.read_bytes())


@pytest.mark.parametrize("element_type", random_tensors.TYPES, ids=random_tensors.TYPES.values())
def test_compressed_raw_arrays(tmp_path, element_type):
    random = random_tensors.Random(20, element_type)
    book = random_tensors.codebook(random, element_type, 24)
    values = random_tensors.values(random, book, (50, 1, 24), 0, "escapes")
    (tmp_path / "array").write_bytes(values.tobytes())
    dtype = random_tensors.TYPES[element_type].replace("bytes", "u8")
    describe = ["--dtype", dtype, "--shape", "50,24", "--axes", "token,channel"]
    run("calibrate", *describe, tmp_path / "array", "-o", tmp_path / "kv.szcb")
    run("compress", *describe, "--codebook", tmp_path / "kv.szcb", tmp_path / "array", "-o", tmp_path / "array.szkv")
    check(tmp_path / "array.szkv", (tmp_path / "kv.szcb").read_bytes(), False, values.tobytes())
