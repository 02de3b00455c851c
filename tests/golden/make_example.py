#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Section 11 of docs/format.md, made by the model encoder. Prints it; with --write, puts it into the document."""

import sys
import textwrap
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "format"))

import model_encoder as model
from random_tensors import join

DOCUMENT = ROOT / "docs" / "format.md"
HEADING = "## 11. A worked example\n"
FIRST_CHANNEL = 2
BASES = [116, 117, 118, 118, 117, 119, 118, 116, 120, 118, 117, 118]
CODEBOOK = model.Codebook(
    model.BF16,
    [6, 5, 7, 4, 8, 3, 9, 2, 10],
    BASES,
    "k",
    tiered_slot_words=8,
    sample_values=4096,
    statistics=(1.0, 1.0, 2.5, 2.25, 12.0, 10.5, 0.0, 0.0),
)
# 138 is a value of symbol 0, zero itself: 0 - 118 modulo 256.
DELTAS = [[6, 5, 7, 6, 4, 6, 5, 3, 6, 7], [6, 8, 6, 9, 138, 6, 2, 5, 12, 7]]
RESTS = [[0x00, 0x8D, 0x13, 0x26, 0xB3, 0x40, 0x4C, 0xD9, 0x66, 0x73], [0x81, 0x0E, 0x14, 0xA7, 0x00, 0x41, 0xCD, 0x5A, 0x67, 0xF4]]


def tensor():
    values = np.zeros((2, 1, 10), "<u2")
    for t, (deltas, rests) in enumerate(zip(DELTAS, RESTS)):
        for c, (delta, rest) in enumerate(zip(deltas, rests)):
            values[t, 0, c] = join(model.BF16, (BASES[FIRST_CHANNEL + c] + delta) % 256, rest)
    return model.Tensor(
        model.BF16, model.TIERED, CODEBOOK, values, 2, tensor_key=0x30, first_block=4, first_channel=FIRST_CHANNEL, slot_words=8
    )


def codebook_set():
    return model.CodebookSet([CODEBOOK], b"docs")


def frame():
    return model.build_frame([tensor()], nonce=7)


def annotate(data, fields):
    """The bytes, a line a field: offset, bytes, meaning."""
    lines, at = [], 0
    for size, meaning in fields:
        while size > 0:
            piece = data[at : at + min(size, 8)]
            lines.append(f"{at:5}  {piece.hex(' '):23}  {meaning}".rstrip())
            at, size, meaning = at + len(piece), size - len(piece), ""
    assert at == len(data)
    return "\n".join(lines)


def value_table():
    rows = []
    for t, row in enumerate(tensor().values[:, 0, :]):
        for c, x in enumerate(row):
            symbol, rest = model.split(model.BF16, int(x))
            channel = FIRST_CHANNEL + c
            delta = (symbol - BASES[channel]) % 256
            codes = ["" if code is None else code for code in model.code_tiered(CODEBOOK.ranks, delta)]
            cells = [t * 10 + c, t, channel, f"{x:04x}", symbol, BASES[channel], delta, f"{rest:02x}", *codes]
            rows.append("| " + " | ".join(map(str, cells)) + " |")
    heads = ["i", "token", "channel", "value", "symbol", "base", "delta", "rest", "tier 1", "tier 2", "tier 3", "escape"]
    return "\n".join(["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *rows])


SET_FIELDS = [
    (4, "magic SZCB"),
    (2, "version"),
    (2, "zero"),
    (4, "codebook_count 1"),
    (4, "provenance_bytes 4"),
    (8, "set_bytes"),
    (8, "XXH64 of bytes 0-23 and of all from byte 32 on"),
    (4, "provenance: docs"),
    (4, "padding"),
    (8, "identity: XXH64 of 01, the ranks, 00 00, 0c 00 00 00 and the bases"),
    (4, "base_count 12"),
    (2, "name_bytes 1"),
    (1, "type BF16"),
    (9, "ranks"),
    (2, "fixed4_slot_words 0"),
    (2, "tiered_slot_words 8"),
    (4, "zero"),
    (8, "sample_values 4096"),
    (8, "coverage of the 8 most frequent symbols: 1.0"),
    (8, "of the 16: 1.0"),
    (8, "entropy: 2.5"),
    (8, "entropy given the channel: 2.25"),
    (8, "bits a value, fixed4: 12.0"),
    (8, "tiered: 10.5"),
    (8, "escapes a value, fixed4: 0.0"),
    (8, "tiered: 0.0"),
    (12, "bases of channels 0 to 11"),
    (1, "name: k"),
    (3, "padding"),
]

FRAME_FIELDS = [
    (4, "magic SZKF"),
    (2, "version"),
    (2, "flags: chunk checksums"),
    (8, "nonce 7"),
    (4, "entry_count 1"),
    (4, "chunk_count 1"),
    (4, "tile_count 1"),
    (4, "spill_words 1"),
    (8, "frame_bytes"),
    (4, "directory_checksum"),
    (4, "header_checksum"),
    (8, "codebook_hash: the identity above"),
    (8, "tensor_key 48"),
    (8, "first_block 4"),
    (4, "tokens 2"),
    (4, "tokens_per_unit 2"),
    (4, "channels 10"),
    (4, "first_channel 2"),
    (4, "ranges 1"),
    (2, "slot_words 8"),
    (1, "type BF16"),
    (1, "mode tiered"),
    (2, "chunk record: coded, 2 words"),
    (30, "padding of the section"),
    (4, "chunk checksum"),
    (28, "padding of the section"),
    (4, "tile record: the remainder starts at word 0 of the spill"),
    (28, "padding of the section"),
    (8, "rest plane: values 0-7"),
    (8, "values 8-15"),
    (4, "values 16-19"),
    (4, "padding values"),
    (8, "padding of the section"),
    (2, "code plane: values 0-7, four in a byte"),
    (2, "values 8-15"),
    (1, "values 16-19"),
    (1, "padding values"),
    (26, "padding of the section"),
    (4, "slot: ceil(8 * 1 / 8) = 1 word of the variable part"),
    (28, "padding of the section"),
    (4, "spill: the other word"),
]


def wrap(text):
    """Prose in lines of 120 columns; dumps get their fences, tables stay as they are."""
    if text.startswith("    0  "):
        return f"```\n{text}\n```"
    if text.startswith("| "):
        return text
    return textwrap.fill(" ".join(text.split()), 120, break_on_hyphens=False)


def section():
    whole = frame()
    variable = bytes(whole.sections[2][:4]) + whole.spill
    bits = "".join(f"{byte:08b}"[::-1] for byte in variable[:3])
    codes = [int(bits[i : i + 2][::-1], 2) for i in range(0, 22, 2)]
    data, tier2, tier3 = codebook_set().bytes(), " ".join(map(str, codes[:7])), " ".join(map(str, codes[7:]))
    paragraphs = [
        """Two tokens of ten channels of BF16, channels 2 to 11 of a tensor of 12, as one unit in mode `tiered`. (Made
        by `tests/golden/make_example.py`; a test checks that this section is what it prints, and that the reference
        decoder reads these bytes.)""",
        f"The codebook set, {len(data)} bytes. Ranks: a delta of 6 is the most frequent, then 5, then 7.",
        annotate(data, SET_FIELDS),
        """The values. Value i of the unit is in channel 2 + i mod 10. The symbol is bits 7 to 14 of the value, the
        rest its sign and its lowest seven bits; value 14 is zero, whose delta is 0 - 118 modulo 256.""",
        value_table(),
        f"""The unit has 20 values, so V(20) = ceil(20 * 2 / 16) = 3 vectors, one chunk and one tile; the last vector
        has four padding values. The rest plane has 8 bytes a vector, the code plane 2, so P = 10 and `raw_words` =
        ceil(3 * 6 / 4) = 5. With less than 33 vectors lane order is the order of the values. The variable part is
        `{variable.hex(" ")}`: the tier-2 codes {tier2} and the tier-3 codes {tier3}, from the lowest bit of
        `{variable[:3].hex(" ")}` on; two zero bits; the escapes {variable[3]} and {variable[4]}; three zero bytes.
        That is 2 words, not more than 5, so the chunk is coded. The slot holds the first word, and the other one is
        spilled.""",
        f"""The frame, {len(whole.bytes())} bytes. The chunk's checksum, {whole.checksums[0]:08x}, is that of the 48
        bytes of its three vectors with `tensor_key` 48, block 4, channel 2, chunk 0 and 20 values.""",
        annotate(whole.bytes(), FRAME_FIELDS),
    ]
    return "\n\n".join([HEADING.strip(), *map(wrap, paragraphs)]) + "\n"


def main():
    if "--write" in sys.argv[1:]:
        document = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(document[: document.index(HEADING)] + section(), encoding="utf-8")
    else:
        print(section(), end="")


if __name__ == "__main__":
    main()
