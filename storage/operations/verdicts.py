"""A person's word about an event or a stretch of time: confirmed, dismissed or expected.

Verdicts are only ever appended, one object per call: `date=YYYY-MM-DD/{moment}-{hash}.parquet`, by the day
they were given. Of several about the same stretch the newest counts; the others stay as the record of who
said what.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum

import polars as pl

from paano.errors import ConfigError, StorageError
from storage import parquet
from storage.keys import date_prefix
from storage.objects.store import Store
from storage.window import Window


class Verdict(StrEnum):
    """What a person says of an event."""

    CONFIRMED = "confirmed"  # a fault: models must find it and never learn from it
    DISMISSED = "dismissed"  # a false alarm: a new model must stay quiet there
    EXPECTED = "expected"  # real, and normal from now on: a refresh takes it in


@dataclass(frozen=True)
class GivenVerdict:
    """A person's verdict on an event, or on a stretch of time."""

    sensor: str
    start: datetime
    end: datetime  # of the stretch, included
    verdict: Verdict
    at: datetime  # when it was given
    event_id: str = ""  # empty for a stretch that no event names
    note: str = ""
    by: str = ""

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ConfigError(
                f"{self.sensor}: a verdict on a stretch that ends before it starts ({self.start})"
            )


SCHEMA: dict[str, pl.DataType] = {
    "sensor": pl.String(),
    "start": pl.Datetime("us", "UTC"),
    "end": pl.Datetime("us", "UTC"),
    "verdict": pl.String(),
    "at": pl.Datetime("us", "UTC"),
    "event_id": pl.String(),
    "note": pl.String(),
    "by": pl.String(),
}


class VerdictStore:
    """The verdicts of a fleet."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def append(self, given: Sequence[GivenVerdict]) -> str:
        """Keep these verdicts; the key of their object. The same call again writes nothing new."""
        if not given:
            raise ConfigError("there is no verdict to keep")
        rows = [{**asdict(one), "verdict": str(one.verdict)} for one in given]
        frame = pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("sensor", "start", "at")
        data = parquet.encode(frame, parquet.arrow_schema(SCHEMA, tuple(SCHEMA)))
        moment = max(one.at for one in given).astimezone(UTC)
        mark = hashlib.sha256(data).hexdigest()[:12]
        key = f"{date_prefix(moment.date())}/{moment:%H%M%S%f}-{mark}.parquet"
        if self.store.head(key) is None:
            self.store.put(key, data)
        return key

    def read(self, since: date | None = None) -> pl.DataFrame:
        """Every verdict given since that day, oldest first. One listing, and one read per object."""
        keys = [info.key for info in self.store.list("") if info.key.endswith(".parquet")]
        first = date_prefix(since) if since else ""
        frames = [self._decoded(key) for key in sorted(keys) if key >= first]
        return pl.concat([pl.DataFrame(schema=SCHEMA), *frames]).sort("at", "sensor", "start")

    def latest(self, since: date | None = None) -> pl.DataFrame:
        """The newest verdict on each event, or on each stretch that no event names."""
        subject = (
            pl.when(pl.col("event_id") == "")
            .then(pl.format("{} {} {}", pl.col("sensor"), pl.col("start"), pl.col("end")))
            .otherwise(pl.col("event_id"))
        )
        rows = self.read(since).with_columns(subject.alias("_subject"))
        return rows.unique("_subject", keep="last", maintain_order=True).drop("_subject")

    def _decoded(self, key: str) -> pl.DataFrame:
        try:
            frame = (
                pl.read_parquet(io.BytesIO(self.store.get(key))).select(list(SCHEMA)).cast(pl.Schema(SCHEMA))
            )
        except pl.exceptions.PolarsError as error:
            raise StorageError(
                f"{self.store.url_of(key)}: it is damaged or no table of verdicts; move it away "
                f"({str(error).splitlines()[0]})"
            ) from error
        odd = frame.filter(~pl.col("verdict").is_in([str(one) for one in Verdict]))
        if odd.height:
            raise StorageError(
                f"{self.store.url_of(key)}: {odd['verdict'][0]!r} is not a verdict; "
                f"allowed: {', '.join(Verdict)}"
            )
        return frame


def stretches(verdicts: pl.DataFrame, sensor: str, verdict: Verdict, interval: timedelta) -> list[Window]:
    """The stretches of `sensor` with that verdict, each with the whole of its last row (`interval`)."""
    mine = verdicts.filter((pl.col("sensor") == sensor) & (pl.col("verdict") == str(verdict)))
    return [Window(row["start"], row["end"] + interval) for row in mine.iter_rows(named=True)]


# The columns of labels in AWS Lookout for Equipment, beside our own.
_NAMES = {
    "starttime": "start",
    "endtime": "end",
    "rating": "verdict",
    "notes": "note",
    "equipment": "sensor",
    "faultcode": "fault",
    "eventid": "event_id",
}
_RATINGS = {"anomaly": Verdict.CONFIRMED, "no_anomaly": Verdict.DISMISSED}


def from_csv(
    data: bytes, at: datetime, sensor: str = "", by: str = "", name: str = "labels"
) -> list[GivenVerdict]:
    """Verdicts from a CSV file, for example the labels of AWS Lookout for Equipment.

    Columns: StartTime, EndTime, and where they are there Rating (ANOMALY, NO_ANOMALY; NEUTRAL rows are left
    out), Equipment, FaultCode, Notes; our own names (start, end, verdict, sensor, note, by) do as well. A
    file of two columns without a header is a list of confirmed faults, as Lookout takes it.

    Raises:
        ConfigError: a row is wrong; the message names it. Nothing of the file is taken then.
    """
    try:
        first = data.decode().lstrip("\ufeff").split("\n", 1)[0].lower()
        headed = any(word in first for word in ("start", "begin"))
        frame = pl.read_csv(io.BytesIO(data), infer_schema=False, has_header=headed)
    except (UnicodeDecodeError, pl.exceptions.PolarsError) as error:
        raise ConfigError(f"{name}: it cannot be read as CSV: {str(error).splitlines()[0]}") from error
    if not headed:
        if frame.width != 2:
            raise ConfigError(
                f"{name}: {frame.width} columns without a header; two were expected, start and end"
            )
        frame.columns = ["start", "end"]
    plain = {column: column.strip().lower().replace("_", "").replace(" ", "") for column in frame.columns}
    frame = frame.rename({column: _NAMES.get(key, key) for column, key in plain.items()})
    given = [_given(row, f"{name}, row {n}", at, sensor, by) for n, row in enumerate(frame.to_dicts(), 1)]
    return [one for one in given if one is not None]


def _given(row: dict[str, str | None], where: str, at: datetime, sensor: str, by: str) -> GivenVerdict | None:
    def text(key: str) -> str:
        return (row.get(key) or "").strip()

    rating = text("verdict").lower() or "anomaly"
    if rating == "neutral":
        return None
    try:
        verdict = _RATINGS.get(rating) or Verdict(rating)
    except ValueError:
        allowed = ", ".join([*Verdict, "ANOMALY", "NO_ANOMALY", "NEUTRAL"])
        raise ConfigError(f"{where}: {rating!r} is not a verdict; allowed: {allowed}") from None
    name = text("sensor") or sensor
    if not name:
        raise ConfigError(f"{where}: no sensor; add a column Equipment or give --sensor")
    note = "; ".join(part for part in (text("fault"), text("note")) if part)
    start, end = (_moment(text(key), f"{where}, {key}") for key in ("start", "end"))
    return GivenVerdict(name, start, end, verdict, at, text("event_id"), note, text("by") or by)


def _moment(text: str, where: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{where}: {text!r} is not a time; write 2026-11-20T14:30:00") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def precision(verdicts: Iterable[Verdict]) -> float | None:
    """The share of confirmed ones among those confirmed or dismissed; None where there are none."""
    judged = [one for one in verdicts if one is not Verdict.EXPECTED]
    return judged.count(Verdict.CONFIRMED) / len(judged) if judged else None
