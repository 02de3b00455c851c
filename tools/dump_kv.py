#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the KV cache that a model makes of a text to a safetensors file.

    pip install torch transformers safetensors          # and gguf, accelerate, for a GGUF file
    tools/dump_kv.py MODEL text.txt cache.safetensors --tokens 512

MODEL is a directory with a model in Hugging Face's form, a GGUF file, or the name of a model on the hub. The
model runs once over the first tokens of the text, in BF16 unless --dtype says otherwise. The file gets the tensors
layers.0.k, layers.0.v, layers.1.k and so on, each [heads, tokens, dim]: what an engine would move from a prefill to a
decode worker.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="directory, GGUF file, or name on the hub")
    parser.add_argument("text", type=Path, help="UTF-8 text")
    parser.add_argument("output", type=Path, help="safetensors file to write")
    parser.add_argument("--tokens", type=int, default=512, help="length of the cache (default: 512)")
    parser.add_argument("--skip", type=int, default=0, help="skip so many tokens of the text first (default: 0)")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--device", default="cpu", help="where the model runs: cpu (default), cuda, ...")
    return parser.parse_args()


def load(name: str, dtype: str, device: str):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place, options = name, {}
    if name.endswith(".gguf"):
        file = Path(name).resolve()
        place, options = str(file.parent), {"gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(place, **options)
    model = AutoModelForCausalLM.from_pretrained(place, dtype=getattr(torch, dtype), **options)
    return tokenizer, model.eval().to(device)


def layers_of(cache):
    """Pairs of keys and values, [1, heads, tokens, dim] each."""
    for layer in cache.layers:
        # A layer with a sliding window keeps the last tokens alone, a linear one no tokens at all.
        if getattr(layer, "keys", None) is None or layer.keys.dim() != 4:
            raise SystemExit(f"dump_kv: a layer of kind {type(layer).__name__} has no keys and values for tokens")
        yield layer.keys, layer.values


def main() -> int:
    given = arguments()
    try:
        import torch
        import transformers  # noqa: F401
        from safetensors.torch import save_file
    except ImportError as error:
        raise SystemExit(f"dump_kv: {error}: pip install torch transformers safetensors") from error
    try:
        text = given.text.read_text(encoding="utf-8")  # before the model is loaded, which takes long
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"dump_kv: {given.text}: {error}") from error

    tokenizer, model = load(given.model, given.dtype, given.device)
    ids = tokenizer(text, return_tensors="pt").input_ids[:, given.skip :]
    if ids.shape[1] < given.tokens:
        print(f"dump_kv: {given.text} has {ids.shape[1]} tokens, {given.tokens} are wanted", file=sys.stderr)
        return 1
    with torch.inference_mode():
        cache = model(ids[:, : given.tokens].to(given.device), use_cache=True).past_key_values
    tensors = {}
    for number, (keys, values) in enumerate(layers_of(cache)):
        if keys.shape[2] != given.tokens:
            print(f"layer {number} keeps the last {keys.shape[2]} tokens alone", file=sys.stderr)
        tensors[f"layers.{number}.k"] = keys[0].cpu().contiguous()
        tensors[f"layers.{number}.v"] = values[0].cpu().contiguous()
    metadata = {
        "model": Path(given.model).name,
        "text": given.text.name,
        "tokens": str(given.tokens),
        "skipped": str(given.skip),
    }
    save_file(tensors, given.output, metadata=metadata)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    print(f"{given.output}: {len(tensors)} tensors of {list(tensors['layers.0.k'].shape)}, {given.dtype}, {size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
