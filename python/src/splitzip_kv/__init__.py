# SPDX-License-Identifier: Apache-2.0
"""Lossless compression of LLM key-value caches.

    books = CodebookSet.load("kv.szcb")  # made by `splitzip calibrate`, or by Calibration
    source = Layout(pool, "page,token,head,dim", pages=[7, 3, 12])  # where the values are
    tensor = source.tensor(books.find("layers.0.k"))  # what they are
    frame = encode([tensor], [source])  # memoryview

    target = Layout(other_pool, "page,token,head,dim", pages=[0, 1, 2])
    Frame(frame).decode([tensor], [target])

`encode`, `Frame.decode`, `Frame.decode_unit` and `Calibration.add` release the GIL. Any object may be used by several
threads. Each call works in the calling thread alone unless it is given `Workers`.
Failures are subclasses of `SplitzipError`, named after the status codes of the C interface.
"""

from ._core import (
    FORMAT_VERSION,
    Calibration,
    Codebook,
    CodebookSet,
    ElementType,
    FrameSizes,
    Mode,
    Workers,
    frame_size,
    frame_sizes,
    library_version,
    propose_budget,
)
from ._errors import (
    BadMagic,
    ChecksumMismatch,
    CodebookCorrupt,
    CodebookMismatch,
    CodebookNotFound,
    CodebookRequired,
    CorruptDirectory,
    CorruptHeader,
    CorruptPayload,
    DeviceError,
    GeometryMismatch,
    InternalError,
    InvalidArgument,
    InvalidLayout,
    InvalidTensor,
    NonceMismatch,
    NoSamples,
    OutOfMemory,
    OutputTooSmall,
    OverBudget,
    SplitzipError,
    TooLarge,
    TrailingBytes,
    Truncated,
    UnsupportedFlag,
    UnsupportedMode,
    UnsupportedType,
    UnsupportedVersion,
)
from ._frame import Frame, encode
from ._layout import Layout
from ._simple import compress, decompress
from ._tensor import Tensor

__version__ = library_version()

__all__ = [
    "FORMAT_VERSION",
    "BadMagic",
    "Calibration",
    "ChecksumMismatch",
    "Codebook",
    "CodebookCorrupt",
    "CodebookMismatch",
    "CodebookNotFound",
    "CodebookRequired",
    "CodebookSet",
    "CorruptDirectory",
    "CorruptHeader",
    "CorruptPayload",
    "DeviceError",
    "ElementType",
    "Frame",
    "FrameSizes",
    "GeometryMismatch",
    "InternalError",
    "InvalidArgument",
    "InvalidLayout",
    "InvalidTensor",
    "Layout",
    "Mode",
    "NoSamples",
    "NonceMismatch",
    "OutOfMemory",
    "OutputTooSmall",
    "OverBudget",
    "SplitzipError",
    "Tensor",
    "TooLarge",
    "TrailingBytes",
    "Truncated",
    "UnsupportedFlag",
    "UnsupportedMode",
    "UnsupportedType",
    "UnsupportedVersion",
    "Workers",
    "compress",
    "decompress",
    "encode",
    "frame_size",
    "frame_sizes",
    "propose_budget",
]
