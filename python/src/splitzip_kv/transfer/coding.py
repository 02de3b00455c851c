# SPDX-License-Identifier: Apache-2.0
"""Where frames are coded: on the GPU whose memory holds the values, or on the CPU. The bytes are the same."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import Frame, InvalidLayout, Layout, Tensor, Workers, cuda, encode
from .engine import Place


class Coding:
    """All methods may be called from any thread."""

    def __init__(self, threads: int) -> None:
        """`threads` of the CPU; 0: as many as there are processors."""
        self._workers = None if threads == 1 else Workers(threads)
        self._lock = threading.Lock()
        self._coders: dict[int, cuda.Coder] = {}

    def encode(
        self,
        tensors: Sequence[Tensor],
        layouts: Sequence[Layout],
        *,
        out: Any = None,
        nonce: int = 0,
        checksums: bool = True,
        budget: bool = False,
    ) -> memoryview:
        coder = self._coder(layouts)
        if coder is not None:
            return coder.encode(tensors, layouts, out=out, nonce=nonce, checksums=checksums, budget=budget)
        workers = self._workers
        return encode(tensors, layouts, out=out, nonce=nonce, checksums=checksums, budget=budget, workers=workers)

    def encode_to(
        self,
        place: Place,
        tensors: Sequence[Tensor],
        layouts: Sequence[Layout],
        *,
        nonce: int,
        checksums: bool,
        budget: bool = False,
    ) -> int:
        """Encode to host memory or that of a GPU, which is filled where it is a budget; returns the length of the
        frame."""
        if isinstance(place, np.ndarray):
            return len(self.encode(tensors, layouts, out=place, nonce=nonce, checksums=checksums, budget=budget))
        coder = self._coder(layouts)
        if coder is not None:
            return coder.encode_to(place, tensors, layouts, nonce=nonce, checksums=checksums, budget=budget)
        filled = np.empty(place.nbytes, np.uint8) if budget else None
        encoded = self.encode(tensors, layouts, out=filled, nonce=nonce, checksums=checksums, budget=budget)
        self._coder_of(place.memory.device).copy(place, encoded if filled is None else filled)
        return len(encoded)

    def decode_from(
        self,
        place: Place,
        nonce: int,
        tensors: Sequence[Tensor],
        layouts: Sequence[Layout],
        *,
        budget: bool = False,
    ) -> None:
        """Decode the frame that fills `place`, or is in it as in a budget, and to which others may write meanwhile.

        Raises SplitzipError unless it was the frame with this nonce in the beginning and still is at the end."""
        coder = self._coder(layouts)
        if isinstance(place, cuda.Array) and coder is not None:
            coder.decode_from(place, nonce, tensors, layouts, budget=budget)
            return
        data = self.on_host(place)
        self.decode(Frame(data, expected_nonce=nonce, budget=budget), tensors, layouts)
        # A late write of an earlier frame may have replaced this one in the meantime; its nonce gives it away.
        Frame(data, expected_nonce=nonce, budget=budget)

    def on_host(self, place: Place) -> np.ndarray:
        """The bytes there; copies them from a GPU."""
        if isinstance(place, np.ndarray):
            return place
        copied = np.empty(place.nbytes, np.uint8)
        self._coder_of(place.memory.device).copy(copied, place)
        return copied

    def decode(self, frame: Frame, tensors: Sequence[Tensor], layouts: Sequence[Layout]) -> None:
        coder = self._coder(layouts)
        if coder is not None:
            coder.decode(frame, tensors, layouts)
        else:
            frame.decode(tensors, layouts, workers=self._workers)

    def _coder(self, layouts: Sequence[Layout]) -> cuda.Coder | None:
        devices = {layout.device for layout in layouts}
        if len(devices) > 1:
            raise InvalidLayout("a frame's tensors lie in the memory of several devices")
        device = devices.pop() if devices else None
        return None if device is None else self._coder_of(device)

    def _coder_of(self, device: int) -> cuda.Coder:
        with self._lock:
            if device not in self._coders:
                self._coders[device] = cuda.Coder(device)
            return self._coders[device]
