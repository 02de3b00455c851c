# SPDX-License-Identifier: Apache-2.0
"""The paper's code as arithmetic: what it would take for given exponents. And this library's tiers, to look into them.

Sizes are bits a value. Nothing is counted beside codes and escapes, as in the paper's formula N (3/2 + 3 eps): no
header, no counts of escapes, no codebooks, except where a function says so.
"""

import numpy as np

POSITION_BITS, EXPONENT_BITS = 16, 8


def histogram(symbols):
    return np.bincount(symbols.reshape(-1), minlength=256)


def most_frequent(counts, k):
    """Boolean table: is the exponent among the k most frequent ones? The lower one wins a tie."""
    chosen = np.zeros(256, bool)
    chosen[np.argsort(-counts, kind="stable")[:k]] = True
    return chosen


def coverage(counts, chosen):
    return float(counts[chosen].sum() / counts.sum())


def entropy(counts):
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log2(share)).sum())


def top_k_bits(covered, k=16, verbatim=8):
    """Codes of log2 k bits; an escape adds its position and its exponent."""
    return verbatim + np.log2(k) + (1 - covered) * (POSITION_BITS + EXPONENT_BITS)


def sentinel_bits(covered, verbatim=8):
    """Fifteen exponents and a code for "look at the list", which holds exponents alone."""
    return verbatim + 4 + (1 - covered) * EXPONENT_BITS


def chunked_bits(escapes, values, chunk):
    """The paper's code with all that a decoder of chunks needs: positions as long as the chunk asks for, and a count
    of escapes for each chunk."""
    position = 8 if chunk <= 1 << 8 else POSITION_BITS
    count = 8 if chunk < 1 << 8 else 16 if chunk < 1 << 16 else 32
    chunks = -(-values // chunk)
    return 12 + (escapes * (position + EXPONENT_BITS) + chunks * count) / values


def ranks(symbols, codebook):
    """Rank of each value's delta in the codebook, 0 to 8, and 9 for what escapes. `symbols`: [tokens, channels]."""
    bases = np.frombuffer(codebook.bases, np.uint8)
    table = np.full(256, 9, np.uint8)
    table[np.frombuffer(codebook.ranks, np.uint8)] = np.arange(9)
    return table[symbols - bases]


def tiered_bits(rank, verbatim=8):
    """Of each value: 2 bits, 2 more from rank 3 on, 2 more from rank 6 on, and a byte."""
    return verbatim + 2 + 2.0 * (rank >= 3) + 2.0 * (rank >= 6) + 8.0 * (rank >= 9)


def fixed4_bits(symbols, codebook, verbatim=8):
    delta = symbols - np.frombuffer(codebook.bases, np.uint8)
    return verbatim + 4 + 8.0 * (delta >= 15)


def tiered_bits_of_own_ranks(calibration, test):
    """Tiers of the most frequent exponents of each channel: a rank table for each channel instead of a base."""
    total = 0.0
    for channel in range(test.shape[1]):
        order = np.argsort(-np.bincount(calibration[:, channel], minlength=256), kind="stable")
        rank = np.full(256, 9, np.uint8)
        rank[order[:9]] = np.arange(9)
        total += tiered_bits(rank[test[:, channel]]).sum()
    return total / test.size
