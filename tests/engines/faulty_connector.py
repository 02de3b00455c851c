# SPDX-License-Identifier: Apache-2.0
"""SplitZipConnector over a link that damages what it carries while the file SPLITZIP_FAULT exists."""

import os
from pathlib import Path

from splitzip_kv.integrations.vllm import SplitZipConnector
from splitzip_kv.transfer.engine import address_of
from splitzip_kv.transfer.mooncake import MooncakeEngine
from splitzip_kv.transfer.sender import Sender

__all__ = ["SplitZipConnector"]

FAULT = Path(os.environ["SPLITZIP_FAULT"])
_make = Sender.__init__


def _init(self, engine, *arguments, **settings):
    _make(self, engine, *arguments, **settings)
    real = engine.write

    def write(data_address, segments, timeout, stop):
        if not FAULT.exists():
            return real(data_address, segments, timeout, stop)
        memory = self.staging.pieces[0]
        position = segments[0].local - address_of(memory) + segments[0].length // 2
        memory[position] ^= 0x10
        try:
            return real(data_address, segments, timeout, stop)
        finally:
            memory[position] ^= 0x10

    if isinstance(engine, MooncakeEngine):
        engine.write = write


Sender.__init__ = _init
