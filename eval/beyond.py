# SPDX-License-Identifier: Apache-2.0
"""What the paper does not show: position, rotation, windows, amount of calibration, small transfers, pages."""

import sys

import numpy as np

import splitzip_kv as sz

from . import library
from . import paper_code as paper
from .ablations import all_exponents, total_histogram


def check_model(symbols, codebooks):
    """The arithmetic of paper_code is only worth something if it says what the library says of the same data."""
    for name, values in symbols.items():
        codebook = codebooks.find(name)
        pairs = [
            ("tiered", paper.tiered_bits(paper.ranks(values, codebook)).mean(), codebook.tiered_bits),
            ("fixed4", paper.fixed4_bits(values, codebook).mean(), codebook.fixed4_bits),
            ("entropy", paper.entropy(paper.histogram(values)), codebook.entropy),
            (
                "Top-16",
                paper.coverage(paper.histogram(values), paper.most_frequent(paper.histogram(values), 16)),
                codebook.top16_coverage,
            ),
            (
                "Top-8",
                paper.coverage(paper.histogram(values), paper.most_frequent(paper.histogram(values), 8)),
                codebook.top8_coverage,
            ),
        ]
        for what, model, said in pairs:
            if abs(model - said) > 1e-9:
                sys.exit(f"{name}: {what} is {said} for the library, but {model} by arithmetic")


def is_key(name):
    return name.endswith(".k")


def stretches(tokens):
    """Doubling ones: 0, 1, 2-3, 4-7 and so on."""
    at = 0
    while at < tokens:
        end = min(max(1, 2 * at), tokens)
        yield at, end
        at = end


def positions(test, codebooks):
    """Ratio by place in the sequence: codes alone, since the directory is the same everywhere."""
    bits = {name: paper.tiered_bits(paper.ranks(values, codebooks.find(name))).sum(axis=1) for name, values in test.items()}
    rows = []
    for first, end in stretches(min(len(of_tokens) for of_tokens in bits.values())):
        entry = {"first": first, "end": end}
        for role, names in (("key", [n for n in test if is_key(n)]), ("value", [n for n in test if not is_key(n)])):
            values = sum(test[n][first:end].size for n in names)
            entry[role] = 16 * values / sum(bits[n][first:end].sum() for n in names) if values else None
        rows.append(entry)
    return rows


def rotation(test, codebooks, dims):
    """Keys by speed of their rotary pair (i, i + dim / 2), fastest quarter first: bits of the exponent."""
    parts = [[] for _ in range(4)]
    for name, values in test.items():
        dim = dims[name]
        if not is_key(name) or dim % 8:
            continue
        bits = paper.tiered_bits(paper.ranks(values, codebooks.find(name)), verbatim=0).reshape(len(values), -1, 2, 4, dim // 8)
        for quarter in range(4):
            parts[quarter].append(bits[:, :, :, quarter].mean())
    return [float(np.mean(part)) for part in parts if part]


BIASES = (0, 1, 4, 16)  # in units of the tensor's own root mean square
ROTARY_BASE = 10_000.0


def with_bias(values, scale, rotated, seed):
    """Keys [tokens, heads, dim] as if their projection had added a random bias to each channel: constant, or, where the
    projection is rotated afterwards, turning with the token's position."""
    wide = values.astype(np.float32)
    size = scale * np.sqrt(np.mean(wide * wide))
    bias = size * np.random.default_rng(seed).standard_normal(wide.shape[1:], np.float32)
    if rotated:
        half = wide.shape[2] // 2
        speeds = ROTARY_BASE ** (-np.arange(half) / half)
        angles = np.outer(np.arange(len(wide)), speeds)[:, None]
        first, second = bias[:, :half], bias[:, half:]
        cosines, sines = np.cos(angles), np.sin(angles)
        turned = (first * cosines - second * sines, second * cosines + first * sines)
        bias = np.concatenate(turned, axis=2).astype(np.float32)
    return (wide + bias).astype(values.dtype)


def biased_keys(tensors_calibration, tensors_test):
    """Ratios of keys alone; a tensor has the same bias in both texts."""
    rows = []
    for rotated in (True, False):
        for scale in BIASES:
            calibration, test = (
                {name: with_bias(values, scale, rotated, seed) for seed, (name, values) in enumerate(tensors.items()) if is_key(name)}
                for tensors in (tensors_calibration, tensors_test)
            )
            if not test or any(values.shape[2] % 2 for values in test.values()):
                return []
            codebooks = library.calibrate(calibration)
            counts = [total_histogram(all_exponents(tensors)) for tensors in (calibration, test)]
            covered = paper.coverage(counts[1], paper.most_frequent(counts[0], 16))
            rows.append(
                {
                    "rotated": rotated,
                    "scale": scale,
                    "tiered_ratio": library.ratio(test, codebooks),
                    "fixed4_ratio": library.ratio(test, codebooks, sz.Mode.FIXED4),
                    "paper_ratio": 16 / paper.top_k_bits(covered),
                }
            )
    return rows


def calibration_amount(tensors_calibration, tensors_test):
    """First 1, 2, 4, ... tokens of the calibration text."""
    counts = total_histogram(all_exponents(tensors_test))
    tokens = min(len(values) for values in tensors_calibration.values())
    rows = []
    for amount in [1 << p for p in range(tokens.bit_length()) if 1 << p < tokens] + [tokens]:
        part = {name: np.ascontiguousarray(values[:amount]) for name, values in tensors_calibration.items()}
        codebooks = library.calibrate(part)
        covered = paper.coverage(counts, paper.most_frequent(total_histogram(all_exponents(part)), 16))
        rows.append(
            {
                "tokens": amount,
                "tiered_ratio": library.ratio(tensors_test, codebooks),
                "fixed4_ratio": library.ratio(tensors_test, codebooks, sz.Mode.FIXED4),
                "paper_coverage": covered,
                "paper_ratio": 16 / paper.top_k_bits(covered),
            }
        )
    return rows


def small_transfers(tensors, codebooks):
    """Frames of the first tokens: of every tensor alone (all of them added up), and of all tensors together."""
    tokens = min(len(values) for values in tensors.values())
    rows = []
    for amount in [1 << p for p in range(tokens.bit_length()) if 1 << p <= tokens]:
        part = {name: np.ascontiguousarray(values[:amount]) for name, values in tensors.items()}
        single = [{name: values} for name, values in part.items()]
        raw = sum(values.nbytes for values in part.values())
        for label, frames in (("one tensor", single), ("all tensors", [part])):
            rows.append(
                {
                    "frame": label,
                    "tokens": amount,
                    "raw_bytes": raw / len(frames),
                    "raw_mode_overhead": sum(library.frame_bytes(f, codebooks, sz.Mode.RAW) for f in frames) / len(frames)
                    - raw / len(frames),
                    "tiered_bytes": sum(library.frame_bytes(f, codebooks) for f in frames) / len(frames),
                    "fixed4_bytes": sum(library.frame_bytes(f, codebooks, sz.Mode.FIXED4) for f in frames) / len(frames),
                }
            )
    return rows


def pages(tensors, codebooks):
    """Units that can be decoded alone: the tokens of a page, of each head or of all heads."""
    rows = []
    for heads in (False, True):
        for tokens in (1, 4, 16, 64, 256, None):
            rows.append(
                {
                    "unit_tokens": tokens,
                    "heads": heads,
                    "ratio": library.ratio(tensors, codebooks, unit_tokens=tokens, heads=heads),
                }
            )
    return rows
