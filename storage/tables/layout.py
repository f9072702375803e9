"""How many shards a date has: decided once per date, by its first writer, in one note per store.

The note lists spans of dates with their number of shards. **What it says of a date never changes**; a date
that it does not name has no objects yet, and its first writer adds it by a conditional PUT. So a note that
was read once stays true for every date in it, however old it is, and a store grows with its fleet: a new
date may have another number than the one before.

The note is a Parquet object without rows, `date=1970-01-01/store.parquet`, so that it disturbs nobody who
reads the whole folder. A note of version 0.1 gives one number for the whole store; the first writer of this
version keeps that number for the dates that have objects (they are `joinable`, see `compaction`) and decides
the others anew.
"""

from __future__ import annotations

import json
import math
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

from paano.errors import ConfigError, Conflict, ObjectMissing, StorageError
from storage import parquet
from storage.keys import date_prefix
from storage.objects.store import Store
from storage.retry import on_condition

NOTE_DATE = date(1970, 1, 1)
NOTE = f"{date_prefix(NOTE_DATE)}/store.parquet"
SENSORS_PER_OBJECT = 64
MOST_SHARDS = 9_999
_ONE_DAY = timedelta(days=1)


def shards_for(sensors: int, per_object: int = SENSORS_PER_OBJECT) -> int:
    """The number of shards for a fleet: a power of two, at most `per_object` sensors in each on average.

    Of two powers of two every shard of the larger lies within one of the smaller, so that a store can grow
    and a writer of a whole shard still is the only one of the day before.
    """
    needed = max(1, math.ceil(sensors / per_object))
    return min(1 << (needed - 1).bit_length(), 8_192)


@dataclass(frozen=True)
class Span:
    """Dates from `first` to `last`, both included, and their number of shards.

    A `joinable` date may hold `day.parquet` beside or instead of objects of its shards.
    """

    first: date
    last: date
    shards: int
    joinable: bool = False

    def goes_on_with(self, other: Span) -> bool:
        same = (self.shards, self.joinable) == (other.shards, other.joinable)
        return same and self.last + _ONE_DAY == other.first


@dataclass(frozen=True)
class Layout:
    """What a note says. `fixed` is the number for all dates in a note of version 0.1."""

    spans: tuple[Span, ...] = ()
    fixed: int | None = None

    def on(self, day: date) -> Span | None:
        """The span of a date; None if it is not decided yet."""
        if self.fixed is not None:
            return Span(day, day, self.fixed, joinable=True)
        at = bisect_right(self.spans, day, key=lambda span: span.first) - 1
        return self.spans[at] if at >= 0 and day <= self.spans[at].last else None

    def with_days(self, days: Iterable[date], shards: int, joinable: bool = False) -> Layout:
        """This and the `days` that were not decided, as `shards` each."""
        new = [Span(day, day, shards, joinable) for day in sorted(set(days)) if self.on(day) is None]
        return Layout(tuple(_merged(sorted([*self.spans, *new], key=lambda span: span.first))))

    def near(self, day: date) -> int | None:
        """The number of the nearest decided date that was not taken over from version 0.1."""

        def distance(span: Span) -> int:
            return max((span.first - day).days, (day - span.last).days, 0)

        own = [span for span in self.spans if not span.joinable]
        return min(own, key=distance).shards if own else None


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    held: Span | None = None
    for span in spans:
        if held is not None and held.goes_on_with(span):
            held = replace(held, last=span.last)
        else:
            if held is not None:
                yield held
            held = span
    if held is not None:
        yield held


@dataclass
class Note:
    """The layout of one store: read once, read again only for dates that it did not name."""

    store: Store
    kind: str
    encode: Callable[[str], bytes]  # an object of the table without rows that carries a text
    _layout: Layout | None = None
    _etag: str | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def on(self, day: date, fresh: bool = False) -> Span | None:
        """The span of a date; None if it is not decided, as far as a note read just now says if `fresh`."""
        return self.on_all([day], fresh).get(day)

    def on_all(self, days: Iterable[date], fresh: bool = False) -> dict[date, Span]:
        """The spans of those of `days` that are decided."""
        days = list(days)
        with self._lock:
            known = self.layout()
            if known is not None and known.fixed is None and all(known.on(day) for day in days):
                fresh = False
            if fresh:
                known = self.layout(fresh=True)
        found = {day: known.on(day) for day in days} if known is not None else {}
        return {day: span for day, span in found.items() if span is not None}

    def layout(self, fresh: bool = False) -> Layout | None:
        """What the note says; None for a store that nobody has written to."""
        with self._lock:
            if self._layout is None or fresh:
                try:
                    raw, self._etag = self.store.get_with_etag(NOTE)
                except ObjectMissing:
                    self._layout = self._etag = None
                else:
                    self._layout = self._read(raw)
            return self._layout

    def is_old(self) -> bool:
        """Whether the note is of version 0.1. It decides nothing for good: writers renew it first."""
        layout = self.layout()
        return layout is not None and layout.fixed is not None

    def _read(self, raw: bytes) -> Layout:
        where = self.store.url_of(NOTE)
        try:
            note = json.loads(parquet.note(raw))
            kind, form = note["kind"], int(note["format"])
            if form == 1:
                layout = Layout(fixed=int(note["shards"]))
            elif form == 2:
                layout = Layout(tuple(_span(span) for span in note["spans"]))
            else:
                raise ConfigError(f"{where}: it is of form {form}, which only a newer version can read")
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{where}: it is damaged, so the number of shards is unknown; put it back from a copy, or "
                f"give {self.kind}.url another address and run `paano backfill`"
            ) from error
        if kind != self.kind:
            raise ConfigError(f"{where}: this store holds {kind}, not {self.kind}; give them two addresses")
        return layout

    def decide(self, days: Iterable[date], shards: int, exact: bool = False) -> dict[date, Span]:
        """The spans of all `days`; those not decided get `shards`. At most one PUT, none if all are decided.

        Unless `exact`, a date takes the number of its neighbours while that is from `shards` to twice as
        many: a fleet that grows and shrinks by a few sensors does not change its number every night.
        """
        days = list(days)
        with self._lock:
            known = self.layout()
            if known is None or known.fixed is not None or any(known.on(day) is None for day in days):
                on_condition(lambda: self._extend(days, shards, exact))
            return self.on_all(days)

    def _extend(self, days: list[date], shards: int, exact: bool) -> None:
        held = self.layout(fresh=True)
        if held is None:
            layout = self._begin()
        elif held.fixed is not None:
            layout = Layout().with_days(dates_in(self.store), held.fixed, joinable=True)
        else:
            layout = held
        missing = [day for day in days if layout.on(day) is None]
        if held == layout and not missing:
            return
        if missing:
            near = None if exact else layout.near(missing[0])
            layout = layout.with_days(missing, near if near and shards <= near <= 2 * shards else shards)
        text = json.dumps({"format": 2, "kind": self.kind, "spans": [_words(s) for s in layout.spans]})
        etag = self.store.put(NOTE, self.encode(text), if_match=self._etag, if_absent=held is None)
        self._layout, self._etag = layout, etag

    def _begin(self) -> Layout:
        """The layout of a new store; StorageError if it holds dates and its note was lost."""
        if dates_in(self.store) and self.layout(fresh=True) is None:
            raise StorageError(
                f"{self.store.url}: it holds dates, but not {NOTE}, which says how they are laid out; copy "
                f"that object too, or give {self.kind}.url another address"
            )
        if self._layout is not None:
            raise Conflict(f"{self.store.url_of(NOTE)}: somebody else wrote it first")
        return Layout()


def _span(words: dict[str, str | int | bool]) -> Span:
    first, last = (date.fromisoformat(str(words[name])) for name in ("first", "last"))
    shards = int(words["shards"])
    if not (first <= last and 1 <= shards <= MOST_SHARDS):
        raise ValueError("a span must not be empty")
    return Span(first, last, shards, bool(words.get("joinable", False)))


def _words(span: Span) -> dict[str, str | int | bool]:
    words: dict[str, str | int | bool] = {
        "first": span.first.isoformat(),
        "last": span.last.isoformat(),
        "shards": span.shards,
    }
    return {**words, "joinable": True} if span.joinable else words


def dates_in(store: Store) -> list[date]:
    """Dates that have at least one object, in order: one listing of folders, whatever they hold."""
    found = map(date_of, store.folders())
    return sorted(day for day in found if day is not None and day != NOTE_DATE)


def date_of(folder: str) -> date | None:
    """The date of a folder `date=YYYY-MM-DD`; None for any other."""
    name, _, value = folder.partition("=")
    try:
        return date.fromisoformat(value) if name == "date" else None
    except ValueError:
        return None
