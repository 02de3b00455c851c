# SPDX-License-Identifier: Apache-2.0
"""The sample of a real cache: codebooks from one text, frames of another one, made by two encoders."""

import json
from pathlib import Path

import numpy as np
import pytest
import reference_decoder as reference

import library
import model_encoder as model

DATA = Path(__file__).resolve().parents[1] / "data"
pytestmark = pytest.mark.skipif(not library.PATH, reason="SPLITZIP_LIBRARY is not set")


def load(name):
    """{tensor name: [tokens][heads][dimensions]}."""
    data = (DATA / name).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    arrays = {}
    for tensor, entry in json.loads(data[8:start]).items():
        if tensor != "__metadata__":
            begin, end = entry["data_offsets"]
            array = np.frombuffer(data[start + begin : start + end], "<u2").reshape(entry["shape"])
            arrays[tensor] = np.ascontiguousarray(array.transpose(1, 0, 2))
    return arrays


@pytest.fixture(scope="module")
def codebook_set():
    return library.calibrate(load("smollm2-wikitext2-valid.safetensors"), model.BF16, b"WikiText-2")


def test_reference_decoder_reads_the_codebooks_of_the_library(codebook_set):
    assert len(reference.decode_codebook_set(codebook_set)) == 4
    assert library.CodebookSet(codebook_set).save() == codebook_set


@pytest.mark.parametrize("mode, least_ratio", [(model.TIERED, 1.45), (model.FIXED4, 1.32)], ids=["tiered", "fixed4"])
def test_frames_of_real_data(codebook_set, mode, least_ratio):
    codebooks = reference.decode_codebook_set(codebook_set)
    arrays, tensors = load("smollm2-gsm8k-test.safetensors"), []
    # Identities are in the order of the names, which the set keeps.
    for (name, array), identity in zip(sorted(arrays.items()), codebooks):
        code, ranks, bases = codebooks[identity]
        book = model.Codebook(code, ranks.tolist(), bases.tolist(), name)
        assert book.real_identity() == identity
        tensors.append(
            model.Tensor(model.BF16, mode, book, array, 128, tensor_key=len(tensors), slot_words=190 if mode == model.TIERED else 1)
        )
    frame = model.encode_frame(tensors, 1)
    assert library.encode(tensors, library.CodebookSet(codebook_set), 1) == frame
    for (_, values), tensor in zip(reference.decode_frame(frame, codebooks, 1)[1], tensors):
        assert np.array_equal(values, tensor.values)
    assert sum(array.nbytes for array in arrays.values()) / len(frame) > least_ratio
