"""Three weeks of a plant: a planned shutdown, a fault, a false alarm, late data, a silent sensor.

The quick form runs on local stores with few sensors; the whole one, 20 sensors in 4 groups, on SeaweedFS, an
MLflow server and Prefect. Messages go to real receivers on loopback, by HTTP and by mail.
"""

from __future__ import annotations

import dataclasses
import io
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import fleets
import numpy as np
import polars as pl
import pytest

from flows.backfill import backfill
from flows.retrain import retrain
from flows.run.fleet import Fleet, choose_sensors, open_fleet, storage_options
from flows.run.report import Report
from flows.score import score
from flows.settings.fleet_file import Settings
from flows.work.night.incidents import open_incidents, update_incidents
from flows.work.night.night import score_days
from flows.work.operations import judge_events
from storage.history.reader import write_history
from storage.objects.store import open_store
from storage.operations.verdicts import Verdict
from storage.registry.registry import Version
from storage.tables.layout import NOTE
from storage.window import Window
from tests.messages.receivers import Received, http_receiver, smtp_receiver
from tests.servers import mlflow_server, seaweed

START = fleets.START
STEP = fleets.STEP
FIRST, RETRAINED, LAST = 12, 17, 20  # days, from 0
SHUTDOWNS, SHUT = (8, 14), slice(20, 44)  # days; rows of the day
FAULT_DAY, BUMP_DAY, BUMP_AGAIN, LATE_DAY, SILENT_DAY = 15, 13, 18, 16, 17


def at(day: int, row: int = 0) -> datetime:
    return START + timedelta(days=day) + row * STEP


def day(number: int) -> str:
    return at(number).date().isoformat()


@dataclass
class Plant:
    """A plant with its receivers."""

    file: str
    settings: Settings
    groups: list[str]
    per_group: int
    web: Received
    mails: Received
    held: pl.DataFrame = field(default_factory=pl.DataFrame)  # what comes late
    reports: dict[int, Report] = field(default_factory=dict)  # of the nights
    first: dict[str, Version] = field(default_factory=dict)  # the champions before the retraining

    @property
    def fleet(self) -> Fleet:
        return open_fleet(self.settings)

    def members(self, group: int) -> list[str]:
        return [f"g{group}-{n}" for n in range(self.per_group)]

    def scores(self, *sensors: str) -> pl.DataFrame:
        return self.fleet.scores.read_many(sensors or None, Window(at(FIRST), at(LAST + 1)))

    def events(self) -> pl.DataFrame:
        return self.fleet.events.read_many(None, Window(at(FIRST), at(LAST + 1)))

    def incidents(self) -> pl.DataFrame:
        return open_incidents(self.fleet).read_many(None, Window(at(FIRST), at(LAST + 1)))

    def write(self, frame: pl.DataFrame) -> None:
        write_history(
            self.settings.place(self.settings.history.url), frame, options=storage_options(self.settings)
        )


def values_of(group: int, number: int, per_group: int) -> np.ndarray:
    """Half-hour values of 21 days; a rhythm that is the same every day, and what happens to the sensor."""
    rng = np.random.default_rng(100 * group + number)
    rows = np.arange((LAST + 1) * 48)
    values = 20 + 5 * np.sin(2 * np.pi * (rows / (6, 8, 12, 16)[number % 4] + rng.random()))
    values += 0.3 * rng.standard_normal(len(rows))
    whole = values.reshape(-1, 48)
    if group == 0:
        for shut in SHUTDOWNS:
            whole[shut, SHUT] = 0.2 * rng.standard_normal(SHUT.stop - SHUT.start)
    if group == 1:
        whole[FAULT_DAY, 24 + number % 3 : 34] += 60
    if group == 2 and number == 0:
        whole[BUMP_DAY, 20:32] = 70 + 8 * rng.standard_normal(12)
        whole[BUMP_AGAIN] = whole[BUMP_DAY]
    if group == 3 and number == per_group - 1:
        whole[SILENT_DAY, 24:], whole[SILENT_DAY + 1 :] = np.nan, np.nan
    return values


def make_plant(folder: Any, per_group: int, base: dict[str, Any], web: Received, mails: Received) -> Plant:
    groups = ["line-0", "line-1", "line-2", "line-3"]
    catalog = [f"g{g}-{n},{name}" for g, name in enumerate(groups) for n in range(per_group)]
    (folder / "catalog.csv").write_text("sensor,group\n" + "\n".join(catalog) + "\n")
    hook = {"kind": "webhook", "address": f"http://127.0.0.1:{web.port}/", "about": ["incident"]}
    mail = {"kind": "apprise", "address": "variable:STORY_MAIL", "about": ["silence"]}
    values = {
        "history": {"lookback": "13d", "catalog": str(folder / "catalog.csv")},
        "retrain": {"holdout": "2d", "floor": 0.0, "worse": 1.0},
        "alarms": {"budget": 1.0},
        "notify": {"targets": {"hook": hook, "mail": mail}, "old_after": "3650d", "retries": 0},
        "report": {"url": str(folder / "reports")},
        **base,
    }
    for name in ("history", "registry"):
        values[name] = {**values.get(name, {}), **base.get(name, {})}
    values["history"] = {"lookback": "13d", "catalog": str(folder / "catalog.csv"), **base.get("history", {})}
    settings = fleets.settings_of(folder, **values)
    plant = Plant(fleets.write_fleet_file(settings), settings, groups, per_group, web, mails)
    late = []
    for group in range(4):
        for number in range(per_group):
            values_ = values_of(group, number, per_group)
            stamps = np.datetime64(START.replace(tzinfo=None), "us") + np.arange(
                len(values_)
            ) * np.timedelta64(STEP)
            frame = pl.DataFrame({"ts": stamps, "c0": values_}).with_columns(
                pl.col("ts").dt.replace_time_zone("UTC"), sensor=pl.lit(f"g{group}-{number}")
            )
            frame = frame.filter(pl.col("c0").is_not_nan())
            if (group, number) == (3, 0):
                is_late = pl.col("ts").dt.date() == at(LATE_DAY).date()
                late.append(frame.filter(is_late))
                frame = frame.filter(~is_late)
            plant.write(frame)
    plant.held = pl.concat(late)
    place = settings.place(settings.operations.calendar)
    rows = [f",line-0,{at(d, 20).isoformat()},{at(d, 44).isoformat()},both,overhaul" for d in SHUTDOWNS]
    text = "sensor,group,start,end,what,reason\n" + "\n".join(rows) + "\n"
    store = open_store(place.rpartition("/")[0], storage_options(settings))
    store.put(place.rpartition("/")[2], text.encode())
    return plant


@pytest.fixture(
    scope="module",
    params=["quick", pytest.param("servers", marks=pytest.mark.slow)],
)
def plant(request, tmp_path_factory, prefect):
    """The plant after its three weeks."""
    folder = tmp_path_factory.mktemp("story")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        web, mails = stack.enter_context(http_receiver()), stack.enter_context(smtp_receiver())
        address = f"mailto://127.0.0.1:{mails.port}?from=p@plant.example&to=o@plant.example&mode=insecure"
        patch.setenv("STORY_MAIL", address)
        base: dict[str, Any] = {}
        if request.param == "servers":
            s3 = stack.enter_context(seaweed(folder))
            patch.setenv("AWS_ACCESS_KEY_ID", s3.key)
            patch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
            uri = stack.enter_context(mlflow_server(folder, s3))
            names = ("verdicts", "incidents", "sent", "reads")
            base = {
                "storage": {"endpoint": s3.endpoint, "region": "us-east-1"},
                "history": {"url": s3.url("history")},
                "scores": {"url": s3.url("scores")},
                "events": {"url": s3.url("events")},
                "operations": {n: s3.url(n) for n in names} | {"calendar": s3.url("known/calendar.csv")},
                "registry": {"tracking_uri": uri, "artifacts": s3.url("artifacts")},
            }
        else:
            fleets.new_registry(fleets.settings_of(folder))
        made = make_plant(folder, 5 if request.param == "servers" else 2, base, web, mails)
        three_weeks(made)
        yield made


def three_weeks(plant: Plant) -> None:
    """Train, then a night after the other; a person dismisses an event; late data comes."""
    retrain(plant.file, as_of=at(FIRST).isoformat())
    for number in range(FIRST, LAST + 1):
        if number == LATE_DAY + 2:
            plant.write(plant.held)
        plant.reports[number] = score(plant.file, day=day(number))
        if number == RETRAINED:
            bump = plant.events().filter(
                (pl.col("sensor") == "g2-0") & (pl.col("start").dt.date() == at(BUMP_DAY).date())
            )
            judge_events(plant.fleet, bump["event_id"].to_list(), Verdict.DISMISSED, datetime.now(UTC))
            plant.first = dict(plant.fleet.registry.champions())
            retrain(plant.file, as_of=at(RETRAINED + 1).isoformat(), sensors=["g2-0"])


def nights(first: int, last: int) -> list[date]:
    return [at(number).date() for number in range(first, last + 1)]


def objects(plant: Plant) -> dict[tuple[str, str], bytes]:
    """The bytes of every object of the tables that people read, without the note on their shards."""
    fleet = plant.fleet
    tables = {"scores": fleet.scores, "events": fleet.events, "incidents": open_incidents(fleet)}
    return {
        (name, info.key): table.store.get(info.key)
        for name, table in tables.items()
        for info in table.store.list("")
        if not info.key.endswith(NOTE)
    }


def in_an_empty_store(plant: Plant, folder: Path) -> Plant:
    """The plant with all its history and models, before its first night, and nobody to tell."""
    values = plant.settings.to_dict() | {"notify": {"prefect": False}}
    for section in ("scores", "events"):
        values[section] |= {"url": str(folder / section)}
    values["operations"] |= {name: str(folder / name) for name in ("incidents", "sent", "reads")}
    return dataclasses.replace(plant, settings=Settings.from_dict(values))


def test_a_planned_shutdown_keeps_its_scores_makes_no_event_and_was_not_learned(plant):
    shut = Window(at(14, 20), at(14, 44))
    rows = plant.fleet.scores.read_many(plant.members(0), shut)
    assert set(rows["status"]) == {"muted"} and rows["score"].null_count() == 0
    assert not rows["anomaly"].any()
    assert (rows["score"] > rows["threshold"]).mean() > 0.5  # strange still, because it was not learned
    events = plant.events().filter(pl.col("sensor").is_in(plant.members(0)))
    assert events.filter((pl.col("start") < shut.end) & (pl.col("end") >= shut.start)).is_empty()


def test_a_fault_that_a_whole_line_sees_is_one_incident_and_one_message(plant):
    fault = plant.incidents().filter(
        (pl.col("group") == "line-1") & (pl.col("start") < at(15, 34)) & (pl.col("end") >= at(15, 24))
    )
    assert fault.height == 1
    assert sorted(fault["sensors"][0]) == plant.members(1)
    told = [m for m in plant.web.messages if m["group"] == "line-1" and m["start"][:10] == day(FAULT_DAY)]
    assert len(told) == 1 and sorted(told[0]["sensors"].split()) == plant.members(1)


def test_a_dismissed_event_rang_once_and_its_pattern_is_quiet_in_the_next_model(plant):
    rows = plant.scores("g2-0")
    first, again = (
        rows.filter(pl.col("ts").is_between(at(number, 20), at(number, 32), closed="left"))
        for number in (BUMP_DAY, BUMP_AGAIN)
    )
    assert first["anomaly"].any() and not again["anomaly"].any()
    assert again["model_version"][0] > first["model_version"][0]


def test_late_data_was_scored_again_by_the_next_night_and_only_there(plant):
    healed = plant.reports[LATE_DAY + 2]
    assert [n for n in healed.notes if "came late" in n] == [
        f"{day(LATE_DAY)} was scored again for 1 sensor: data came late"
    ]
    (outcome,) = [o for o in healed.outcomes if "came late" in o.reason]
    assert outcome.sensor == "g3-0"
    later = plant.reports[LATE_DAY + 3]
    assert not any("came late" in note for note in later.notes)


def test_late_data_ends_in_the_very_bytes_of_nights_that_had_it_in_time(plant, tmp_path):
    """Every object of scores, events and incidents, scored night by night with the models of then.

    Beside them may stand objects without a row: the silence of the late day was an event until its data came,
    and a table keeps the object of a date whose last row was taken back, and its shards in the note.
    """
    twin = in_an_empty_store(plant, tmp_path)
    fleet = twin.fleet
    sensors = choose_sensors(fleet, None)
    for night in nights(FIRST, LAST):
        champions = plant.first if night <= at(RETRAINED).date() else fleet.registry.champions()
        score_days(fleet, [night], sensors, champions)
    update_incidents(fleet, Window(at(FIRST), at(LAST + 1)))
    ours, theirs = objects(plant), objects(twin)
    assert [name for name in theirs if ours.get(name) != theirs[name]] == []
    assert any(day(LATE_DAY) in key for table, key in theirs if table == "scores")
    left = [name for name in ours if name not in theirs]
    assert all(pl.read_parquet(io.BytesIO(ours[name])).is_empty() for name in left), left
    assert {key.partition("/")[0] for _, key in left} <= {f"date={day(LATE_DAY)}"}


def test_a_silent_sensor_is_an_event_and_a_mail(plant):
    sensor = plant.members(3)[-1]
    (event,) = plant.events().filter(pl.col("cause") == "silent", pl.col("sensor") == sensor).to_dicts()
    assert event["start"] == at(SILENT_DAY, 24)
    assert sum(f"{sensor}, silent since" in mail for mail in plant.mails.messages) == 1, plant.mails.messages


def test_reruns_and_a_backfill_send_nothing_and_nights_equal_a_backfill(plant, tmp_path):
    counts = len(plant.web.messages), len(plant.mails.messages)
    before = plant.scores(), plant.events(), plant.incidents()
    score(plant.file, day=day(LAST))
    backfill(plant.file, first=day(RETRAINED + 1), last=day(LAST), again=True)
    assert (len(plant.web.messages), len(plant.mails.messages)) == counts
    for old, new in zip(before, (plant.scores(), plant.events(), plant.incidents()), strict=True):
        assert old.equals(new)

    # The same nights into an empty store, by one backfill.
    twin = in_an_empty_store(plant, tmp_path)
    twin_fleet, days = twin.fleet, nights(FIRST, LAST)
    score_days(twin_fleet, days, choose_sensors(twin_fleet, None), twin_fleet.registry.champions())
    update_incidents(twin_fleet, Window(at(FIRST), at(LAST + 1)))
    same = pl.col("sensor") != "g2-0"  # its earlier nights were scored by the model of then
    assert plant.scores().filter(same).equals(twin.scores().filter(same))
    assert plant.events().filter(same).equals(twin.events().filter(same))
    line = pl.col("group") != "line-2"
    assert plant.incidents().filter(line).equals(twin.incidents().filter(line))
