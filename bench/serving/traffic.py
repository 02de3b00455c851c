# SPDX-License-Identifier: Apache-2.0
"""Transfers of a KV cache over pinned host memory, one slice after the other, in a thread beside other work on the GPU."""

import threading
import time

import torch

SLOTS = 4
# What the CPU does in the meantime is in the way of nothing; the codec must not wait for it.
torch.set_num_threads(4)


class Traffic(threading.Thread):
    """Runs `step(number)` again and again until it is stopped; `pace` (bytes/s of raw cache) holds it back, 0 does not."""

    def __init__(self, slice_bytes, pace=0.0):
        super().__init__(daemon=True)
        self.slice_bytes = slice_bytes
        self.pace = pace
        self.done_bytes = 0  # raw, of slices that have arrived
        self.error = None
        self._stop_it = threading.Event()
        self.events = [torch.cuda.Event() for _ in range(SLOTS)]
        self.copies, self.codes = torch.cuda.Stream(), torch.cuda.Stream()

    def run(self):
        try:
            begin, number = time.monotonic(), 0
            while not self._stop_it.is_set():
                if self.pace:
                    time.sleep(max(0.0, begin + number * self.slice_bytes / self.pace - time.monotonic()))
                if number >= SLOTS:
                    while not self.events[number % SLOTS].query():
                        time.sleep(20e-6)
                    self.done_bytes += self.slice_bytes
                self.step(number % SLOTS)
                number += 1
            torch.cuda.synchronize()
        except Exception as error:
            self.error = error

    def step(self, slot):
        raise NotImplementedError

    def wait_until_running(self):
        while self.done_bytes < 8 * self.slice_bytes and self.error is None:
            time.sleep(1e-3)

    def stop(self):
        self._stop_it.set()
        self.join()
        if self.error is not None:
            raise self.error


class Raw(Traffic):
    """A slice as it is, by the copy engine."""

    def __init__(self, slice_bytes, sending, pace=0.0):
        super().__init__(slice_bytes, pace)
        device = [torch.empty(slice_bytes, dtype=torch.uint8, device="cuda") for _ in range(SLOTS)]
        host = [torch.empty(slice_bytes, dtype=torch.uint8, pin_memory=True) for _ in range(SLOTS)]
        self.pairs = list(zip(host, device) if sending else zip(device, host))

    def step(self, slot):
        target, source = self.pairs[slot]
        with torch.cuda.stream(self.copies):
            target.copy_(source, non_blocking=True)
            self.events[slot].record()


class Sending(Traffic):
    """Encode a slice, then copy its frame to the host; the next one is encoded meanwhile. Frames have budgets, so that nothing
    waits for their lengths."""

    def __init__(self, codec, pace=0.0):
        super().__init__(codec.slice_bytes, pace)
        self.codec = codec
        self.host = [torch.empty(codec.bound, dtype=torch.uint8, pin_memory=True) for _ in range(SLOTS)]
        self.coded = [torch.cuda.Event() for _ in range(SLOTS)]

    def step(self, slot):
        if self.codec.slots[slot].result.status:
            self.codec.wait(slot)  # raises what the slot's last call met
        self.codec.encode(slot, self.codes)
        with torch.cuda.stream(self.codes):
            self.coded[slot].record()
        self.copies.wait_event(self.coded[slot])
        with torch.cuda.stream(self.copies):
            self.host[slot].copy_(self.codec.frames[slot], non_blocking=True)
            self.events[slot].record()


class Receiving(Traffic):
    """Copy a frame of a budget from the host, then decode it; the next one is copied meanwhile."""

    def __init__(self, codec, pace=0.0):
        super().__init__(codec.slice_bytes, pace)
        self.codec = codec
        with torch.cuda.stream(self.codes):
            codec.encode(0, self.codes)
        codec.wait(0)
        self.host = torch.empty(codec.bound, dtype=torch.uint8, pin_memory=True)
        torch.cuda.synchronize()
        self.host.copy_(codec.frames[0])
        self.there = [torch.cuda.Event() for _ in range(SLOTS)]

    def step(self, slot):
        with torch.cuda.stream(self.copies):
            self.codec.frames[slot].copy_(self.host, non_blocking=True)
            self.there[slot].record()
        self.codes.wait_event(self.there[slot])
        if self.codec.slots[slot].result.status:
            self.codec.wait(slot)  # raises what the slot's last call met
        self.codec.decode(slot, len(self.host), self.codes)
        with torch.cuda.stream(self.codes):
            self.events[slot].record()
