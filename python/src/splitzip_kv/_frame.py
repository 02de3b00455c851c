# SPDX-License-Identifier: Apache-2.0
"""Encoding and decoding of frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ._core import Codebook, FrameBase, Workers, check_sources, encode_into, frame_sizes
from ._errors import CodebookNotFound, InvalidArgument
from ._layout import Layout, bytes_of
from ._tensor import Tensor


class FindsCodebooks(Protocol):
    """A CodebookSet, or several behind one lookup."""

    def find_hash(self, hash: int, /) -> Codebook | None: ...


def encode(
    tensors: Sequence[Tensor],
    layouts: Sequence[Layout],
    *,
    out: Any = None,
    nonce: int = 0,
    checksums: bool = True,
    budget: bool = False,
    workers: Workers | None = None,
) -> memoryview:
    """Encode tensor i, found at layouts[i], as one frame, and return the frame.

    `out` is writable memory in one piece that overlaps no source: the frame starts where it starts;
    `frame_sizes(tensors).bound_bytes` always suffice. Without it memory is allocated. `nonce` is a generation number
    that a receiver can demand.

    With `budget`, all of `out` is written, so that it can be sent as it is, always to the same place: the frame and
    then zeros; or, if the frame does not fit, a mark that says so and then zeros, and OverBudget is raised.
    """
    if out is None and budget:
        raise InvalidArgument("a budget is the size of `out`")
    if out is None:
        check_sources(tensors, layouts)  # before memory is asked for that wrong tensors would need
        out = np.empty(frame_sizes(tensors, checksums=checksums).bound_bytes, np.uint8)
    view = bytes_of(out)
    return view[: encode_into(tensors, layouts, view, nonce, checksums, workers, budget)]


class Frame(FrameBase):
    """A frame whose header, entries and directory were checked.

    It points into `data`, which it keeps alive and which must stay unchanged while it is used; if it does change,
    decoding fails or gives wrong values, but stays inside of the frame and of the destination. Any bytes whatever are
    safe to pass.

    With `budget`, `data` is what was encoded with a budget: the frame may end before it does. Then a nonce has to be
    expected, and OverBudget says that the sender's frame did not fit.
    """

    def __init__(self, data: Any, *, expected_nonce: int | None = None, budget: bool = False) -> None:
        self.data = bytes_of(data)
        super().__init__(self.data, expected_nonce=expected_nonce, budget=budget)

    def tensors(self, codebooks: FindsCodebooks | None = None) -> list[Tensor]:
        """What the frame says that it holds, with its codebooks from `codebooks`; without those, codebooks are None."""
        return [self._resolve(index, codebooks) for index in range(self.tensor_count)]

    def codebook_hashes(self) -> list[int]:
        """Identity of the codebook of each tensor; 0 in mode RAW."""
        return [self._tensor(index)[1] for index in range(self.tensor_count)]

    def _resolve(self, index: int, codebooks: FindsCodebooks | None) -> Tensor:
        fields, codebook_hash = self._tensor(index)
        codebook = codebooks.find_hash(codebook_hash) if codebooks is not None and codebook_hash else None
        if codebook is None and codebooks is not None and codebook_hash:
            raise CodebookNotFound(f"there is no codebook with hash {codebook_hash:016x}", tensor=index)
        return Tensor(codebook=codebook, **fields)
