# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a transfer, as one exception with a code that also travels to the other side."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """Reason of a failure. The numbers are part of the protocol (docs/transfer.md)."""

    TIMEOUT = 1  # not finished in time
    PEER_CLOSED = 2  # the other process ended or closed the connection
    CANCELLED = 3  # the caller on one of the two sides gave up
    TRANSPORT = 4  # the engine reported an error
    CORRUPT = 5  # the bytes of a frame never became right
    GEOMETRY = 6  # the sender's tensors are not those that the receiver expects
    PROTOCOL = 7  # a message that must not be sent, or an unknown one
    REFUSED = 8  # the receiver does not take this session or request
    INCOMPLETE = 9  # the sender finished without having sent everything
    VERSION = 10  # the two sides have no version in common
    CODEC = 11  # encoding or decoding failed for a reason that a retry does not mend

    @classmethod
    def _missing_(cls, value: object) -> Code:
        return cls.PROTOCOL  # a number that the other side should not have sent


class TransferError(Exception):
    """A transfer, or the session that it belongs to, failed.

    `code` says why, `remote` whether the other side found it. The memory that the request was to fill is unspecified;
    nothing writes to it any more.
    """

    def __init__(self, code: Code, reason: str, *, remote: bool = False) -> None:
        super().__init__(f"{code.name}: {reason}" + (" (reported by the other side)" if remote else ""))
        self.code = code
        self.reason = reason
        self.remote = remote
