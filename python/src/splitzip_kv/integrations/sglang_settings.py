# SPDX-License-Identifier: Apache-2.0
"""What the plugin for SGLang is told, by an environment variable, and where it says what it does."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import os
from typing import Any

from ..transfer import Options

log = logging.getLogger("splitzip_kv.sglang")

VARIABLE = "SPLITZIP_SGLANG"


@dataclasses.dataclass(frozen=True)
class Settings:
    codebooks: str
    """File; "{rank}" in it stands for the number of the tensor-parallel rank, whose rows are a slice of the model's."""
    host: str | None
    """Where the other side reaches this one; None: where SGLang is reached."""
    protocol: str | None
    """Mooncake's, "tcp" or "rdma"; None: what SGLang uses."""
    given: dict[str, Any]
    """Options of the transfer layer."""

    @property
    def options(self) -> Options:
        return Options(**self.given)

    @classmethod
    def parse(cls, text: str) -> Settings:
        """From JSON. Raises ValueError that says what is wrong."""
        try:
            given = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{VARIABLE} is no JSON: {error}") from error
        if not isinstance(given, dict) or not isinstance(given.get("codebooks"), str):
            raise ValueError(f'{VARIABLE} has to be an object with the file of "codebooks"')
        own = {name: given.pop(name, None) for name in ("codebooks", "host", "protocol")}
        known = {field.name for field in dataclasses.fields(Options)}
        if wrong := set(given) - known:
            raise ValueError(f"{VARIABLE}: no such setting: {', '.join(sorted(wrong))}")
        settings = cls(**own, given=given)
        _ = settings.options  # raises for values that make no sense
        return settings


@functools.cache
def settings() -> Settings:
    return Settings.parse(os.environ[VARIABLE])
