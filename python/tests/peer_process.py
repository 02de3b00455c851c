# SPDX-License-Identifier: Apache-2.0
"""One side of test_cuda_peer.py as a process of its own. Each line on standard input names a request by its number.

python peer_process.py decode DEVICE ROUTES      expects each request, and says what came of it
python peer_process.py prefill DEVICE ROUTES ADDRESS      sends each request, of a long one a part
"""

import sys

from device_cases import assert_moved, device_tensors
from splitzip_kv.transfer import Options, Receiver, Sender, TransferError
from splitzip_kv.transfer.cuda_peer import CudaPeerEngine
from transfer_cases import make_codebooks

LONG = 1000  # the number of a request of many parts
OPTIONS = {"timeout": 60.0, "slot_bytes": 1 << 18, "staging_bytes": 12 << 20}


def request_of(number, side, device=0):
    most = {"most_parts": 24, "most_tokens": 1000} if number >= LONG else {"most_tokens": 1500}
    return device_tensors(number, (side,), device, **most)


def decode(receiver, device):
    print(receiver.address, flush=True)
    for line in sys.stdin:
        tensors = request_of(int(line), "target", device)
        incoming = receiver.expect(f"request {int(line)}", [tensor.part(tensor.target) for tensor in tensors])
        print("expected", flush=True)
        try:
            incoming.wait()
            assert_moved(tensors)
            print("exact", flush=True)
        except AssertionError:
            print("wrong", flush=True)
        except TransferError as error:
            print(error.code.name, flush=True)


def send(sender, address, number, device=0):
    """All of a request; of a long one the first part alone, and then nothing more."""
    codebook = sender.codebooks.find("kv")
    tensors = request_of(number, "source", device)
    request = sender.start(address, f"request {number}")
    for tensor in tensors:
        request.send([tensor.part(tensor.source, codebook)])
        if number >= LONG:
            print("begun", flush=True)
            sys.stdin.read()
    return request.finish()


def prefill(sender, device, address):
    for line in sys.stdin:
        try:
            send(sender, address, int(line), device)
            print("done", flush=True)
        except TransferError as error:
            print(error.code.name, flush=True)


def main():
    role, device, routes, *address = sys.argv[1:]
    engine = CudaPeerEngine(int(device), routes=routes.split(","))
    end = (Receiver if role == "decode" else Sender)(engine, make_codebooks(), Options(**OPTIONS))
    (decode if role == "decode" else prefill)(end, int(device), *address)
    end.close()


if __name__ == "__main__":
    main()
