# SPDX-License-Identifier: Apache-2.0
"""What SGLang 0.5.23 needs to move caches on a machine without a GPU, matrix products that end before the day does
where the processor has no BF16, and faults for the test of our plugin.

While the file SPLITZIP_FAULT holds "damage", everything that our plugin writes arrives damaged; while it holds
"scramble", V of a chunk's tokens is sent in reverse order, properly encoded. (With K in the same order attention would
give the same.)
"""

import os
from pathlib import Path

import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType


def activate() -> None:
    common = "sglang.srt.mem_cache.pool_host.common"
    for name in ("_cuda_host_register", "_cuda_host_unregister"):
        HookRegistry.register(f"{common}.{name}", lambda *arguments, **named: None, HookType.REPLACE)
    HookRegistry.register("sglang.srt.disaggregation.utils.get_kv_class", _get_kv_class, HookType.AROUND)
    torch.nn.functional.linear = _linear
    if os.environ.get("SPLITZIP_FAULT"):
        _make_faulty(Path(os.environ["SPLITZIP_FAULT"]))


def _get_kv_class(original, *arguments, **named):
    found = original(*arguments, **named)
    if hasattr(found, "supports_host_tensor_indices"):
        found.supports_host_tensor_indices = False  # it would take page-locked memory and events of a device
    return found


_real_linear = torch.nn.functional.linear
_wide: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


def _linear(x, weight, bias=None):
    """In FP32, the weights converted once: they are parameters, which stay where they are."""
    if x.dtype is not torch.bfloat16 or not isinstance(weight, torch.nn.Parameter):
        return _real_linear(x, weight, bias)
    if id(weight) not in _wide:
        _wide[id(weight)] = weight, weight.float()
    return _real_linear(x.float(), _wide[id(weight)][1], None if bias is None else bias.float()).to(x.dtype)


def _make_faulty(file: Path) -> None:
    from splitzip_kv.integrations.blocks import Blocks
    from splitzip_kv.transfer.engine import address_of
    from splitzip_kv.transfer.sender import Sender

    def fault() -> str:
        return file.read_text().strip() if file.exists() else ""

    make = Sender.__init__

    def made(self, engine, *arguments, **settings):
        make(self, engine, *arguments, **settings)
        real = engine.write

        def write(data_address, segments, timeout, stop):
            if fault() != "damage":
                return real(data_address, segments, timeout, stop)
            memory = self.staging.pieces[0]
            position = segments[0].local - address_of(memory) + segments[0].length // 2
            memory[position] ^= 0x10
            try:
                return real(data_address, segments, timeout, stop)
            finally:
                memory[position] ^= 0x10

        engine.write = write

    Sender.__init__ = made
    parts = Blocks.parts

    def sent(self, blocks, *rest):
        if fault() != "scramble":
            return parts(self, blocks, *rest)
        pairs = zip(parts(self, blocks, *rest), parts(self, blocks[::-1], *rest), strict=True)
        return (reverse if part.name.endswith(".v") else part for part, reverse in pairs)

    Blocks.parts = sent
