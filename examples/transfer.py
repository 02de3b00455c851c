# SPDX-License-Identifier: Apache-2.0
"""Moves a cache of four layers, layer by layer, from one paged pool to another. Both sides are in this process, on an
engine for tests; between processes `MooncakeEngine()` takes the place of `network.engine()`. Needs numpy and ml_dtypes."""

import ml_dtypes
import numpy as np

from splitzip_kv import Calibration, Layout
from splitzip_kv.transfer import Part, Receiver, Sender
from splitzip_kv.transfer.inprocess import Network

LAYERS, TOKENS = 4, 45
PAGES, OTHER_PAGES = [17, 3, 20], [4, 15, 22]


def pools(seed: int) -> np.ndarray:
    """BF16 keys, [layer, page, token, head, dim]."""
    scale = 2.0 ** (np.arange(2 * 64).reshape(2, 64) % 7)
    values = np.random.default_rng(seed).standard_normal((LAYERS, 24, 16, 2, 64)) * scale
    return values.astype(ml_dtypes.bfloat16)


samples, prefill_pools, decode_pools = pools(1), pools(2), np.zeros_like(pools(3))
calibration = Calibration()
for layer in range(LAYERS):
    calibration.add(f"layers.{layer}.k", Layout(samples[layer], "page,token,head,dim", pages=range(24)))
codebooks = calibration.finish()
network = Network()

# begin receive
receiver = Receiver(network.engine(), codebooks)
incoming = receiver.expect(
    "request 7",
    [
        Part(decode_pools[layer], "page,token,head,dim", key=layer, pages=OTHER_PAGES, tokens=TOKENS)
        for layer in range(LAYERS)
    ],
)
# end receive

# begin send
sender = Sender(network.engine(), codebooks)
outgoing = sender.start(receiver.address, "request 7")
for layer in range(LAYERS):  # as the model computes them
    codebook = codebooks.find(f"layers.{layer}.k")
    pool = prefill_pools[layer]
    part = Part(pool, "page,token,head,dim", key=layer, pages=PAGES, tokens=TOKENS, codebook=codebook)
    outgoing.send([part])  # encoded when this returns: the pages may change
outgoing.finish()  # the receiver has everything and has verified it
# end send

# begin wait
incoming.wait_for(0)  # the first layer is there and verified
incoming.wait()  # everything is; TransferError says what went wrong
# end wait

sent = prefill_pools[:, PAGES].reshape(LAYERS, 48, 2, 64)[:, :TOKENS]
arrived = decode_pools[:, OTHER_PAGES].reshape(LAYERS, 48, 2, 64)[:, :TOKENS]
assert np.array_equal(sent.view(np.uint16), arrived.view(np.uint16))
wire_bytes = outgoing.report.wire_bytes
print(f"{sent.nbytes} bytes arrived as {wire_bytes} and are the same, ratio {sent.nbytes / wire_bytes:.3f}")
sender.close()
receiver.close()
network.close()
