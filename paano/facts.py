"""Facts about a model: which sensor it belongs to and what it was trained on, kept in `model.json`.

The method itself needs none of them. Whoever saves a model may add entries of their own (plain JSON); the
entries named here are checked whenever they are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from paano.errors import ArtifactError

LONGEST_TEXT = 4096
MOST_ROWS = 10**12
LONGEST_INTERVAL = 366 * 86_400.0  # seconds


class ModelFacts(Mapping[str, Any]):
    """The entries of `model.json` under `facts`: a mapping that never changes, and its known entries by type.

    An attribute whose entry is missing raises an ArtifactError that names it; `facts.get("sensor")` does not.
    """

    def __init__(self, entries: Mapping[str, Any] | None = None) -> None:
        """Check `entries`.

        Raises:
            ArtifactError: a known entry has a value it cannot have; the message names the entry.
        """
        self._entries = dict(entries or {})
        for name, check in CHECKS.items():
            if name in self._entries:
                check(name, self._entries[name])
        start, end = self.get("window_start"), self.get("window_end")
        if start is not None and end is not None and _moment("window_start", start) > _moment("", end):
            raise ArtifactError(f"facts.window_start = {start!r} is after facts.window_end = {end!r}")

    @classmethod
    def of(
        cls,
        *,
        sensor: str,
        kind: str,
        interval: timedelta,
        channel_names: Sequence[str],
        window_start: datetime,
        window_end: datetime,
        data_digest: str,
        longest_repeats: Sequence[int] | None = None,
    ) -> ModelFacts:
        """All known facts of a model.

        Args:
            sensor: the id of the sensor.
            kind: how the model was made: trained, untrained, refreshed.
            interval: the time between two rows of the training series.
            channel_names: the channels in the order of the series' columns.
            window_start, window_end: the stretch of time of the training series, with a time zone.
            data_digest: a digest of the training series.
            longest_repeats: for each channel, how many rows in a row repeated the one before, at most.
        """
        repeats = {} if longest_repeats is None else {"longest_repeats": list(longest_repeats)}
        return cls(
            {
                **repeats,
                "sensor": sensor,
                "kind": kind,
                "interval_seconds": interval.total_seconds(),
                "channel_names": list(channel_names),
                "window_start": window_start.isoformat(),
                "window_end": window_end.isoformat(),
                "data_digest": data_digest,
            }
        )

    @property
    def sensor(self) -> str:
        return _text("sensor", self._known("sensor"))

    @property
    def kind(self) -> str:
        return _text("kind", self._known("kind"))

    @property
    def interval_seconds(self) -> float:
        return _seconds("interval_seconds", self._known("interval_seconds"))

    @property
    def interval(self) -> timedelta:
        return timedelta(seconds=self.interval_seconds)

    @property
    def channel_names(self) -> tuple[str, ...]:
        return _names("channel_names", self._known("channel_names"))

    @property
    def window_start(self) -> datetime:
        return _moment("window_start", self._known("window_start"))

    @property
    def window_end(self) -> datetime:
        return _moment("window_end", self._known("window_end"))

    @property
    def data_digest(self) -> str:
        return _text("data_digest", self._known("data_digest"))

    @property
    def longest_repeats(self) -> tuple[int, ...] | None:
        """One for each channel; None for a model that does not say, as those of version 0.1."""
        return _counts("longest_repeats", self["longest_repeats"]) if "longest_repeats" in self else None

    def to_dict(self) -> dict[str, Any]:
        """The entries as `model.json` keeps them."""
        return dict(self._entries)

    def _known(self, name: str) -> Any:
        if name not in self._entries:
            raise ArtifactError(
                f"facts.{name} is missing: the model was saved without it; save it with "
                "`facts=ModelFacts.of(…)`, or let `paano retrain` make the model"
            )
        return self._entries[name]

    # -- as a mapping --

    def __getitem__(self, name: str) -> Any:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"ModelFacts({self._entries!r:.500})"


def _text(name: str, value: Any) -> str:
    if type(value) is not str or not 1 <= len(value) <= LONGEST_TEXT:
        raise ArtifactError(f"facts.{name} = {value!r:.80} is not a text of 1 to {LONGEST_TEXT} characters")
    return value


def _seconds(name: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # compared before it is converted: a whole number of JSON can be too large for a float
    if not number or not 0 < value <= LONGEST_INTERVAL or not math.isfinite(value):
        raise ArtifactError(
            f"facts.{name} = {value!r:.80} is not a number of seconds above 0 and up to {LONGEST_INTERVAL:g}"
        )
    return float(value)


def _counts(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ArtifactError(f"facts.{name} = {value!r:.80} is not a list of numbers of rows")
    for each in value:
        if type(each) is not int or not 0 <= each <= MOST_ROWS:
            raise ArtifactError(f"facts.{name}: {each!r:.80} is not a number of rows")
    return tuple(value)


def _names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ArtifactError(f"facts.{name} = {value!r:.80} is not a list of names")
    return tuple(_text(f"{name}[{i}]", each) for i, each in enumerate(value))


def _moment(name: str, value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(_text(name, value))
    except ValueError as error:
        raise ArtifactError(f"facts.{name} = {value!r:.80} is not a time in ISO 8601") from error
    if moment.tzinfo is None:
        raise ArtifactError(f"facts.{name} = {value!r:.80} has no time zone")
    return moment


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "sensor": _text,
    "kind": _text,
    "interval_seconds": _seconds,
    "channel_names": _names,
    "window_start": _moment,
    "window_end": _moment,
    "data_digest": _text,
    "longest_repeats": _counts,
}
