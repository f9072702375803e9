"""Tables of other libraries as input: pandas, polars and Arrow, each with its time index.

None of them is imported here. The answer to a table has the form of the table: the scores of a pandas frame
are a pandas Series with the same index, those of a polars or Arrow table with a time column are a table with
that column and the scores. A polars or Arrow table without a time column has no index, so its answer
is an array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from paano.errors import SeriesError


@dataclass(frozen=True)
class Frame:
    """What came in, taken apart."""

    values: Any  # numbers (N,) or (N, C)
    index: Any = None  # the time index as its library keeps it; None for an array
    columns: Any = None  # the table of the channels only, which has their names; None for an array
    wrap: Callable[[np.ndarray, str], Any] | None = None

    def answer(self, values: np.ndarray, name: str) -> Any:
        """`values` [N] in the form of the table, or as they are for an array."""
        return values if self.wrap is None else self.wrap(values, name)


def read_frame(X: Any) -> Frame:
    """`X` taken apart into numbers and time index.

    Raises:
        SeriesError: the time index does not rise from row to row, or there are several time columns.
    """
    library = type(X).__module__.partition(".")[0]
    if library == "polars" and hasattr(X, "columns"):
        return _polars(X)
    if library == "pyarrow" and hasattr(X, "column_names"):
        return _arrow(X)
    if hasattr(X, "iloc") and hasattr(X, "index") and hasattr(X, "to_numpy"):
        return _pandas(X)
    if hasattr(X, "tocsr"):
        raise SeriesError("a series is dense, sparse data are not supported; use X.toarray()")
    return Frame(X)


def _pandas(X: Any) -> Frame:
    frame = X.ndim == 2
    index = X.index
    if getattr(index.dtype, "kind", "") == "M" and not (index.is_monotonic_increasing and index.is_unique):
        raise _unsorted("index")
    try:
        kinds = {dtype.kind for dtype in X.dtypes} if frame else {X.dtype.kind}
        values = X.to_numpy() if kinds & set("cmM") else X.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise SeriesError(f"a series is numbers of shape (N,) or (N, C): {error}") from error
    make = X._constructor_sliced if frame else X._constructor
    return Frame(values, index, X if frame else None, lambda found, name: make(found, index=index, name=name))


def _polars(X: Any) -> Frame:
    time = _only([name for name, dtype in X.schema.items() if str(dtype).startswith(("Datetime", "Date"))])
    channels = X.drop(time) if time else X
    values = channels.to_numpy()
    if time is None:
        return Frame(values, None, channels)
    _check_rising(X[time].to_numpy(), time)
    return Frame(values, X[time], channels, lambda found, name: type(X)({time: X[time], name: found}))


def _arrow(X: Any) -> Frame:
    time = _only([c.name for c in X.schema if str(c.type).startswith(("timestamp", "date"))])
    names = [name for name in X.column_names if name != time]
    values = np.empty((X.num_rows, len(names)))
    try:
        for place, name in enumerate(names):
            values[:, place] = X.column(name).to_numpy()
    except (TypeError, ValueError) as error:
        raise SeriesError(f"a series is numbers of shape (N,) or (N, C): {error}") from error
    if time is None:
        return Frame(values, None, X.select(names))
    stamps = X.column(time)
    _check_rising(stamps.to_numpy(), time)
    return Frame(
        values, stamps, X.select(names), lambda found, name: type(X).from_pydict({time: stamps, name: found})
    )


def _only(times: list[str]) -> str | None:
    if len(times) > 1:
        raise SeriesError(f"the columns {', '.join(map(repr, times))} are times; leave one, the time index")
    return times[0] if times else None


def _check_rising(stamps: np.ndarray, name: str) -> None:
    stamps = np.asarray(stamps).astype("datetime64[ns]")
    if np.isnat(stamps).any() or not (np.diff(stamps) > np.timedelta64(0, "ns")).all():
        raise _unsorted(name)


def _unsorted(name: str) -> SeriesError:
    return SeriesError(
        f"the time index {name!r} does not rise from row to row; sort the rows by time and keep one row for "
        "each stamp"
    )
