"""Made-up scores and events."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import numpy as np
import polars as pl

DAY = date(2026, 1, 2)
FLEET = ["pump-17", "ü/1", "../../x", "a", "b", "c"]


def scores(sensor, start=DAY, minutes=60, version=1, seed=0):
    """A day of one sensor, some of it missing."""
    begin = datetime(start.year, start.month, start.day, tzinfo=UTC)
    ts = pl.datetime_range(begin, begin + timedelta(days=1), f"{minutes}m", closed="left", eager=True)
    rng = np.random.default_rng([seed, *sensor.encode(), start.toordinal()])
    score = rng.random(len(ts)).astype(np.float32)
    missing = rng.random(len(ts)) < 0.1
    return pl.DataFrame(
        {
            "sensor": [sensor] * len(ts),
            "ts": ts,
            "score": np.where(missing, np.nan, score),
            "threshold": np.float32(0.9),
            "anomaly": (score > 0.9) & ~missing,
            "status": np.where(missing, "no_data", "ok"),
            "coverage": np.where(missing, 0, 96),
            "model_version": version,
        }
    )


def night(day=DAY, **options):
    """A day of the fleet."""
    return pl.concat([scores(sensor, day, **options) for sensor in FLEET])


def events(sensor, start=DAY, count=3):
    begin = datetime(start.year, start.month, start.day, tzinfo=UTC)
    times = [begin + timedelta(hours=5 * n) for n in range(count)]
    return pl.DataFrame(
        {
            "event_id": [f"{sensor}-{n}" for n in range(count)],
            "sensor": [sensor] * count,
            "start": times,
            "end": [t + timedelta(minutes=10) for t in times],
            "peak": [t + timedelta(minutes=4) for t in times],
            "score": [1.5] * count,
            "severity": [2.5] * count,
            "length": [10] * count,
            "channels": [["pressure", "flow"], [], None][:count],
            "cause": ["shape", "level", None][:count],
            "model_version": [1] * count,
        }
    )
