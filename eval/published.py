# SPDX-License-Identifier: Apache-2.0
"""Figures of the SplitZip paper (arXiv 2605.01708 v3), cited; nothing here was measured by this project."""

# model: Top-8 %, Top-16 %, entropy in bits, ratio
EXPONENTS = {
    "Qwen3-30B-A3B": (83.5, 99.3, 3.59, 1.31),
    "Qwen3-32B": (90.1, 99.8, 3.29, 1.32),
    "Qwen3-Next-80B-A3B": (96.0, 99.9, 2.89, 1.33),
    "Llama-3.1-70B": (89.7, 99.5, 3.41, 1.32),
    "Llama-3-8B": (90.9, 99.6, 3.30, 1.32),
    "Phi-2": (92.3, 99.6, 3.11, 1.32),
}

# codec: ratio, encode, decode in GB/s of raw bytes; 512 MiB of Qwen3-32B's KV cache on one H200
CODECS = {
    "nvCOMP LZ4": (1.019, 13.4, 137.1),
    "nvCOMP Cascaded": (1.000, 111.8, 155.2),
    "nvCOMP Bitcomp": (1.056, 341.5, 147.7),
    "ZipNN": (1.515, 1.2, 1.7),
    "DFloat11": (1.423, 0.004, 468.2),
    "Falcon": (1.428, 8.9, 14.4),
    "ZipServ-CPP": (1.236, 0.1, 499.5),
    "ZipServ-Kernel": (1.236, None, 1260.9),
    "SplitZip": (1.324, 613.3, 2181.8),
}

FP8_E5M2 = {"ratio": 1.14, "escapes": 0.16, "encode": 249.7, "decode": 564.9}
TOP_K = {8: (92.11, 1.241, 710.5), 16: (99.84, 1.324, 2181.8)}  # k: coverage %, ratio, decode GB/s
ESCAPES = {"sentinel": (1.331, 620.8), "explicit": (1.324, 2181.8)}  # ratio, decode GB/s
DYNAMIC_ENCODE = {"static": 613.3, "dynamic": 80.7}  # GB/s
QUAD64_ENCODE = (416.2, 613.3)  # GB/s, without and with
