# SPDX-License-Identifier: Apache-2.0
"""The golden files are what the generator makes; the reference decoder and the library agree on each of them."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import reference_decoder as reference

import library
import make_golden

HERE = Path(__file__).resolve().parent
MANIFEST = json.loads((HERE / "manifest.json").read_text())
SETS_AND_FRAMES = [x for x in MANIFEST["good"] + MANIFEST["bad"] if x["kind"] != "file"]


def name(entry):
    return entry["file"]


def read(file):
    return (HERE / file).read_bytes()


def decode(entry):
    """Original bytes, or the identities of a codebook set."""
    data = read(entry["file"])
    if entry["kind"] == "codebook_set":
        return reference.decode_codebook_set(data)
    codebooks = reference.decode_codebook_set(read(entry["codebooks"])) if entry["codebooks"] else {}
    if entry["kind"] == "file":
        return reference.decode_file(data, codebooks)
    return b"".join(values.tobytes() for _, values in reference.decode_frame(data, codebooks, entry["nonce"])[1])


def test_generator_gives_these_files(tmp_path):
    make_golden.make(tmp_path)

    def files(folder):
        paths = [folder / "manifest.json", *folder.glob("good/*"), *folder.glob("bad/*")]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}

    made, kept = files(tmp_path), files(HERE)
    assert made.keys() == kept.keys()
    assert [file for file in made if made[file] != kept[file]] == []


@pytest.mark.parametrize("entry", MANIFEST["good"], ids=name)
def test_reference_decodes_good(entry):
    decoded = decode(entry)
    if entry["kind"] == "codebook_set":
        assert set(decoded) == {int(identity, 16) for identity in entry["identities"]}
    else:
        assert len(decoded) == entry["bytes"]
        assert hashlib.sha256(decoded).hexdigest() == entry["sha256"]


@pytest.mark.parametrize("entry", MANIFEST["bad"], ids=name)
def test_reference_refuses_bad(entry):
    with pytest.raises(reference.FormatError) as error:
        decode(entry)
    assert "SPLITZIP_ERROR_" + error.value.args[0] == entry["status"]


@pytest.mark.parametrize(
    "file, codebooks",
    [("good/plain_embedded.szkv", None), ("good/plain.szkv", "good/files.szcb"), ("good/mixed_row.frame", "good/all.szcb")],
)
def test_reference_decoder_is_a_program(tmp_path, file, codebooks):
    entry = next(entry for entry in MANIFEST["good"] if entry["file"] == file)
    output = tmp_path / "original"
    arguments = [*(["--codebook", HERE / codebooks] if codebooks else []), "-o", output]
    subprocess.run([sys.executable, "-B", reference.__file__, HERE / file, *arguments], check=True)
    assert hashlib.sha256(output.read_bytes()).hexdigest() == entry["sha256"]


def test_reference_decoder_says_what_is_wrong(tmp_path):
    output = tmp_path / "original"
    ran = subprocess.run(
        [
            sys.executable,
            "-B",
            reference.__file__,
            HERE / "bad/content_rest.frame",
            "--codebook",
            HERE / "bad/codebooks.szcb",
            "-o",
            output,
        ],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1 and "CHECKSUM_MISMATCH" in ran.stderr and not output.exists()


def test_reference_decoder_stays_short():
    assert len(Path(reference.__file__).read_text(encoding="utf-8").splitlines()) <= 300


@pytest.mark.skipif(not library.PATH, reason="SPLITZIP_LIBRARY is not set")
@pytest.mark.parametrize("entry", SETS_AND_FRAMES, ids=name)
def test_library_agrees(entry):
    def decode_with_library():
        if entry["kind"] == "codebook_set":
            return library.CodebookSet(read(entry["file"])).save()
        arrays = library.decode(read(entry["file"]), library.CodebookSet(read(entry["codebooks"])), entry["nonce"])
        return b"".join(array.tobytes() for array in arrays)

    for way in library.ways:
        if "status" in entry:
            with pytest.raises(library.LibraryError) as error:
                decode_with_library()
            assert "SPLITZIP_ERROR_" + error.value.args[0] == entry["status"], way
        elif entry["kind"] == "codebook_set":
            assert decode_with_library() == read(entry["file"]), way
        else:
            assert hashlib.sha256(decode_with_library()).hexdigest() == entry["sha256"], way
