# SPDX-License-Identifier: Apache-2.0
"""Random codebooks and tensors for the model encoder, reproducible from a seed."""

import numpy as np

import model_encoder as model

TYPES = {model.BF16: "bf16", model.FP16: "fp16", model.FP32: "fp32", model.E4M3: "fp8_e4m3", model.E5M2: "fp8_e5m2", model.BYTES: "bytes"}
MODES = {model.RAW: "raw", model.FIXED4: "fixed4", model.TIERED: "tiered"}
CONTENTS = ("fitting", "escapes", "clustered", "noise", "equal", "zeros", "mixed")


class Random:
    """The few methods of numpy's Generator that are used here, over RandomState, whose numbers never change."""

    def __init__(self, *seed):
        self.state = np.random.RandomState(seed)
        self.random, self.geometric = self.state.random_sample, self.state.geometric
        self.permutation, self.choice, self.bytes = self.state.permutation, self.state.choice, self.state.bytes

    def integers(self, low, high=None, size=None):
        low, high = (0, low) if high is None else (low, high)
        return self.state.randint(low, high, size, np.int64 if high <= 2**63 else np.uint64)


def join(element_type, symbol, rest):
    """Inverse of section 2's split, for arrays: bits above the symbol are the top of the rest."""
    s = model.SYMBOL_BITS[element_type]
    low = {model.BF16: 7, model.FP16: 10, model.FP32: 23, model.E4M3: 3, model.E5M2: 2, model.BYTES: 4}[element_type]
    return (rest & ((1 << low) - 1)) | (symbol << low) | (rest >> low << (low + s))


def codebook(random, element_type, channels, shared=False, name=""):
    symbols = 1 << model.SYMBOL_BITS[element_type]
    ranks = [int(rank) for rank in random.permutation(15)[:9]]
    bases = [int(base) for base in random.integers(0, symbols, 1 if shared else channels)]
    return model.Codebook(
        element_type,
        ranks,
        bases,
        name,
        fixed4_slot_words=int(random.integers(0, 100)),
        tiered_slot_words=int(random.integers(0, 1537)),
        sample_values=int(random.integers(1 << 40)),
        statistics=tuple(float(x) for x in random.random(8)),
    )


def values(random, book, shape, first_channel, content):
    """An array [tokens][ranges][channels] whose exponents follow the codebook as `content` says."""
    tokens, ranges, channels = shape
    element_type = book.type
    size, s = model.ELEMENT_BYTES[element_type], model.SYMBOL_BITS[element_type]
    if content == "zeros":
        return np.zeros(shape, model.UNSIGNED[size])
    if content == "equal":
        return np.full(shape, random.integers(1 << (8 * size)), model.UNSIGNED[size])
    if content == "noise":
        return random.integers(0, 1 << (8 * size), shape).astype(model.UNSIGNED[size])
    if content == "mixed":
        flat = values(random, book, shape, first_channel, "fitting").reshape(-1)
        per_chunk = 2048 // size
        for start in range(0, flat.size, per_chunk):
            end = min(start + per_chunk, flat.size)
            kind = ("fitting", "noise", "equal", "zeros")[random.integers(4)]
            if kind != "fitting":
                flat[start:end] = values(random, book, (1, 1, end - start), 0, kind).reshape(-1)
        return flat.reshape(shape)
    index = np.minimum(random.geometric(0.35, shape) - 1, 8)
    delta = np.array(book.ranks)[index]
    escaped = np.zeros(shape, bool)
    if content == "escapes":
        escaped = random.random(shape) < 0.03
    elif content == "clustered":
        escaped[:, :, random.integers(channels)] = True
        escaped[random.integers(max(tokens, 1)) : tokens : 7] = True
    delta = np.where(escaped, random.integers(0, 1 << s, shape), delta)
    channel = first_channel + np.arange(ranges * channels).reshape(ranges, channels)
    bases = np.array(book.bases)
    base = bases[channel] if bases.size > 1 else bases[0]
    symbol = (base + delta) % (1 << s)
    rest = random.integers(0, 1 << (8 * size - s), shape)
    return join(element_type, symbol, rest).astype(model.UNSIGNED[size])


def tensor(random, element_type=None, mode=None, content=None, book=None):
    """A random tensor of a few chunks at most, odd sizes preferred."""
    element_type = int(random.integers(1, 7)) if element_type is None else element_type
    mode = int(random.integers(0, 3)) if mode is None else mode
    content = CONTENTS[random.integers(len(CONTENTS))] if content is None else content
    ranges = int(random.choice([1, 1, 2, 3, 5]))
    channels = int(random.choice([1, 2, 3, 5, 7, 8, 13, 16, 24, 64, 100]))
    first_channel = int(random.choice([0, 0, 1, 8, 37]))
    limit = int(random.choice([20, 3000, 12000])) // (ranges * channels) + 1
    tokens = int(random.integers(0, limit + 1))
    tokens_per_unit = int(random.choice([1, 2, 3, 16, 61, 512, 2**32 - 1]))
    tokens = min(tokens, 40 * tokens_per_unit)
    if book is None:
        extra = int(random.choice([0, 0, 5]))
        book = codebook(random, element_type, first_channel + ranges * channels + extra, bool(random.random() < 0.2))
    array = values(random, book, (tokens, ranges, channels), first_channel, content)
    slot_words = 0 if mode == model.RAW else int(random.choice([0, 1, 7, 100, 419, 1536]))
    return model.Tensor(
        element_type,
        mode,
        None if mode == model.RAW else book,
        array,
        tokens_per_unit,
        tensor_key=int(random.integers(2**64)),
        first_block=(0, 0, 3, 2**32 - 1, 2**64 - 1)[random.integers(5)],
        first_channel=first_channel,
        slot_words=slot_words,
    )
