# SPDX-License-Identifier: Apache-2.0
"""Where frames are coded: on the GPU whose memory holds the values, or on the CPU. The bytes are the same."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from .. import Frame, InvalidLayout, Layout, Tensor, Workers, cuda, encode


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
    ) -> memoryview:
        coder = self._coder(layouts)
        if coder is not None:
            return coder.encode(tensors, layouts, out=out, nonce=nonce, checksums=checksums)
        return encode(tensors, layouts, out=out, nonce=nonce, checksums=checksums, workers=self._workers)

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
        if device is None:
            return None
        with self._lock:
            if device not in self._coders:
                self._coders[device] = cuda.Coder(device)
            return self._coders[device]
