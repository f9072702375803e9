"""Outcomes of runs are a table: by flow and date, a partial run replaces only its sensors' rows."""

from datetime import UTC, datetime

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from storage.tables.runs import RUN_SCHEMA, RunRow, RunStore, split_figures
from storage.window import Window

NIGHT = datetime(2026, 1, 2, tzinfo=UTC)
WINDOW = Window.day(NIGHT.date())


def test_a_partial_run_replaces_only_its_sensors(place):
    runs = RunStore(place.at("runs"), "score", place.options)
    runs.keep([RunRow(name, "ok", figures={"rows": 48}) for name in "abc"], NIGHT, whole=True)
    runs.keep([RunRow("b", "failed", "no history", 2)], NIGHT)
    assert runs.counts(WINDOW) == {"ok": 2, "failed": 1}
    row = runs.read("b", WINDOW).row(0, named=True)
    assert (row["flow"], row["state"], row["reason"], row["batch"]) == ("score", "failed", "no history", 2)
    assert row["rows"] is None and runs.read("a", WINDOW)["rows"].item() == 48


def test_a_run_of_the_whole_fleet_forgets_sensors_that_are_no_more(place):
    runs = RunStore(place.at("runs"), "score", place.options)
    runs.keep([RunRow(name, "ok") for name in "abc"], NIGHT, whole=True)
    assert runs.keep([RunRow(name, "ok") for name in "ab"], NIGHT, whole=True).changed
    assert runs.counts(WINDOW) == {"ok": 2}
    assert not runs.keep([RunRow(name, "ok") for name in "ba"], NIGHT, whole=True).changed


def test_two_runs_of_a_day_are_both_kept_and_the_later_counts(folder):
    runs = RunStore(folder.url, "retrain")
    runs.keep([RunRow("a", "failed")], NIGHT)
    runs.keep([RunRow("a", "ok")], NIGHT.replace(hour=9))
    assert runs.read("a", WINDOW)["state"].to_list() == ["failed", "ok"]
    assert runs.counts(WINDOW) == {"ok": 1}


def test_a_figure_that_nobody_knew_is_kept_beside_the_columns(folder):
    runs = RunStore(folder.url, "score")
    figures = {"rows": 5, "highest": 2, "severity": float("nan"), "brand_new": [1, 2], "events": "many"}
    runs.keep([RunRow("a", "ok", figures=figures)], NIGHT)
    row = runs.read("a", WINDOW).row(0, named=True)
    assert (row["rows"], row["highest"], row["severity"], row["events"]) == (5, 2.0, None, None)
    assert row["more"] == '{"brand_new": [1, 2], "events": "many"}'


ANYTHING = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers()))


@given(st.dictionaries(st.sampled_from([*RUN_SCHEMA, "other"]), ANYTHING))
def test_any_figures_can_be_split(figures):
    columns, more = split_figures(figures)
    assert not columns.keys() & more.keys() and (columns.keys() | more.keys()) <= figures.keys()


def test_duckdb_reads_the_runs_of_all_flows_with_no_help(folder):
    for flow in ("score", "retrain"):
        RunStore(folder.url, flow).keep([RunRow("a", "ok"), RunRow("b", "skipped", "x")], NIGHT)
    found = duckdb.sql(
        "select flow, date, state, count(*) from "
        f"read_parquet('{folder.url}/**/*.parquet', hive_partitioning=true) group by all order by all"
    ).fetchall()
    assert [row[0] for row in found] == ["retrain", "retrain", "score", "score"]
    assert {row[1].isoformat() for row in found} == {"2026-01-02"}
