"""What is said of single sensors in the fleet file and the catalog; what doctor shows of the history."""

from __future__ import annotations

import json
from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from flows.cli.doctor import history as look_at_history
from flows.run.fleet import choose_sensors, open_fleet
from flows.settings.fleet_file import Settings
from flows.settings.reference import render
from paano.errors import ConfigError, HistoryError
from storage.history.reader import HistoryLayout, write_history
from storage.window import Window

DAY = timedelta(days=1)
ROWS = 288 * 3


def settings_in(folder, **sections):
    return Settings.from_dict({"folder": folder, **sections})


def rows(sensor, **columns):
    start = np.datetime64("2026-01-01", "us")
    ts = start + np.arange(ROWS) * np.timedelta64(5, "m")
    values = columns or {"value": np.sin(np.arange(ROWS) / 9)}
    return pl.DataFrame({"sensor": [sensor] * ROWS, "ts": ts, **values}).with_columns(
        pl.col("ts").dt.replace_time_zone("UTC")
    )


TABLES = {
    "*": {"budget": 3.0},
    "pump-*": {"interval": "10min", "lookback": "14d", "preset": "light"},
    "group:hall-2": {"budget": 5.0, "channels": ["p"]},
    "pump-7": {"threshold": 2.5, "channels": {"p": "pressure"}},
}


def test_what_is_said_of_a_sensor_stands_in_place_of_what_is_said_of_the_fleet(tmp_path):
    settings = settings_in(tmp_path, sensors=TABLES)
    own = settings.for_sensor("pump-7")
    assert own.history.interval == timedelta(minutes=10) and own.history.lookback == 14 * DAY
    assert own.alarms.budget == 3.0 and own.alarms.thresholds == {"pump-7": 2.5}
    assert own.config() == settings_in(tmp_path, model={"preset": "light"}).config()
    assert own.history.channels == {"p": "pressure"}
    assert settings.for_sensor("valve").alarms.budget == 3.0
    assert settings.history.lookback == 28 * DAY, "the fleet's own are as before"
    assert settings_in(tmp_path).for_sensor("pump-7") == settings_in(tmp_path)


def test_an_exact_threshold_of_alarms_wins_over_a_table(tmp_path):
    settings = settings_in(tmp_path, sensors=TABLES, alarms={"thresholds": {"pump-7": 9.0}})
    assert settings.for_sensor("pump-7").alarms.thresholds["pump-7"] == 9.0


def test_columns_of_the_catalog_count_and_tables_win_over_them(tmp_path):
    text = (
        "sensor,group,interval,channels,lookback,budget,threshold,preset\n"
        "pump-1,hall-2,5m,,7d,2,,\nvalve,hall-1,,a;b,,,1.5,light\n"
    )
    (tmp_path / "sensors.csv").write_text(text)
    fleet = open_fleet(settings_in(tmp_path, sensors=TABLES, history={"catalog": "sensors.csv"}))
    pump, valve = fleet.settings_for("pump-1"), fleet.settings_for("valve")
    assert pump.history.interval == timedelta(minutes=10) and pump.alarms.budget == 5.0
    assert pump.history.channels == ["p"] and pump.history.lookback == 14 * DAY
    assert valve.history.channels == ["a", "b"] and valve.alarms.thresholds == {"valve": 1.5}
    assert valve.model.preset == "light" and valve.alarms.budget == 3.0


@pytest.mark.parametrize(
    "table, what",
    [
        ({"bugdet": 1}, "did you mean budget"),
        ({"budget": -1}, r"sensors.x.budget"),
        ({"preset": "heavy"}, "not a preset"),
        ({"channels": []}, "channels"),
    ],
)
def test_a_wrong_table_is_refused_with_its_key(tmp_path, table, what):
    with pytest.raises(ConfigError, match=what):
        settings_in(tmp_path, sensors={"x": table})


def test_a_catalog_that_says_what_cannot_be_names_the_sensor(tmp_path):
    (tmp_path / "sensors.csv").write_text("sensor,budget\npump-1,-2\n")
    fleet = open_fleet(settings_in(tmp_path, history={"catalog": "sensors.csv"}))
    with pytest.raises(ConfigError, match=r"pump-1: budget"):
        fleet.settings_for("pump-1")


def test_tables_travel_to_a_worker(tmp_path):
    settings = settings_in(tmp_path, sensors=TABLES)
    again = Settings.from_dict(json.loads(json.dumps(settings.to_dict())))
    assert again.for_sensor("pump-7") == settings.for_sensor("pump-7")
    assert '[sensors."NAME"]' in render()


def test_the_history_is_read_by_what_is_said_of_a_sensor(tmp_path):
    columns = {"p": np.arange(ROWS) % 5.0, "q": np.arange(ROWS) % 7.0}
    write_history(str(tmp_path / "history"), pl.concat([rows(s, **columns) for s in ("pump-7", "valve")]))
    fleet = open_fleet(settings_in(tmp_path, sensors=TABLES))
    found = fleet.history.read_many(["pump-7", "valve"], Window.day(date(2026, 1, 2)))
    assert found["pump-7"].channels == ["pressure"] and found["pump-7"].interval == timedelta(minutes=10)
    assert found["valve"].channels == ["p", "q"] and found["valve"].interval == timedelta(minutes=5)


def test_a_history_without_sensors_is_an_error_with_a_remedy(tmp_path):
    fleet = open_fleet(settings_in(tmp_path, history={"url": "mistyped"}))
    with pytest.raises(HistoryError, match=r"no sensors in .*mistyped.*history\.url.*`paano doctor`"):
        choose_sensors(fleet, None)


def test_doctor_shows_what_it_saw_of_each_kind_of_sensor(tmp_path):
    fleet = [rows(f"pump-{n}") for n in range(3)]
    fleet.append(rows("meter", seq=np.arange(ROWS), flow=np.sin(np.arange(ROWS) / 5)))
    for one in fleet:
        write_history(str(tmp_path / "history"), one)
    found = list(look_at_history(settings_in(tmp_path)))
    said = " | ".join(f.says for f in found)
    assert "4 sensors" in said and "pump-0 (and 2 like it): 864 rows" in said
    assert "every 5min, channels value, newest 2026-01-03 23:55 UTC" in said
    assert "channels flow" in said and "left out seq: it only rises" in said
    assert [f.state for f in found] == ["ok", "ok", "warn"]


def test_doctor_names_parquet_that_is_never_read(tmp_path):
    write_history(
        str(tmp_path / "history"), rows("werk-a/line-1/pump-1"), HistoryLayout(path="{a}/{b}/{sensor}")
    )
    bad = [f for f in look_at_history(settings_in(tmp_path)) if f.state == "bad"]
    assert "never reads: werk-a/line-1/pump-1/" in bad[0].says and "{site}/{line}/{sensor}" in bad[0].remedy
    assert "werk-a: " in bad[1].says and "deeper than history.path" in bad[1].says


def test_doctor_says_when_there_are_no_sensors(tmp_path):
    found = list(look_at_history(settings_in(tmp_path)))
    assert [f.state for f in found] == ["bad"] and "no sensors" in found[0].says
