"""Columns as plain arrays: stamps, numbers (also in text), quality, sensor ids. What is wrong is counted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

import numpy as np
import polars as pl
import pyarrow as pa

from storage.history.grid import micros

# Years 1 to 9999: what a stamp can be, and what Python's own times can hold.
FIRST = micros(datetime(1, 1, 2, tzinfo=UTC))
LAST = micros(datetime(9999, 12, 30, tzinfo=UTC))
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MICRO = 1_000_000


def is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds texts, as they are or as a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def _filled(column: pa.ChunkedArray, missing: float) -> tuple[np.ndarray, np.ndarray]:
    """The values of an int64 or float64 column with `missing` for null, and a mask of those, without a copy.

    pyarrow's own `to_numpy` imports pandas, which takes a while and memory in every worker.
    """
    if column.null_count:
        series = cast("pl.Series", pl.from_arrow(column))
        return series.fill_null(missing).to_numpy(), series.is_null().to_numpy()
    parts = [np.from_dlpack(chunk) for chunk in column.chunks if len(chunk)]
    kind = np.int64 if pa.types.is_integer(column.type) else np.float64
    values = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, kind), *parts])
    return values, np.zeros(len(values), bool)


def stamps(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Microseconds since 1970 int64 [n], and masks bool [n]: null, and outside the years 1 to 9999.

    Both kinds stand as 0 in the first array. The range is checked in the column's own unit: a conversion
    first would overflow and could land on a plausible time.
    """
    raw, null = _filled(column.cast(pa.int64()), 0)
    per_second = _PER_SECOND[column.type.unit]
    low, high = (bound * per_second // _MICRO for bound in (FIRST, LAST))
    impossible = (raw < low) | (raw > high)
    raw = np.where(impossible, 0, raw)
    raw = raw // (per_second // _MICRO) if per_second >= _MICRO else raw * (_MICRO // per_second)
    return raw, null, impossible


def local_to_utc(local: np.ndarray, zone: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """UTC microseconds of naive local ones [n] in file order, and masks: no such time, in a repeated hour.

    When clocks go forward an hour of local times does not exist: such rows have no time. When they go back
    an hour is there twice. Of a stamp that occurs again, the second is the later one; where no stamp repeats
    but the rows jump back by more than half an hour, those after the jump are. A lone pass is the earlier.
    """
    naive = pl.Series(local.astype("datetime64[us]"))
    early, late = (
        naive.dt.replace_time_zone(zone, ambiguous=which, non_existent="null").dt.timestamp("us")
        for which in ("earliest", "latest")
    )
    missing = early.is_null().to_numpy()
    utc = early.fill_null(0).to_numpy().copy()
    later = late.fill_null(0).to_numpy()
    twice = (utc != later) & ~missing
    if twice.any():
        at = np.flatnonzero(twice)
        utc[at] = np.where(_second_pass(local[at]), later[at], utc[at])
    return utc, missing, twice


def _second_pass(local: np.ndarray) -> np.ndarray:
    """Which stamps of repeated hours, in file order, belong to the second time the clock showed them."""
    again = np.zeros(len(local), bool)
    hours = np.cumsum(
        np.append(False, np.abs(np.diff(local)) > 12 * 3600 * _MICRO)
    )  # one change of clocks each
    for hour in np.unique(hours):
        at = np.flatnonzero(hours == hour)
        order = at[np.argsort(local[at], kind="stable")]
        same = np.append(False, np.diff(local[order]) == 0)
        if same.any():
            again[order[same]] = True
            continue
        jumps = np.flatnonzero(np.diff(local[at]) < -1800 * _MICRO)
        if len(jumps):
            again[at[jumps[0] + 1 :]] = True
    return again


def numbers(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """float64 [n] with NaN for null, and a mask [n] of texts that are no number (NaN too)."""
    if is_text(column.type):
        return _parsed(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    column = column.cast(pa.float64(), safe=False)
    values, _ = _filled(column, np.nan)
    return values, np.zeros(len(values), bool)


def _parsed(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers written as text; a comma may stand for the point (`1,5`)."""
    known, codes = _coded(column)
    table = (
        pl.Series("", known, dtype=pl.String).str.strip_chars().str.replace(r"^([+-]?\d*),(\d+)$", "$1.$2")
    )
    parsed = table.cast(pl.Float64, strict=False)
    # An empty text says that there is no value; it is null and not wrong.
    wrong = (parsed.is_null() & (table != "")).to_numpy()
    values = np.append(parsed.fill_null(np.nan).to_numpy(), np.nan)
    return values[codes], np.append(wrong, False)[codes]


def good(column: pa.ChunkedArray, words: Sequence[str]) -> np.ndarray:
    """bool [n]: whether a quality column says one of `words`; a null does not. Capitals do not matter."""
    known, codes = _coded(column if is_text(column.type) else column.cast(pa.string()))
    fine: np.ndarray = np.array([_is_good(text.strip().lower(), words) for text in known] + [False])
    said: np.ndarray = fine[codes]
    return said


def _is_good(text: str, words: Sequence[str]) -> bool:
    for word in words:
        low, mark, high = word.partition("-")
        if mark and low.isdigit() and high.isdigit():
            if text.isdigit() and int(low) <= int(text) <= int(high):
                return True
        elif text == word.strip().lower():
            return True
    return False


def texts(column: pa.ChunkedArray) -> tuple[list[str], np.ndarray]:
    """The different texts of an id column and the number of each row's, -1 for null.

    Bytes are read as UTF-8 and whole numbers as they are written; ValueError for anything else.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (is_text(column.type) or pa.types.is_integer(kind)):
        raise ValueError(f"holds {kind}, not texts")
    return _coded(column if is_text(column.type) else column.cast(pa.string()))


def _coded(column: pa.ChunkedArray) -> tuple[list[str], np.ndarray]:
    """The different texts, and int64 [n] which of them; -1 for null."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], column.type)
    if whole is None or len(whole) == 0:
        return [], np.empty(0, np.int64)
    known: list[str] = []
    for value in whole.dictionary.to_pylist():
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except UnicodeDecodeError:
                raise ValueError("holds bytes that are no UTF-8 text") from None
        known.append("" if value is None else str(value))
    return known, _filled(pa.chunked_array([whole.indices.cast(pa.int64())]), -1)[0]


ENOUGH_TO_JUDGE = 32  # rows


def only_rise(values: np.ndarray) -> np.ndarray:
    """bool [C]: the columns of `values` [n, C] in time order that never fall and rise at most steps.

    A counter, a row number or a clock. A set-point that was raised once rises at few steps and stays.
    """
    found = np.zeros(values.shape[1], bool)
    for n in range(values.shape[1]):
        there = values[:, n][np.isfinite(values[:, n])]
        if len(there) >= ENOUGH_TO_JUDGE:
            steps = np.diff(there)
            found[n] = bool((steps >= 0).all() and np.count_nonzero(steps) > len(steps) / 2)
    return found
