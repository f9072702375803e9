"""`paano evaluate --history`: is PaAno worth it on a sensor that nobody has labelled?

The newest part of the history is held out. Faults of every kind are put into it, and each detector, fitted on
the rest, is measured by how well it finds them. The held-out rows are taken as normal: what is wrong in them
already counts against all detectors alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.cli.console import errors, print_json
from flows.evaluation.summary import open_screen
from flows.pages.escape import plain
from paano.config import PaAnoConfig
from paano.errors import ConfigError, HistoryError, SeriesTooShort

HELD_OUT = 0.3  # the share of the rows that gets the faults
LEAST_PATCHES = 5  # of held-out rows: room for one fault with normal rows around it
LABEL = "Label"
PAANO = "paano"


@dataclass(frozen=True)
class Sensor:
    """One unlabelled series on a regular grid."""

    name: str
    values: np.ndarray = field(repr=False)  # float64 (N, C), NaN = missing
    channels: list[str]


def judge(
    history: str,
    sensor: str | None,
    config: PaAnoConfig,
    *,
    as_of: str | None = None,
    seeds: int = 1,
    max_rows: int | None = None,
    out: Path | None = None,
    as_json: bool = False,
    device: str = "auto",
) -> int:
    """Print VUS-PR for each kind of fault, PaAno beside the baselines."""
    found = open_sensor(history, sensor, as_of)
    values = found.values[-max_rows:] if max_rows else found.values
    with errors.status(plain(f"{found.name}: fitting and injecting faults")):
        frame = fault_table(values, config, seeds=seeds, device=device)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        frame.write_parquet(out / "faults.parquet")
    train, test = split(len(values), config)
    facts = {"sensor": found.name, "channels": found.channels, "train_rows": train, "test_rows": test}
    if as_json:
        print_json(facts | _as_json(frame, seeds))
    else:
        _print(open_screen(), frame, facts)
    return 0


def split(rows: int, config: PaAnoConfig) -> tuple[int, int]:
    """Rows to fit on and rows held out."""
    test = max(round(HELD_OUT * rows), LEAST_PATCHES * config.patch)
    train = rows - test
    if train < 2 * config.patch:
        need = (LEAST_PATCHES + 2) * config.patch
        raise SeriesTooShort(
            f"{rows} rows are too few to fit on some and inject faults into others; "
            f"at least {need} are needed, or a smaller model.patch"
        )
    return train, test


def fault_table(
    values: np.ndarray,
    config: PaAnoConfig,
    *,
    seeds: int = 1,
    device: str = "auto",
    baselines: Sequence[str] = ("pca", "kmeans", "iforest"),
) -> pl.DataFrame:
    """VUS-PR by detector, seed and kind of fault. All detectors of a seed see the same faults."""
    from paano import PaAno
    from paano.device import compute_threads
    from paano.evaluation.baselines import FITS
    from paano.evaluation.inject import fault_test

    train, _ = split(len(values), config)
    past, held = values[:train], values[train:]
    rows = []
    with compute_threads(1):
        plain = {name: FITS[name](past) for name in baselines}
        for seed in range(config.seed, config.seed + seeds):
            model = PaAno(config.replace(seed=seed), device=device).fit(past)
            for detector, score in {PAANO: model.score, **plain}.items():
                for kind, value in fault_test(score, held, seed=seed, patch=config.patch).items():
                    known = None if math.isnan(value) else value
                    rows.append({"detector": detector, "seed": seed, "kind": kind, "vus_pr": known})
    return pl.DataFrame(rows, schema_overrides={"vus_pr": pl.Float64})


def open_sensor(history: str, sensor: str | None, as_of: str | None) -> Sensor:
    """A CSV or Parquet file, or one sensor of a fleet file."""
    if history.endswith(".toml"):
        return _of_fleet(history, sensor, as_of)
    return read_table(Path(history))


def read_table(path: Path) -> Sensor:
    """Every number column is a channel; a column of times puts the rows in order and on a grid."""
    readers = {".csv": lambda p: pl.read_csv(p, try_parse_dates=True), ".parquet": pl.read_parquet}
    if path.suffix not in readers:
        raise ConfigError(f"--history {path} is none of: a .csv file, a .parquet file, a fleet file (.toml)")
    try:
        table = readers[path.suffix](path)
    except FileNotFoundError as error:
        raise HistoryError(f"{path}: there is no such file") from error
    except (pl.exceptions.PolarsError, OSError) as error:
        raise HistoryError(f"{path.name}: cannot be read ({str(error).splitlines()[0]})") from error
    channels = [n for n, kind in table.schema.items() if kind.is_numeric() and n != LABEL]
    if not channels:
        raise HistoryError(f"{path.name}: has no column of numbers ({', '.join(table.columns)})")
    values = table.select(pl.col(channels).cast(pl.Float64).fill_null(float("nan"))).to_numpy()
    times = [n for n, kind in table.schema.items() if kind in (pl.Datetime, pl.Date)]
    if times:
        values = _on_grid(table[times[0]], values, path.name)
    return Sensor(path.stem, values, channels)


def _on_grid(times: pl.Series, values: np.ndarray, name: str) -> np.ndarray:
    """Missing rows are rows without values, not rows left out."""
    from storage.history.grid import LARGEST, Grid, infer_interval, moment, to_grid
    from storage.window import Window

    known = times.is_not_null().to_numpy()
    stamps = times.drop_nulls().cast(pl.Datetime("us")).to_physical().to_numpy()
    interval = infer_interval(stamps)
    if interval is None:
        raise HistoryError(f"{name}: {len(stamps)} rows with a time are too few to see their interval")
    first, last = int(stamps.min()), int(stamps.max())
    phase = (moment(first) - datetime(1970, 1, 1, tzinfo=UTC)) % interval
    grid = Grid.of(Window(moment(first), moment(last) + interval), interval, 0.5, phase)
    if grid.count > LARGEST:
        raise HistoryError(f"{name}: {grid.count} points at an interval of {interval}; correct its times")
    return to_grid(stamps, values[known], grid)[0]


def _of_fleet(file: str, sensor: str | None, as_of: str | None) -> Sensor:
    """The newest `history.lookback` of one sensor."""
    from flows.run.fleet import open_history
    from flows.settings.fleet_file import Settings
    from storage.window import Window

    settings = Settings.load(file)
    history = open_history(settings)
    if sensor is None:
        some = ", ".join(list(history.sensors().sensors)[:5])
        raise ConfigError(f"--history {file} needs --sensor, one of: {some}, …")
    try:
        end = datetime.fromisoformat(as_of) if as_of else datetime.now(UTC)
    except ValueError as error:
        raise ConfigError(f"--as-of {as_of!r} is not a day or time such as 2026-11-15") from error
    end = end if end.tzinfo else end.replace(tzinfo=UTC)
    reading = history.read(sensor, Window(end - settings.history.lookback, end))
    known = np.flatnonzero(np.isfinite(reading.values).any(axis=1))
    if not len(known):
        raise HistoryError(
            f"{sensor}: no values in the {settings.history.lookback} before {end}; set --as-of"
        )
    return Sensor(sensor, reading.values[known[0] : known[-1] + 1], reading.channels)


def _as_json(frame: pl.DataFrame, seeds: int) -> dict[str, Any]:
    table: dict[str, dict[str, Any]] = {}
    for detector, kind, value in _means(frame).select("detector", "kind", "vus_pr").iter_rows():
        table.setdefault(kind, {})[detector] = value
    mean = table.pop("mean")
    return {"seeds": seeds, "faults": table, "mean": mean}


def _means(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.group_by("kind", "detector", maintain_order=True).agg(
        pl.col("vus_pr").mean(), pl.col("vus_pr").std().alias("sd")
    )


def _print(console: Console, frame: pl.DataFrame, facts: dict[str, Any]) -> None:
    means = _means(frame)
    detectors = frame["detector"].unique(maintain_order=True).to_list()
    title = f"{facts['sensor']}: VUS-PR by kind of injected fault"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.add_column("fault")
    for name in detectors:
        table.add_column(name, justify="right", min_width=14)
    wins = 0
    kinds = means["kind"].unique(maintain_order=True).to_list()
    for kind in sorted(kinds, key=lambda k: k == "mean"):
        row = {r["detector"]: r for r in means.filter(kind=kind).iter_rows(named=True)}
        best = max(detectors, key=lambda name: row[name]["vus_pr"] or 0.0)
        wins += kind != "mean" and best == PAANO
        cells = []
        for name in detectors:
            value, sd = row[name]["vus_pr"], row[name]["sd"]
            text = "–" if value is None else f"{value:.3f}" + (f" ±{sd:.3f}" if sd is not None else "")
            cells.append(Text(text, "bold green" if name == best and value is not None else ""))
        table.add_row(kind.replace("_", " "), *cells, end_section=kind == kinds[-1])
    console.print(table)
    console.print(
        f"fitted on {facts['train_rows']:,} rows, faults put into the {facts['test_rows']:,} after them. "
        f"PaAno is the best on {wins} of {len(kinds) - 1} kinds."
    )
