# SPDX-License-Identifier: Apache-2.0
"""What can be set about stores."""

from __future__ import annotations

import dataclasses

from ..transfer.options import raw_by_environment


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreOptions:
    staging_bytes: int = 256 << 20
    """Memory for values under way, of all threads together; who finds it full waits. A value has to fit into it."""
    threads: int = 1
    """Threads that encode or decode a value; 0: as many as the machine has processors."""
    raw: bool = dataclasses.field(default_factory=raw_by_environment)
    """Kill switch: nothing is coded that is put; what was coded before stays readable. By default what the variable
    SPLITZIP_RAW says."""
    breaker: int = 8
    """After so many damaged values in a row, nothing is coded any more."""
    shadow: int = 0
    """One value in so many is decoded and compared before it is put; if it differs, nothing is coded any more.
    0: none."""

    def __post_init__(self) -> None:
        if self.staging_bytes < 4096:
            raise ValueError("staging_bytes has to be at least 4096")
        if self.breaker < 1 or min(self.threads, self.shadow) < 0:
            raise ValueError("breaker has to be at least 1, threads and shadow at least 0")
