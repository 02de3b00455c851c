# SPDX-License-Identifier: Apache-2.0
"""Which of several ways frames take: the one that the first frames of a session find fastest."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from .engine import Route

TRIALS = 4
"""Frames by each route before one is chosen; the first of each only opens the way."""


class RouteChoice:
    """Not synchronised: its owner's lock guards it."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._all = self._routes = list(routes)
        self._begun: collections.Counter[str] = collections.Counter()
        self._costs: dict[str, list[tuple[float, int]]] = {route.name: [] for route in routes}

    @property
    def chosen(self) -> Route | None:
        """None while it is open."""
        return self._routes[0] if len(self._routes) == 1 else None

    def next(self) -> Route:
        """For the next frame: the chosen route, or the one that was tried least."""
        return min(self._routes, key=lambda route: self._begun[route.name])

    def begin(self, route: Route) -> None:
        self._begun[route.name] += 1

    def add(self, route: Route, raw_bytes: int, encode_seconds: float, write_seconds: float) -> bool:
        """What a frame took; returns whether this decides. Encoding one frame and writing another overlap, so the
        longer one counts."""
        if self.chosen is not None or route.name not in self._costs:
            return False
        self._costs[route.name].append((max(encode_seconds, route.hops * write_seconds), raw_bytes))
        if min(map(len, self._costs.values())) < TRIALS:
            return False
        self._routes = [min(self._routes, key=lambda route: _cost(self._costs[route.name][1:]))]
        return True

    def avoid(self, route: Route) -> None:
        """Go another way from now on, if there is one."""
        others = [other for other in self._all if other.name != route.name]
        if others:
            self._all, self._routes = others, [other for other in self._routes if other in others] or others
            self._costs.pop(route.name, None)


def _cost(tried: Sequence[tuple[float, int]]) -> float:
    """Seconds a raw byte."""
    seconds, raw_bytes = map(sum, zip(*tried, strict=True))
    return seconds / max(raw_bytes, 1)
