# SPDX-License-Identifier: Apache-2.0
"""Data with the published exponent statistics of models that are not at hand.

A value is a normal number times a scale. The logarithm (base 2) of the scale is a mixture of two normal distributions
of the same width, as if keys and values had different magnitudes: width, distance and weight of the second are fitted
to Top-8, Top-16 and entropy. The published figures do not say what the scale belongs to, so there are two arrangements,
which bound what a codec can find: each channel has its scale ("by channel"), or each value has one of its own ("by
value", where a channel tells nothing).
"""

import math
import sys

import ml_dtypes
import numpy as np

import splitzip_kv as sz

from . import library, peers, published
from . import paper_code as paper
from .ablations import all_exponents, total_histogram

TOKENS, CHANNELS = 2048, 1024
SCALES = np.linspace(-24, 24, 481)
EXPONENTS = np.arange(-48, 49)
TOLERANCES = (0.0005, 0.0005, 0.005)  # the rounding of what was published


def _share_by_scale():
    """For each scale, the probability of each exponent."""
    error = np.vectorize(math.erf)
    edges = error(2.0 ** (np.append(EXPONENTS, 49)[None, :] - SCALES[:, None]) / math.sqrt(2))
    return np.diff(edges, axis=1)


SHARE_BY_SCALE = _share_by_scale()


def scale_weights(width, distance, weight):
    first, second = (np.exp(-0.5 * ((SCALES - middle) / width) ** 2) for middle in (0.0, distance))
    return (1 - weight) * first / first.sum() + weight * second / second.sum()


def statistics(weights):
    share = np.sort(weights @ SHARE_BY_SCALE)[::-1]
    positive = share[share > 0]
    return float(share[:8].sum()), float(share[:16].sum()), float(-(positive * np.log2(positive)).sum())


def fit(target):
    """Grid, then a random walk downhill; the seed is fixed."""

    def error(parameters):
        width, distance, weight = parameters
        if width < 0.1 or not 0 <= distance < 14 or not 0 <= weight <= 0.5:
            return math.inf
        found = statistics(scale_weights(width, distance, weight))
        return sum(((a - b) / tolerance) ** 2 for a, b, tolerance in zip(found, target, TOLERANCES))

    grid = [(w, d, m) for w in (0.3, 0.6, 1, 1.4, 1.8) for d in (0, 2, 4, 6, 8, 10) for m in (0.005, 0.02, 0.1, 0.3, 0.5)]
    best = min(grid, key=error)
    lowest, random = error(best), np.random.default_rng(1)
    for step in range(2000):
        tried = np.array(best) + random.normal(size=3) * np.array([0.3, 2, 0.1]) * (0.997**step + 0.001)
        if (found := error(tried)) < lowest:
            best, lowest = tuple(map(float, tried)), found
    return best


def draw(parameters, by_channel, seed):
    """Calibration and test, [tokens, 1, channels] each; the scales of channels are those of both."""
    random = np.random.default_rng(seed)
    weights = scale_weights(*parameters)

    def scales(shape):
        place = random.choice(len(SCALES), size=shape, p=weights / weights.sum())
        # Between the points of the grid, too; otherwise whole powers of two would be a pattern.
        return 2.0 ** (SCALES[place] + (random.random(shape) - 0.5) * (SCALES[1] - SCALES[0]))

    of_channels = scales((1, CHANNELS))
    for _ in range(2):
        scale = of_channels if by_channel else scales((TOKENS, CHANNELS))
        values = random.normal(size=(TOKENS, CHANNELS)) * scale
        yield {"synthetic": values.astype(np.float32).astype(ml_dtypes.bfloat16).reshape(TOKENS, 1, CHANNELS)}


def rank_codecs():
    codecs, missing = peers.installed()
    if missing:
        print(f"not installed, left out: {', '.join(missing)}", file=sys.stderr)
    result = []
    for seed, (model, (top8, top16, entropy, _)) in enumerate(published.EXPONENTS.items()):
        parameters = fit((top8 / 100, top16 / 100, entropy))
        entry = {
            "model": model,
            "parameters": parameters,
            "fitted": statistics(scale_weights(*parameters)),
            "arrangements": {},
        }
        for label, by_channel in (("by channel", True), ("by value", False)):
            calibration, test = draw(parameters, by_channel, seed)
            codebooks = library.calibrate(calibration)
            counts = total_histogram(all_exponents(test))
            covered = paper.coverage(counts, paper.most_frequent(total_histogram(all_exponents(calibration)), 16))
            ratios = {
                "splitzip tiered": library.ratio(test, codebooks),
                "splitzip fixed4": library.ratio(test, codebooks, sz.Mode.FIXED4),
                "the paper's code": 16 / paper.top_k_bits(covered),
            }
            data = test["synthetic"].tobytes()
            ratios |= {name: peers.ratio(codec, data) for name, codec in codecs.items()}
            entropy_given_channel = next(iter(library.calibrate(test))).entropy_given_channel
            entry["arrangements"][label] = {
                "ratios": ratios,
                "entropy": paper.entropy(counts),
                "entropy_given_channel": entropy_given_channel,
            }
        result.append(entry)
    return result
