# SPDX-License-Identifier: Apache-2.0
"""KV caches in safetensors files, for benchmarks and the evaluation."""

import json
import pathlib


def load(path):
    """{name: [tokens, heads, dim] of BF16, as uint16} of a file whose tensors are [heads, tokens, dim]."""
    import numpy as np  # not at the top: what only renders results does without

    data = pathlib.Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16" or len(entry["shape"]) != 3:
            raise SystemExit(f"{path}: {name} is not BF16 [heads, tokens, dim]")
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + size + begin : 8 + size + end], np.uint16).reshape(entry["shape"])
        tensors[name] = np.ascontiguousarray(values.transpose(1, 0, 2))
    return tensors
