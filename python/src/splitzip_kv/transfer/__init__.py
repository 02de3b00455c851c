# SPDX-License-Identifier: Apache-2.0
"""Moving caches between processes over a transfer engine: docs/transfer.md.

The receiving side expects a request and says where its tensors belong; the sending side encodes them into frames,
writes each into a slot of the receiver and says what it wrote; the receiver verifies, decodes and confirms.
"""

from .engine import Engine, Event, Link, Segment
from .errors import Code, TransferError
from .incoming import IncomingRequest
from .options import Options
from .outgoing import OutgoingRequest
from .parts import Part
from .receiver import Receiver
from .report import Span, TransferReport
from .sender import Sender
from .tensor_parallel import HeadRange, head_ranges, heads_of, part_of_heads

__all__ = [
    "Code",
    "Engine",
    "Event",
    "HeadRange",
    "IncomingRequest",
    "Link",
    "Options",
    "OutgoingRequest",
    "Part",
    "Receiver",
    "Segment",
    "Sender",
    "Span",
    "TransferError",
    "TransferReport",
    "head_ranges",
    "heads_of",
    "part_of_heads",
]
