# SPDX-License-Identifier: Apache-2.0
"""The decode process of test_nixl.py: for each line on standard input it expects a request of that number, and says what came of it.
Its frames are in host memory, or in that of the GPU whose number is the argument."""

import sys

from nixl_cases import codebooks, request_of
from splitzip_kv.transfer import Options, Receiver, TransferError
from splitzip_kv.transfer.nixl import NixlEngine

device = int(sys.argv[1]) if len(sys.argv) > 1 else None
receiver = Receiver(NixlEngine(device=device), codebooks(), Options(timeout=10.0))
print(receiver.address, flush=True)
for line in sys.stdin:
    tensors = request_of(int(line), device)
    incoming = receiver.expect(f"request {int(line)}", [tensor.part(tensor.target) for tensor in tensors])
    print("expected", flush=True)
    try:
        incoming.wait()
        for tensor in tensors:
            tensor.look()
        right = all(tensor.arrived() and tensor.only_there() for tensor in tensors)
        print("exact" if right else "wrong", flush=True)
    except TransferError as error:
        print(error.code.name, flush=True)
receiver.close()
