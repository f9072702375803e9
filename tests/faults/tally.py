"""Counting: what was tried and what survived. Every row of the suite is a function that fills a `Tally`."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

THOROUGH = "PAANO_FAULTS_THOROUGH"  # set by --thorough

_counting = threading.Lock()  # trials of a row may run side by side


def thorough() -> bool:
    """Whether a fault is put at every call and not at every k-th."""
    return bool(os.environ.get(THOROUGH))


class Limit(Exception):
    """Something is known not to hold: it stands in the table as it is and does not end the suite in red."""


@dataclass
class Tally:
    """Trials of one row: how many, and what became of those that did not survive."""

    tried: int = 0
    failures: dict[str, str] = field(default_factory=dict)  # trial: what happened
    limits: dict[str, str] = field(default_factory=dict)  # trial: what is known not to hold
    notes: list[str] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)  # kind of trial: how many
    lost: int = 0

    @property
    def survived(self) -> int:
        return self.tried - self.lost

    @contextmanager
    def trial(self, kind: str, name: str = "", count: int = 1) -> Iterator[None]:
        """Try something. What the block raises is recorded, and the row goes on.

        Args:
            kind: as the table shows it, the same for many trials.
            name: which of them.
            count: how many the block stands for, if it survives.
        """
        try:
            yield
        except Limit as limit:
            self.limits[f"{kind} {name}".strip()] = str(limit)
            self._add(kind, 1, lost=1)
        except Exception as error:
            self.failed(kind, name, error)
        else:
            self._add(kind, count)

    def failed(self, kind: str, name: str, error: BaseException | str) -> None:
        """Record a trial that did not survive."""
        text = (
            error
            if isinstance(error, str)
            else "".join(traceback.format_exception(error, limit=-4)).strip()[-2500:]
        )
        self.failures[f"{kind}: {name}".removesuffix(": ")] = text
        print(f"{kind}: {name} did not survive: {text[-300:]}", file=sys.stderr, flush=True)
        self._add(kind, 1, lost=1)

    def passed(self, kind: str, count: int = 1) -> None:
        """Record trials that survived."""
        self._add(kind, count)

    def _add(self, kind: str, count: int, lost: int = 0) -> None:
        with _counting:
            self.tried += count
            self.lost += lost
            self.counted[kind] = self.counted.get(kind, 0) + count

    @property
    def what(self) -> str:
        """The kinds of trials with their numbers, for the table."""
        return "; ".join(f"{count:,} {kind}" for kind, count in self.counted.items())


@dataclass(frozen=True)
class Row:
    """One row of the suite."""

    number: int
    fault: str
    must_hold: str
    run: Callable[[Tally, Path, bool], None]  # (tally, an empty folder, short)
