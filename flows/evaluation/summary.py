"""Means and spreads of evaluation results, and the tables that show them beside the published figures.

The mean of a subset is the mean over its files. Its standard deviation is that of this mean between seeds, as
in the paper; with one seed there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flows.cli.console import Screen
from flows.evaluation import published
from flows.evaluation.run import PAANO, Skip
from paano.evaluation.metrics import MEASURES

PLAIN_WIDTH = 220  # of tables that do not go to a screen
WIDE = 150  # columns of a screen that shows everything
SHOWN_SECONDS = ("train_s", "bank_s", "score_s")
SECONDS = ("fit_s", "train_s", "bank_s", "score_s")
NUMBERS = (*MEASURES, *SECONDS)
TITLES = {
    "vus_pr": "VUS-PR",
    "vus_roc": "VUS-ROC",
    "range_f1": "Range-F1",
    "auc_pr": "AUC-PR",
    "auc_roc": "AUC-ROC",
    "point_f1": "Point-F1",
}  # in the order of the paper
PUBLISHED_NOTE = (
    "published = the paper's own figures on the evaluation split of TSB-AD: other series of the same source, "
    "ten seeds. They are there to compare with, not results of this run."
)


def frame_of(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Results as a table, measures as numbers or null."""
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return frame.with_columns(pl.col(name).cast(pl.Float64) for name in NUMBERS)


def summarise(frame: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Mean over files and standard deviation between seeds (`vus_pr`, `vus_pr_sd`, …) for each group."""
    by = list(by)
    seeds = frame.group_by([*by, "seed"], maintain_order=True).agg(
        pl.col(NUMBERS).mean(), pl.col("file").n_unique().alias("files")
    )
    return seeds.group_by(by, maintain_order=True).agg(
        pl.col("files").max(),
        pl.len().alias("seeds"),
        pl.col(NUMBERS).mean(),
        pl.col(NUMBERS).std().name.suffix("_sd"),
    )


def by_subset(frame: pl.DataFrame) -> list[tuple[str, dict[str, Any]]]:
    """Subsets with their means; the collection is named too where both are there (there are two MSL)."""
    rows = summarise(frame, ["collection", "subset"]).sort("collection", "subset", descending=[True, False])
    both = rows["collection"].n_unique() > 1
    return [
        (f"{row['subset']} ({row['collection']})" if both else row["subset"], row)
        for row in rows.iter_rows(named=True)
    ]


def overall(frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """One entry per detector: means, spread between seeds, and the standard error between files."""
    found = {}
    for row in summarise(frame, ["detector"]).iter_rows(named=True):
        name = row.pop("detector")
        files = frame.filter(detector=name).group_by("file").agg(pl.col(MEASURES).mean())
        row["standard_error"] = {m: _error(files[m]) for m in MEASURES}
        found[name] = row
    return found


def _error(values: pl.Series) -> float | None:
    values = values.drop_nulls()
    spread = values.std()
    return spread / len(values) ** 0.5 if spread is not None else None


def as_json(frame: pl.DataFrame | None, skipped: Sequence[Skip], settings: dict[str, Any]) -> dict[str, Any]:
    """One object: `files` and `summary` (the means) of PaAno, then what helps to judge them."""
    answer: dict[str, Any] = {"files": [], "summary": dict.fromkeys(NUMBERS)}
    if frame is not None:
        keys = ["file", "subset", "seed", *MEASURES, "fit_s", "score_s"]
        ours = frame.filter(detector=PAANO)
        total = overall(frame)
        mine = total.pop(PAANO)
        answer["files"] = ours.select(keys).to_dicts()
        answer["summary"] = {name: mine[name] for name in NUMBERS}
        answer["spread"] = {
            "between_seeds": {name: mine[f"{name}_sd"] for name in MEASURES},
            "standard_error_between_files": mine["standard_error"],
        }
        answer["subsets"] = [
            row | {"published": published.of_subset(row["collection"], row["subset"])}
            for _, row in by_subset(ours)
        ]
        answer["baselines"] = {
            name: {m: row[m] for m in (*MEASURES, "score_s")} for name, row in total.items()
        }
        answer["published"] = [
            {
                "collection": collection,
                "split": "evaluation",
                "series": published.series_of(collection),
                "paano": published.overall(collection),
                "next_best": {
                    m: {"value": value, "method": method}
                    for m, (value, method) in published.next_best(collection).items()
                },
                "paano_on_the_same_subsets": published.same_subsets(collection, subsets),
            }
            for collection, subsets in _covered(ours).items()
        ]
        answer["cut"] = ours.filter("cut")["file"].unique(maintain_order=True).to_list()
    answer["skipped"] = [{"file": skip.file, "reason": skip.reason} for skip in skipped]
    answer["settings"] = settings
    return answer


def _covered(frame: pl.DataFrame) -> dict[str, list[str]]:
    """The collections that the paper covers too, with the subset of each of our files."""
    found: dict[str, list[str]] = {}
    files = frame.select("file", "collection", "subset").unique(maintain_order=True)
    for _, collection, subset in files.iter_rows():
        if published.of_subset(collection, subset):
            found.setdefault(collection, []).append(subset)
    return dict(sorted(found.items(), reverse=True))


def open_screen() -> Screen:
    """Tables for a screen as it is, for a file wide enough to lose nothing."""
    return Screen(wide=PLAIN_WIDTH)


def print_tables(console: Console, frame: pl.DataFrame, title: str) -> None:
    """Per file, per subset and overall."""
    ours = frame.filter(detector=PAANO)
    others = [name for name in frame["detector"].unique(maintain_order=True) if name != PAANO]

    wide = console.width >= WIDE
    table = _table(f"Files · {title}", "file", "rows", "window", wide=wide)
    for name in others:
        table.add_column(f"VUS-PR\n{name}", justify="right", style="dim", min_width=7)
    for row in summarise(ours, ["file", "rows", "cut", "window"]).iter_rows(named=True):
        rest = [_number(frame.filter(file=row["file"], detector=name)["vus_pr"].mean()) for name in others]
        rows = f"{row['rows']:,}" + ("*" if row["cut"] else "")
        table.add_row(row["file"].removesuffix(".csv"), rows, str(row["window"]), *_cells(row, wide), *rest)
    console.print(table)
    if ours["cut"].any():
        console.print(
            "* only the first rows, by --max-rows: not the benchmark's figure for this file", style="dim"
        )

    table = _table("Subsets", "subset", "series", wide=wide)
    for name, row in by_subset(ours):
        table.add_row(name, str(row["files"]), *_cells(row, wide))
        theirs = published.of_subset(row["collection"], row["subset"])
        if theirs:
            series = published.series_of(row["collection"], row["subset"])
            table.add_row("  published", str(series), *_cells(theirs, wide), style="dim italic")
    console.print(table)

    table = _table("Overall", "detector", "series", wide=wide)
    for name, row in overall(frame).items():
        table.add_row(name, str(row["files"]), *_cells(row, wide), style="bold" if name == PAANO else "")
        if name == PAANO and row["files"] > 1:
            table.add_row(
                "  standard error between files", "", *_cells(row["standard_error"], wide), style="dim"
            )
    for collection, subsets in _covered(ours).items():
        same = published.same_subsets(collection, subsets)
        count = str(published.series_of(collection))
        if same and len(subsets) == len(ours["file"].unique()):
            table.add_row(
                "published: PaAno, same subsets, same weights", "", *_cells(same, wide), style="dim italic"
            )
        theirs = published.overall(collection)
        table.add_row(f"published: PaAno on {collection}", count, *_cells(theirs, wide), style="dim italic")
        best = {name: f"{value:.2f} {who}" for name, (value, who) in published.next_best(collection).items()}
        table.add_row(f"published: next best on {collection}", count, *_cells(best, wide), style="dim italic")
    console.print(table)
    if _covered(ours):
        console.print(PUBLISHED_NOTE, style="dim")


def _table(title: str, first: str, *rest: str, wide: bool) -> Table:
    """Numbers are never cut: a narrow screen shortens the first column and leaves out spreads and seconds."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=SIMPLE_HEAD)
    table.add_column(first, no_wrap=True, overflow="ellipsis")
    for name in rest:
        table.add_column(name, justify="right", min_width=6)
    for name in TITLES.values():
        table.add_column(name, justify="right", min_width=12 if wide else 7)
    for name in SHOWN_SECONDS if wide else ():
        table.add_column(name.replace("_", " "), justify="right", min_width=6)
    return table


def _cells(row: dict[str, Any], wide: bool) -> list[str]:
    cells = [_number(row.get(name), row.get(f"{name}_sd") if wide else None) for name in TITLES]
    if wide and "train_s" in row:
        # A baseline fits and scores in one call.
        cells += [f"{row[name]:.1f}" if row["fit_s"] or name == "score_s" else "" for name in SHOWN_SECONDS]
    return cells


def _number(value: Any, spread: float | None = None) -> str:
    if value is None or isinstance(value, str):
        return value or "–"
    return f"{value:.3f}" + (f" ±{spread:.3f}" if spread is not None else "")
