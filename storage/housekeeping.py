"""Keeping stores small: join small objects of closed days, remove what is older than it must be kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from storage.scores import ScoreStore


@dataclass(frozen=True)
class Compacted:
    """What `compact` joined (or would join, if `dry_run`)."""

    dates: list[date]
    before: int  # objects
    after: int
    bytes: int


def compact(scores: ScoreStore, before: date, dry_run: bool = False) -> Compacted:
    """Join the small objects of every closed date before `before`. Rows stay the same."""
    raise NotImplementedError


def retire(scores: ScoreStore, keep: timedelta, today: date, dry_run: bool = False) -> list[date]:
    """Remove dates older than `keep` before `today`; the dates."""
    raise NotImplementedError
