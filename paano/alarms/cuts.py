"""Where events that last too long are cut: at the multiples of `longest` since 1970."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from paano.alarms.moments import whole


@dataclass(frozen=True)
class Cuts:
    """The moments at which events may be cut."""

    every: np.timedelta64
    reach: np.timedelta64  # an event is cut where it began at least so long before

    def upto(self, moment: np.datetime64) -> np.datetime64:
        """The last cut not after `moment`."""
        return self._number(whole(moment) // whole(self.every))

    def since(self, moment: np.datetime64) -> np.datetime64:
        """The first cut not before `moment`."""
        return self._number(-(-whole(moment) // whole(self.every)))

    def _number(self, number: int) -> np.datetime64:
        return np.datetime64(number * whole(self.every), "us")


def cuts_of(longest: timedelta | None, breadth: np.timedelta64) -> Cuts | None:
    if longest is None:
        return None
    every = max(np.timedelta64(longest), 2 * breadth)
    return Cuts(every, every - breadth)


def cut_pieces(
    ts: np.ndarray, groups: Iterable[np.ndarray], cuts: Cuts | None
) -> Iterable[tuple[np.ndarray, np.datetime64 | None]]:
    """Groups of anomalous rows, cut where they last too long, and the moment at which each would be cut."""
    for rows in groups:
        while cuts is not None:
            cut = cuts.since(ts[rows[0]] + cuts.reach)
            inside = int(np.searchsorted(ts[rows], cut))
            yield rows[:inside], cut
            if inside == rows.size:
                break
            rows = rows[inside:]
        else:
            yield rows, None
