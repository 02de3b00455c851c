# SPDX-License-Identifier: Apache-2.0
"""Decoder layers of known models with random weights: as much work as the models do, and no meaning."""

import dataclasses
import math

import torch
import torch.nn.functional as functional


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    dim: int
    inner: int  # of the MLP, or of an expert
    vocabulary: int
    experts: int = 0  # 0: a dense MLP
    active: int = 0  # experts of a token


PARALLEL = 512  # pieces of attention that keep a GPU busy

MODELS = [
    Model("Llama-3-8B", 32, 4096, 32, 8, 128, 14336, 128256),
    Model("Qwen3-32B", 64, 5120, 64, 8, 128, 25600, 151936),
    Model("Qwen3-30B-A3B", 48, 2048, 32, 4, 128, 768, 151936, experts=128, active=8),
]


def weights(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / math.sqrt(shape[-1])


def rotate(x, cosines, sines):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)


def attention(q, k, v):
    """FlashAttention's result, and the logarithm of the sums that it divided by."""
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v)[:2]


def over_parts(q, keys, values):
    """Attention over a long context for few queries: parts of the context side by side, then summed up, as decoding kernels do it."""
    batch, heads, context, dim = keys.shape
    parts = 1
    while parts * 2 * batch * heads <= PARALLEL and context % (parts * 2) == 0 and context // (parts * 2) >= 256:
        parts *= 2
    cut = (batch, heads * parts, context // parts, dim)
    found, sums = attention(q.repeat_interleave(parts, 1), keys.reshape(cut), values.reshape(cut))
    found = found.reshape(batch, heads, parts, -1, dim)
    shares = sums[..., : found.shape[3]].reshape(batch, heads, parts, -1, 1).softmax(2).to(found.dtype)
    return (found * shares).sum(2)


class Layer:
    """Norms, projections, rotary embedding, attention and MLP. A token's experts are chosen evenly: routing balanced as well as can be."""

    def __init__(self, model: Model) -> None:
        self.model = model
        m = model
        self.norm = torch.ones(m.hidden, device="cuda", dtype=torch.bfloat16)
        self.qkv = weights((m.heads + 2 * m.kv_heads) * m.dim, m.hidden)
        self.out = weights(m.hidden, m.heads * m.dim)
        experts = (m.experts,) if m.experts else ()
        self.up = weights(*experts, 2 * m.inner, m.hidden)
        self.down = weights(*experts, m.hidden, m.inner)

    def mlp(self, x):
        m, shape = self.model, x.shape
        if not m.experts:
            gate, up = functional.linear(x, self.up).chunk(2, -1)
            return functional.linear(functional.silu(gate) * up, self.down)
        x = x.reshape(-1, m.hidden)
        rows = x.shape[0] * m.active
        used = min(m.experts, rows)
        rows -= rows % used
        chosen = x.repeat(m.active, 1)[:rows].reshape(used, -1, m.hidden)
        gate, up = torch.bmm(chosen, self.up[:used].transpose(1, 2)).chunk(2, -1)
        down = torch.bmm(functional.silu(gate) * up, self.down[:used].transpose(1, 2)).reshape(-1, m.hidden)
        sums = down[: down.shape[0] // m.active * m.active].reshape(m.active, -1, m.hidden).sum(0)
        return functional.pad(sums, (0, 0, 0, x.shape[0] - sums.shape[0])).reshape(shape)

    def project(self, x, cosines, sines):
        """q, k, v as [batch, heads, tokens, dim]."""
        m = self.model
        batch, tokens, _ = x.shape
        qkv = functional.linear(functional.rms_norm(x, (m.hidden,), self.norm), self.qkv)
        qkv = qkv.reshape(batch, tokens, -1, m.dim).transpose(1, 2)
        q, k, v = qkv.split((m.heads, m.kv_heads, m.kv_heads), 1)
        return rotate(q, cosines, sines), rotate(k, cosines, sines), v

    def finish(self, x, attention):
        x = x + functional.linear(attention, self.out)
        return x + self.mlp(functional.rms_norm(x, (self.model.hidden,), self.norm))

    def prefill(self, x, cosines, sines):
        """`x` is [batch, tokens, hidden]."""
        m = self.model
        q, k, v = self.project(x, cosines, sines)
        group = m.heads // m.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.finish(x, found.transpose(1, 2).reshape(*x.shape[:2], -1))

    def step(self, x, cosines, sines, keys, values):
        """The last n tokens of a context: `x` is [batch, n, hidden], the cache [batch, KV heads, context, dim]; its last n tokens are
        replaced. n is 1 for decoding; of more tokens each sees all others, which costs what a mask would save."""
        m = self.model
        batch, tokens, _ = x.shape
        q, k, v = self.project(x, cosines, sines)
        keys[:, :, -tokens:], values[:, :, -tokens:] = k, v
        # The query heads that share a KV head stand in for tokens, so that the cache is read once.
        found = over_parts(q.reshape(batch, m.kv_heads, -1, m.dim), keys, values).reshape(batch, m.heads, tokens, m.dim)
        return self.finish(x, found.transpose(1, 2).reshape(batch, tokens, -1))


def rotary(model: Model, tokens: int):
    angles = torch.outer(torch.arange(tokens, device="cuda").float(), 5e5 ** -(torch.arange(0, model.dim, 2, device="cuda") / model.dim))
    return angles.cos().bfloat16(), angles.sin().bfloat16()


def captured(work):
    """`work` as a CUDA graph, so that the host's time for launches is not measured."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            work()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def intervals(replay, count, warm=2):
    """Milliseconds from one end of a replay to the next one's."""
    for _ in range(warm):
        replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for number, event in enumerate(events[1:]):
        # Never far ahead: a launch that waits for room in the driver's queue would hold up other threads' calls.
        events[max(0, number - 1)].synchronize()
        replay()
        event.record()
    events[-1].synchronize()
    return [before.elapsed_time(after) for before, after in zip(events, events[1:])]
