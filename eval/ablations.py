# SPDX-License-Identifier: Apache-2.0
"""Tables 1 and 3 to 7, Figures 5 and 6, and FP8, for one model."""

import time

import numpy as np

import splitzip_kv as sz

from . import caches, library
from . import paper_code as paper


def all_exponents(tensors, kind="bf16"):
    """By tensor: [tokens, channels]."""
    return {name: caches.exponents(values, kind).reshape(values.shape[0], -1) for name, values in tensors.items()}


def total_histogram(symbols):
    return sum(paper.histogram(values) for values in symbols.values())


def row(covered, bits, raw_bits=16):
    return {"coverage": covered, "ratio": raw_bits / bits}


def analyzed(command, cache, codebook_path):
    """Table 1 and Figure 5 are what `splitzip analyze` says of the cache."""
    result = command.json("analyze", "--codebook", codebook_path, cache.path)
    histograms = {tensor["name"]: np.array(tensor.pop("histogram")) for tensor in result["tensors"]}
    groups = {group["name"]: group for group in result["groups"]}
    for group in groups.values():
        group["paper_ratio"] = 16 / paper.top_k_bits(group["top16_coverage"])
        del group["histogram"], group["name"]
    return {"groups": groups, "tensors": result["tensors"], "advice": result["advice"]}, histograms


def layers(tensors, histograms, calibration_counts):
    """Figure 5: how much of each tensor one codebook for all of them covers."""
    chosen = paper.most_frequent(calibration_counts, 16)
    rows = []
    for tensor in tensors:
        entry = {key: tensor[key] for key in ("name", "layer", "role", "entropy", "entropy_given_channel", "tiered_ratio", "fixed4_ratio")}
        rows.append(entry | {"shared_coverage": paper.coverage(histograms[tensor["name"]], chosen)})
    return rows


def top_k(calibration, test):
    """Table 3."""
    shared, counts = total_histogram(calibration), total_histogram(test)
    rows = []
    for k in (8, 16):
        covered = paper.coverage(counts, paper.most_frequent(shared, k))
        rows.append({"k": k, **row(covered, paper.top_k_bits(covered, k))})
    return rows


def granularity(calibration, test, heads):
    """Table 5: coverage and size with a Top-16 codebook for each of these parts."""

    def covered(parts):
        inside = sum(int(paper.histogram(tested)[paper.most_frequent(counts, 16)].sum()) for counts, tested in parts)
        return inside / sum(values.size for values in test.values())

    def by_channel_range(width_of):
        for name, values in test.items():
            width = width_of(name)
            for at in range(0, values.shape[1], width):
                yield paper.histogram(calibration[name][:, at : at + width]), values[:, at : at + width]

    shared = total_histogram(calibration)
    rows = {
        "all tensors": covered((shared, values) for values in test.values()),
        "tensor": covered((paper.histogram(calibration[name]), values) for name, values in test.items()),
        "head": covered(by_channel_range(lambda name: test[name].shape[1] // heads[name])),
        "channel": covered(by_channel_range(lambda name: 1)),
    }
    result = [{"part": part, **row(share, paper.top_k_bits(share))} for part, share in rows.items()]
    # A token has no codebook until it is there: it is its own, and travels with it.
    share = covered((paper.histogram(token), token) for values in test.values() for token in values)
    codebook_bits = sum(16 * 8 * values.shape[0] for values in test.values()) / sum(values.size for values in test.values())
    result.append({"part": "token", **row(share, paper.top_k_bits(share) + codebook_bits)})
    return result


def tiers(calibration, test, tensors_calibration, tensors_test):
    """What the channel base is worth: measured frames with and without; rank tables for each channel as arithmetic."""
    values = sum(part.size for part in test.values())
    own = sum(paper.tiered_bits_of_own_ranks(calibration[name], part) * part.size for name, part in test.items()) / values
    result = {"rank table for each channel": {"ratio": 16 / own, "measured": False}}
    for label, one_base in (("base for each channel", False), ("one base", True)):
        codebooks = library.calibrate(tensors_calibration, one_base)
        for mode in (sz.Mode.TIERED, sz.Mode.FIXED4):
            ratio = library.ratio(tensors_test, codebooks, mode)
            result[f"{mode.name.lower()}, {label}"] = {"ratio": ratio, "measured": True}
    return result


def escapes(calibration, test):
    """Table 6."""
    shared, counts = total_histogram(calibration), total_histogram(test)
    sentinel = paper.coverage(counts, paper.most_frequent(shared, 15))
    explicit = paper.coverage(counts, paper.most_frequent(shared, 16))
    return {
        "sentinel": row(sentinel, paper.sentinel_bits(sentinel)),
        "explicit": row(explicit, paper.top_k_bits(explicit)),
    }


def best_seconds(function, repeats=40):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def dynamic(calibration, test, tensors_calibration, tensors_test):
    """Table 7: a codebook of the very data, and what it costs to make."""
    shared, counts = total_histogram(calibration), total_histogram(test)
    raw = sum(values.nbytes for values in tensors_test.values())
    result = {}
    for label, source in (("static", shared), ("dynamic", counts)):
        covered = paper.coverage(counts, paper.most_frequent(source, 16))
        result[label] = {"paper": row(covered, paper.top_k_bits(covered))}
    books = {"static": library.calibrate(tensors_calibration), "dynamic": library.calibrate(tensors_test)}
    for label, codebooks in books.items():
        result[label]["tiered_ratio"] = library.ratio(tensors_test, codebooks)
    entries, layouts = library.described(tensors_test, books["static"], sz.Mode.TIERED, heads=False)
    out = np.zeros(sz.frame_sizes(entries).bound_bytes, np.uint8)
    encode = best_seconds(lambda: sz.encode(entries, layouts, out=out))
    make = best_seconds(lambda: library.calibrate(tensors_test), 3)
    result["static"]["encode_gb_per_s"] = raw / encode / 1e9
    result["dynamic"]["encode_gb_per_s"] = raw / (encode + make) / 1e9
    return result


def chunk_sizes(calibration, test):
    """Figure 6, the sizes of it."""
    shared, counts = total_histogram(calibration), total_histogram(test)
    values = int(counts.sum())
    outside = values - int(counts[paper.most_frequent(shared, 16)].sum())
    return [{"chunk": 1 << p, "ratio": 16 / paper.chunked_bits(outside, values, 1 << p)} for p in range(6, 17)]


def other_types(tensors_calibration, tensors_test):
    """FP16 and FP8 casts; the paper's code where it has one."""
    rows = []
    for kind in ("fp16", "fp8_e5m2", "fp8_e4m3"):
        calibration, test = caches.cast(tensors_calibration, kind), caches.cast(tensors_test, kind)
        codebooks = library.calibrate(calibration)
        entry = {"type": kind}
        for mode in (sz.Mode.TIERED, sz.Mode.FIXED4):
            entry[f"{mode.name.lower()}_ratio"] = library.ratio(test, codebooks, mode)
        if kind == "fp8_e5m2":
            chosen = paper.most_frequent(total_histogram(all_exponents(calibration, kind)), 16)
            covered = paper.coverage(total_histogram(all_exponents(test, kind)), chosen)
            entry["paper"] = row(covered, paper.top_k_bits(covered, verbatim=3), raw_bits=8)
        rows.append(entry)
    return rows


def data_sets(model):
    """Table 4 and drift: every cache under the codebooks of every other one."""
    symbols = {cache.text: all_exponents(cache.tensors) for cache in model.caches}
    counts = {text: total_histogram(values) for text, values in symbols.items()}
    books = {cache.text: library.calibrate(cache.tensors) for cache in model.caches}
    rows = []
    for source in model.caches:
        chosen = paper.most_frequent(counts[source.text], 16)
        for target in model.caches:
            rows.append(
                {
                    "calibrated": source.text,
                    "measured": target.text,
                    "coverage": paper.coverage(counts[target.text], chosen),
                    "tiered_ratio": library.ratio(target.tensors, books[source.text]),
                }
            )
    return rows
