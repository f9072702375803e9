"""Moments as numpy keeps them and as Python does, both in microseconds and UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np


def as_times(ts: np.ndarray) -> np.ndarray:
    return np.asarray(ts).astype("datetime64[us]")


def as_datetime(moment: np.datetime64) -> datetime:
    plain: datetime = moment.astype("datetime64[us]").item()
    return plain.replace(tzinfo=UTC)


def as_datetime64(moment: datetime) -> np.datetime64:
    return np.datetime64(microseconds(moment), "us")


def whole(moment: np.datetime64 | np.timedelta64) -> int:
    """Microseconds (since 1970)."""
    kind = "datetime64[us]" if isinstance(moment, np.datetime64) else "timedelta64[us]"
    return int(moment.astype(kind).astype(np.int64))


def microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
