"""Any order ends the same: nights, reruns, backfills, gaps and late data leave what one backfill gives."""

from __future__ import annotations

import shutil
from datetime import date, timedelta

import fleets
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.run.fleet import open_fleet
from flows.settings.fleet_file import Settings
from flows.work.model.training import retrain_sensor
from flows.work.night.night import score_days
from storage.window import Window

SENSORS = ["s00", "s01", "s02"]
FIRST, LAST = 5, 9  # days that may be asked for; the models are trained before them
TRAINED_TO = fleets.START + timedelta(days=5)


def examples(count: int):
    """So many examples, each on folders of its own."""
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))


def faulty(number: int) -> np.ndarray:
    """A signal with faults over midnights, near each other, and a hole."""
    values = fleets.signal(number, fleets.DAYS * 48, 3 if number == 2 else 1)
    values[6 * 48 - 6 : 6 * 48 + 8] += 40.0
    values[7 * 48 + 30 : 8 * 48 + 4, 0] -= 25.0
    values[8 * 48 + 8 : 8 * 48 + 12, 0] += 30.0
    values[6 * 48 + 20 : 6 * 48 + 28] = np.nan
    return values


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three sensors with champions and faults; one has three channels."""
    fleet = fleets.make(
        tmp_path_factory.mktemp("orders") / "fleet",
        sensors=3,
        model={"iterations": 0, "patch": 8, "level": "tail", "next_value": "ridge", "plain": "nearest"},
        history={"lookback": "6d"},
        alarms={"budget": 30.0},
    )
    for number, name in enumerate(SENSORS):
        fleets.write_sensor(fleet.settings, name, faulty(number))
        retrain_sensor(fleet, name, TRAINED_TO, None, "a test")
    fleet.registry.champions()
    return fleet


def fresh(trained, folder, history=None):
    """The same fleet with empty stores in `folder`, on `history` (by default the whole one)."""
    shutil.rmtree(folder, ignore_errors=True)
    places = {"scores": {"url": str(folder / "scores")}, "events": {"url": str(folder / "events")}}
    values = trained.settings.to_dict() | places
    if history is not None:
        values["history"] = {**values["history"], "url": str(history)}
    return open_fleet(Settings.from_dict(values))


def day(number: int) -> date:
    return date.fromisoformat(fleets.night(number))


def run(fleet, *numbers, **how):
    """Score these days for all sensors; the outcomes by sensor."""
    found = score_days(fleet, [day(n) for n in numbers], SENSORS, dict(fleet.registry.champions()), **how)
    return {outcome.sensor: outcome for outcome in found}


def contents(fleet):
    """All score rows and events."""
    whole = Window(fleets.START, fleets.START + timedelta(days=fleets.DAYS + 1))
    return fleet.scores.read_many(None, whole), fleet.events.read_many(None, whole)


def assert_same(found, expected):
    for mine, theirs, what in zip(contents(found), contents(expected), ("scores", "events"), strict=True):
        differing = mine.join(theirs, on=mine.columns, how="anti", nulls_equal=True)
        missing = theirs.join(mine, on=mine.columns, how="anti", nulls_equal=True)
        assert mine.equals(theirs), f"{what}: {differing} instead of {missing}"


numbers = st.integers(FIRST, LAST)
commands = st.lists(
    st.one_of(
        st.tuples(st.just("night"), numbers, numbers),
        st.tuples(st.just("backfill"), numbers, numbers),
        st.tuples(st.just("resume"), numbers, numbers),
        st.tuples(st.just("again"), numbers, numbers),
    ),
    min_size=1,
    max_size=8,
)


def obey(fleet, command, first, last):
    """Do what a command says; the days that it was about."""
    first, last = min(first, last), max(first, last)
    asked = [first] if command == "night" else list(range(first, last + 1))
    run(fleet, *asked, rescore=command == "again", resume=command == "resume")
    return set(asked)


def check_orders(trained, tmp_path, orders):
    fleet = fresh(trained, tmp_path / "any")
    asked = set().union(*(obey(fleet, *order) for order in orders))
    expected = fresh(trained, tmp_path / "one")
    run(expected, *sorted(asked))
    assert_same(fleet, expected)
    assert contents(expected)[1].height, "the faults are events"


def test_the_events_that_are_compared_have_the_edges_of_the_faults(trained, tmp_path):
    """Otherwise these tests would say nothing about the second look at an event."""
    fleet = fresh(trained, tmp_path / "one")
    run(fleet, *range(FIRST, LAST + 1))
    events = contents(fleet)[1].filter(sensor="s00")
    found = {((row["start"] - fleets.START) // fleets.STEP, row["length"]) for row in events.to_dicts()}
    assert {(6 * 48 - 6, 14), (7 * 48 + 30, 22), (8 * 48 + 8, 4)} <= found


@examples(5)
@given(orders=commands)
def test_nights_reruns_and_backfills_in_any_order_equal_one_backfill(trained, tmp_path, orders):
    check_orders(trained, tmp_path, orders)


@pytest.mark.slow
@examples(60)
@given(orders=commands)
def test_many_orders_of_nights_reruns_and_backfills_equal_one_backfill(trained, tmp_path, orders):
    check_orders(trained, tmp_path, orders)


def grow(trained, history, upto):
    """History with everything before the moment `upto`, as it lies there at that time."""
    shutil.rmtree(history, ignore_errors=True)
    for number, name in enumerate(SENSORS):
        rows = int((upto - fleets.START) / fleets.STEP)
        values = faulty(number)[:rows]
        target = Settings.from_dict({**trained.settings.to_dict(), "folder": str(history.parent)})
        fleets.write_sensor(target, name, values)


lives = {
    "nights": st.lists(st.booleans(), min_size=LAST - FIRST - 1, max_size=LAST - FIRST - 1),
    "hours": st.integers(0, 14),
    "reruns": st.lists(numbers, max_size=3),
}


def check_live(trained, tmp_path, nights, hours, reruns):
    history = tmp_path / "live" / "history"
    fleet = fresh(trained, tmp_path / "stores", history)
    lived = [FIRST, *(FIRST + 1 + n for n, done in enumerate(nights) if done), LAST]
    for number in lived:
        end = fleets.START + timedelta(days=number + 1, hours=hours)
        grow(trained, history, min(end, fleets.START + timedelta(days=fleets.DAYS)))
        run(fleet, number, dates=fleet.scores.dates())
        for again in reruns:
            if again in lived and again < number:
                run(fleet, again)
    grow(trained, history, fleets.START + timedelta(days=fleets.DAYS))
    expected = fresh(trained, tmp_path / "one")
    run(expected, *range(FIRST, LAST + 1))
    assert_same(fleet, expected)


@examples(3)
@given(**lives)
def test_live_nights_with_gaps_are_caught_up_and_equal_one_backfill(trained, tmp_path, nights, hours, reruns):
    check_live(trained, tmp_path, nights, hours, reruns)


@pytest.mark.slow
@examples(40)
@given(**lives)
def test_many_live_months_equal_one_backfill(trained, tmp_path, nights, hours, reruns):
    check_live(trained, tmp_path, nights, hours, reruns)


lateness = {
    "hole": st.tuples(st.integers(FIRST * 48, LAST * 48), st.integers(1, 60)),
    "before": commands,
    "order": st.permutations(range(FIRST, LAST + 1)),
    "again": st.booleans(),
}


def check_late(trained, tmp_path, hole, before, order, again):
    history = tmp_path / "late" / "history"
    fleet = fresh(trained, tmp_path / "stores", history)
    target = Settings.from_dict({**trained.settings.to_dict(), "folder": str(history.parent)})
    shutil.rmtree(history, ignore_errors=True)
    for number, name in enumerate(SENSORS):
        values = faulty(number)
        values[hole[0] : hole[0] + hole[1]] = np.nan
        fleets.write_sensor(target, name, values)
    for each in before:
        obey(fleet, *each)
    grow(trained, history, fleets.START + timedelta(days=fleets.DAYS))
    late = range(hole[0] // 48, min(LAST, (hole[0] + hole[1] - 1) // 48) + 1)
    for number in order:
        if number in late:
            run(fleet, number, rescore=again)
    expected = fresh(trained, tmp_path / "one")
    run(expected, *sorted(set(late) | _asked(before)))
    assert_same(fleet, expected)


@examples(3)
@given(**lateness)
def test_late_data_is_in_the_rows_once_its_days_are_scored_again(
    trained, tmp_path, hole, before, order, again
):
    check_late(trained, tmp_path, hole, before, order, again)


@pytest.mark.slow
@examples(40)
@given(**lateness)
def test_late_data_of_many_kinds_is_in_the_rows(trained, tmp_path, hole, before, order, again):
    check_late(trained, tmp_path, hole, before, order, again)


def _asked(orders):
    """The days that commands are about."""
    return {
        number
        for command, first, last in orders
        for number in (
            [min(first, last)] if command == "night" else range(min(first, last), max(first, last) + 1)
        )
    }
