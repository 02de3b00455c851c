# SPDX-License-Identifier: Apache-2.0
"""Caches to move in tests whose pools are in the memory of a GPU."""

import numpy as np

from splitzip_kv import ElementType, cuda
from transfer_cases import Tensor, some_tensors


class DeviceTensor(Tensor):
    """Some of its two sides are in the GPU's memory; `Side.pool` is then what they held when it was last looked."""

    @classmethod
    def of(cls, tensor, device, *sides):
        """Makes one of the tensor, with these sides on that GPU."""
        tensor.__class__ = cls
        tensor.on_device = {}
        for side in sides:
            memory = cuda.Memory(side.pool.nbytes, device)
            cuda.copy(memory, side.pool.view(np.uint16))
            tensor.on_device[id(side)] = cuda.Array(memory, 0, side.pool.shape, "<u2")
        return tensor

    def part(self, side, codebook=None):
        array = self.on_device.get(id(side))
        if array is None:
            return super().part(side, codebook)
        return self.part_of(array, side, codebook, ElementType.BF16)

    def look(self):
        for side in (self.source, self.target):
            if id(side) in self.on_device:
                cuda.copy(side.pool.view(np.uint16), self.on_device[id(side)])


def device_tensors(seed, where=("source", "target"), device=0, **most):
    """`some_tensors` with the sides `where` on that GPU, or for ("mixed",) those of the first tensors alone."""
    tensors = some_tensors(np.random.default_rng(seed), **most)
    for number, tensor in enumerate(tensors):
        sides = {"source": tensor.source, "target": tensor.target}
        # The first tensors of "mixed" have both sides on the GPU, the others none.
        names = where if where != ("mixed",) else ("source", "target") * (number < 2)
        DeviceTensor.of(tensor, device, *(sides[name] for name in names))
    return tensors


def assert_moved(tensors):
    for tensor in tensors:
        tensor.look()
        assert tensor.arrived() and tensor.only_there()
