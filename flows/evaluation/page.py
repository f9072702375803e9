"""What `paano evaluate --out` leaves: results.parquet, scores.parquet and one page that needs nothing else.

The page holds its own plotly and all its data, so it opens without a network and can be sent by mail. Series
are thinned to the least and the greatest value of each stretch of rows: every peak stays, the file is small.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from flows.evaluation import published
from flows.evaluation.run import PAANO, Job, Kept, Skip
from flows.evaluation.summary import PUBLISHED_NOTE, TITLES, by_subset, overall, summarise
from flows.pages.html import read_asset
from flows.pages.html import render as render_page
from flows.pages.series import STRETCHES, kept_rows, short_numbers
from paano.evaluation.metrics import segments
from paano.evaluation.protocol import LabelledSeries, read_series

MOST_CHANNELS = 6  # of a multivariate series on the page

SCORES = pa.schema(
    {
        "file": pa.dictionary(pa.int32(), pa.string()),
        "detector": pa.dictionary(pa.int32(), pa.string()),
        "seed": pa.int64(),
        "row": pa.int32(),
        "label": pa.bool_(),
        "score": pa.float32(),  # null where a row has none
    }
)


def write_out(
    out: Path,
    frame: pl.DataFrame,
    rows: Sequence[tuple[Job, dict[str, Any]]],
    kept: Kept,
    *,
    title: str,
    skipped: Sequence[Skip],
) -> None:
    """Write the three files; each appears whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(out / "results.part", compression="zstd")
    os.replace(out / "results.part", out / "results.parquet")

    pictures: dict[str, Any] = {}
    series: LabelledSeries | None = None
    with pq.ParquetWriter(out / "scores.part", SCORES, compression="zstd") as writer:
        for job, row in rows:  # those of one file stand together
            if series is None or series.file != job.file or series.digest != job.digest:
                series = read_series(job.path)
            scores, labels = kept.scores(job.key), series.labels[: row["rows"]]
            writer.write_table(_score_table(job, labels, scores))
            picture = pictures.setdefault(job.file, _picture(series.head(row["rows"]), row))
            if job.detector not in picture["scores"]:  # the first seed stands for all
                picture["scores"][job.detector] = _thinned(_scaled(scores))
    os.replace(out / "scores.part", out / "scores.parquet")

    page = render(frame, pictures, title=title, skipped=skipped)
    (out / "report.part").write_text(page, encoding="utf-8")
    os.replace(out / "report.part", out / "report.html")


def _score_table(job: Job, labels: np.ndarray, scores: np.ndarray) -> pa.Table:
    count = len(scores)
    word = np.zeros(count, dtype=np.int32)
    columns = [
        pa.DictionaryArray.from_arrays(word, [job.file]),
        pa.DictionaryArray.from_arrays(word, [job.detector]),
        pa.array(np.full(count, job.seed)),
        pa.array(np.arange(count, dtype=np.int32)),
        pa.array(labels),
        pa.array(scores, from_pandas=True),
    ]
    return pa.Table.from_arrays(columns, schema=SCORES)


def _picture(series: LabelledSeries, row: dict[str, Any]) -> dict[str, Any]:
    """A series as the page draws it."""
    moving = [c for c in range(series.channels) if np.nanstd(series.values[:, c]) > 0] or [0]
    starts, ends = segments(series.labels)
    step = max(1, len(series.values) // (2 * STRETCHES))
    bands: list[list[int]] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if bands and start - bands[-1][1] <= step:  # closer than the page can show
            bands[-1][1] = end
        else:
            bands.append([start, end])
    return {
        "rows": len(series.values),
        "train": series.train_rows,
        "channels": series.channels,
        "window": row["window"],
        "anomalies": len(starts),
        "bands": bands,
        "series": {str(c + 1): _thinned(series.values[:, c]) for c in moving[:MOST_CHANNELS]},
        "scores": {},
    }


def _scaled(scores: np.ndarray) -> np.ndarray:
    known = scores[np.isfinite(scores)]
    if not len(known) or known.min() == known.max():
        return np.where(np.isfinite(scores), 0.0, np.nan)
    scaled: np.ndarray = (scores - known.min()) / (known.max() - known.min())
    return scaled


def _thinned(values: np.ndarray) -> dict[str, list[Any]]:
    """Rows and values of the least and greatest value of each stretch, in their order; null where unknown."""
    keep = kept_rows(values)
    return {"x": keep.tolist(), "y": short_numbers(values[keep])}


def render(frame: pl.DataFrame, pictures: dict[str, Any], *, title: str, skipped: Sequence[Skip]) -> str:
    """The whole page as text."""
    from plotly.offline import get_plotlyjs

    ours = frame.filter(detector=PAANO)
    files = []
    for row in summarise(ours, ["file", "collection", "subset"]).iter_rows(named=True):
        others = frame.filter((pl.col("file") == row["file"]) & (pl.col("detector") != PAANO))
        row["baselines"] = {r["detector"]: r["vus_pr"] for r in others.iter_rows(named=True)}
        files.append(row)
    subsets = [
        row | {"name": name, "published": _with_count(row["collection"], row["subset"])}
        for name, row in by_subset(ours)
    ]
    facts = {
        "titles": TITLES,
        "files": files,
        "subsets": subsets,
        "overall": overall(frame),
        "published": [
            {
                "collection": name,
                "series": published.series_of(name),
                "paano": published.overall(name),
                "best": {m: {"value": v, "who": w} for m, (v, w) in published.next_best(name).items()},
            }
            for name in ours["collection"].unique().sort(descending=True)
        ],
        "pictures": pictures,
        "cut": bool(ours["cut"].any()),
        "skipped": [skip.reason for skip in skipped],
    }
    scripts = (get_plotlyjs(), read_asset("evaluation/report.js"))
    return render_page("evaluation/report.html", facts, scripts, title=title, note=PUBLISHED_NOTE)


def _with_count(collection: str, subset: str) -> dict[str, Any] | None:
    figures = published.of_subset(collection, subset)
    return figures and figures | {"series": published.series_of(collection, subset)}
