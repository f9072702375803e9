"""The TSB-AD protocol for one file: train on the first rows without labels, score all rows, measure.

The name gives the subset and the number of training rows (`004_NAB_id_4_Facility_tr_1007_1st_1437.csv`),
the last column the labels. The window of the range measures is found from the first channel.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from paano.config import PaAnoConfig
from paano.errors import SeriesError
from paano.evaluation.metrics import evaluate, find_window

LABEL = "Label"
OTHER = "other"  # the subset of a file that is not named as the benchmark names its own


@dataclass(frozen=True)
class LabelledSeries:
    """One file of the benchmark, or one of the same form."""

    file: str
    subset: str
    train_rows: int
    values: np.ndarray = field(repr=False)  # float64 (N, C), NaN = missing
    labels: np.ndarray = field(repr=False)  # bool (N,)
    digest: str  # of the file's bytes

    @property
    def channels(self) -> int:
        return int(self.values.shape[1])

    def head(self, rows: int) -> LabelledSeries:
        """The first `rows` rows only."""
        return replace(self, values=self.values[:rows], labels=self.labels[:rows])


@dataclass(frozen=True)
class Outcome:
    """What the protocol gives for one file: the six measures, what they cost, and the scores themselves."""

    measures: dict[str, float]
    window: int
    unscored: int  # rows without a score; the measures count them as never raised
    seconds: dict[str, float]  # fit (all of it), train, bank, score
    scores: np.ndarray = field(repr=False)  # float32 (N,)


def parse_name(file: str) -> tuple[str, int]:
    """Subset and training rows from the name of a file.

    >>> parse_name("004_NAB_id_4_Facility_tr_1007_1st_1437.csv")
    ('NAB', 1007)
    """
    rows = re.search(r"(?:^|_)tr_(\d+)(?=[_.]|$)", file)
    if not rows or int(rows[1]) == 0:
        raise SeriesError(
            f"{file}: the name does not say how many rows to train on; put tr_N into it, "
            "as in 004_NAB_id_4_Facility_tr_1007_1st_1437.csv"
        )
    subset = re.match(r"(?:\d+_)?(.+?)_id_", file)
    return (subset[1] if subset else OTHER), int(rows[1])


def read_series(path: Path | str) -> LabelledSeries:
    """The series, labels and training rows of a CSV; a damaged file is refused by name."""
    path = Path(path)
    subset, train_rows = parse_name(path.name)
    try:
        content = path.read_bytes()
        head, _, body = content.decode("utf-8-sig").partition("\n")
    except OSError as error:
        raise SeriesError(f"{path.name}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise SeriesError(f"{path.name}: is not a text file (byte {error.start} is not UTF-8)") from error
    columns = [name.strip().strip('"') for name in head.split(",")]
    if columns[-1] != LABEL or len(columns) < 2:
        raise SeriesError(f"{path.name}: the last column must be {LABEL!r}, after one column per channel")
    table = _numbers(body, path.name, len(columns))
    labels = table[:, -1]
    if not np.isin(labels, (0, 1)).all():
        row = int(np.argmin(np.isin(labels, (0, 1))))
        raise SeriesError(f"{path.name}: label {labels[row]:g} in row {row + 1} is neither 0 nor 1")
    return LabelledSeries(
        file=path.name,
        subset=subset,
        train_rows=train_rows,
        values=np.ascontiguousarray(table[:, :-1]),
        labels=labels.astype(bool),
        digest=hashlib.sha256(content).hexdigest(),
    )


def _numbers(body: str, file: str, columns: int) -> np.ndarray:
    """The numbers of a CSV without its head, float64 (N, columns); an empty cell is a missing value."""
    if not body.strip():
        raise SeriesError(f"{file}: has no rows")
    if ",," in body or "\n," in body or body.startswith(","):
        body = re.sub(r"(?<=,)(?=,)|^(?=,)", "nan", body, flags=re.MULTILINE)
    try:
        table = np.loadtxt(body.splitlines(), delimiter=",", ndmin=2, comments=None)
    except ValueError as error:
        raise SeriesError(f"{file}: is damaged ({str(error).splitlines()[0].rstrip('.;')})") from error
    if table.shape[1] != columns:
        raise SeriesError(f"{file}: is damaged (rows of {table.shape[1]} columns under a head of {columns})")
    return table


def check(series: LabelledSeries) -> None:
    """Refuse a series on which the protocol means nothing."""
    rows = len(series.values)
    if rows <= series.train_rows:
        raise SeriesError(
            f"{series.file}: {rows} rows, but its name asks for {series.train_rows} to train on"
        )
    if not series.labels.any():
        raise SeriesError(
            f"{series.file}: no anomaly is labelled in its {rows} rows; the measures are undefined"
        )


def run_paano(series: LabelledSeries, config: PaAnoConfig, *, device: str = "cpu") -> Outcome:
    """Fit PaAno on the training rows and measure it on all rows.

    The training rows are taken as they are: the benchmark's short prefixes may hold an anomaly themselves.
    """
    from paano.model import PaAno  # torch is imported only where a model is made

    check(series)
    start = time.perf_counter()
    model = PaAno(config, device=device).fit(series.values[: series.train_rows])
    fitted = time.perf_counter()
    scores = model.score(series.values)
    scored = time.perf_counter()
    seconds = {
        "fit": fitted - start,
        "train": model.seconds["train"],
        "bank": model.seconds["bank"],
        "score": scored - fitted,
    }
    return measure(series, scores, seconds)


def run_baseline(series: LabelledSeries, score: Callable[[np.ndarray, int], np.ndarray]) -> Outcome:
    """The same for a detector that fits and scores in one call, `score(X, train_rows)`."""
    check(series)
    start = time.perf_counter()
    scores = score(series.values, series.train_rows)
    seconds = {"fit": 0.0, "train": 0.0, "bank": 0.0, "score": time.perf_counter() - start}
    return measure(series, scores, seconds)


def measure(series: LabelledSeries, scores: np.ndarray, seconds: dict[str, float]) -> Outcome:
    """The six measures of `scores` with the window of the series' first channel."""
    window = find_window(series.values[:, 0])
    return Outcome(
        measures=evaluate(scores, series.labels, window),
        window=window,
        unscored=int(np.isnan(scores).sum()),
        seconds=seconds,
        scores=np.asarray(scores, dtype=np.float32),
    )
