"""Row 2: random SIGKILLs over a simulated month, in any order of nights, reruns, backfills and late data."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.faults import fleet_work, injected
from tests.faults.processes import Died, in_process
from tests.faults.row_01_every_call import difference
from tests.faults.tally import Row, Tally

FIRST = fleet_work.TRAINED
SENSORS, LATE_SENSOR = 3, 1
ON_TIME = 0.7  # of the nights
COMES = ("data", "late data")


def plan(chance: random.Random, days: int) -> list[dict[str, Any]]:
    """A month as it goes. Data comes day by day; most nights run on time, so that the end of their day waits
    for the next; others come later, in any order; with reruns, backfills and rescores between. Some data of
    one sensor comes late, and then its day is run again: whoever writes late data has that done.
    """
    steps: list[dict[str, Any]] = []
    missed: list[int] = []
    for day in range(FIRST, FIRST + days):
        steps.append({"do": "data", "days": [day]})
        if chance.random() < ON_TIME:
            steps.append({"do": "night", "days": [day]})
        else:
            missed.append(day)
        if chance.random() < 0.5:
            first = chance.randrange(FIRST, day + 1)
            last = min(first + chance.randrange(1, 5), day)
            kind = chance.choice(["night", "backfill", "rescore"])
            steps.append({"do": kind, "days": [first] if kind == "night" else list(range(first, last + 1))})
    chance.shuffle(missed)
    steps += [{"do": "night", "days": [day]} for day in missed]
    for late in chance.sample(range(FIRST, FIRST + days), max(1, days // 8)):
        came = steps.index({"do": "data", "days": [late]})
        at = chance.randrange(came + 1, len(steps) + 1)
        steps.insert(at, {"do": "late data", "days": [late]})
        steps.insert(chance.randrange(at + 1, len(steps) + 1), {"do": "night", "days": [late]})
    return steps


def write_history(fleet: Any, days: int, still_to_come: list[dict[str, Any]]) -> None:
    """The history of all sensors without what comes later."""
    data = [step["days"][0] for step in still_to_come if step["do"] == "data"]
    late = [step["days"][0] for step in still_to_come if step["do"] == "late data"]
    for number in range(SENSORS):
        values = fleet_work.signal(number, FIRST + days)
        for day in late if number == LATE_SENSOR else []:
            values[day * 48 + 10 : (day + 1) * 48 - 5] = float("nan")
        fleet_work.fleets.write_sensor(
            fleet.settings, f"s{number:02d}", values[: min(data) * 48 if data else None]
        )


def prepare(folder: Path, days: int, steps: list[dict[str, Any]]) -> None:
    fleet = fleet_work.make(folder, sensors=SENSORS, days=FIRST + days)
    write_history(fleet, days, steps)
    (folder / "plan.json").write_text(json.dumps({"days": days, "steps": steps, "next": 0}))


def work(folder: Path, kill: int) -> tuple[int, int]:
    """Go on with the plan, killed at the moment `kill` (0: never); (step reached, moments seen)."""
    fault = injected.begin(injected.kill_at(kill))
    fleet = fleet_work.opened(folder)
    file = folder / "plan.json"
    state = json.loads(file.read_text())
    for number in range(state["next"], len(state["steps"])):
        step = state["steps"][number]
        if step["do"] in COMES:
            write_history(fleet, state["days"], state["steps"][number + 1 :])
            fleet = fleet_work.opened(folder)
        else:
            how = {"rescore": {"rescore": True}, "backfill": {"resume": True}}.get(step["do"], {})
            fleet_work.score(fleet, *step["days"], **how)
        half = file.with_suffix(".half")
        half.write_text(json.dumps({**state, "next": number + 1}))
        half.replace(file)
    injected.end()
    return len(state["steps"]), len(fault.names)


def one_backfill(folder: Path, days: int) -> None:
    fleet = fleet_work.make(folder, sensors=SENSORS, days=FIRST + days)
    fleet_work.score(fleet, *range(FIRST, FIRST + days))


def run(tally: Tally, root: Path, short: bool) -> None:
    days, kills = (4, 3) if short else (30, 200)
    chance = random.Random(17)
    steps = plan(chance, days)
    folder, wanted = root / "month", root / "wanted"
    in_process(prepare, folder, days, steps)
    in_process(one_backfill, wanted, days)
    killed, gap = 0, 40 if short else 60
    with tally.trial(f"month of {days} days in {len(steps)} steps"):
        while True:
            try:
                in_process(work, folder, chance.randrange(1, gap) if killed < kills else 0)
                if killed >= kills:
                    break
                # The plan ended before all kills were spent: the same days once more, in another order.
                more = plan_again(chance, days)
                (folder / "plan.json").write_text(json.dumps({"days": days, "steps": more, "next": 0}))
            except Died as died:
                assert died.code == -9, died
                killed += 1
                in_process(fleet_work.whole_objects, folder)
        found, expected = fleet_work.objects(folder), fleet_work.objects(wanted)
        assert found == expected, difference(found, expected)
    if not tally.failures:
        tally.passed("SIGKILL at a random moment of it", killed)


def plan_again(chance: random.Random, days: int) -> list[dict[str, Any]]:
    return [step for step in plan(chance, days) if step["do"] not in COMES]


ROW = Row(
    2,
    "200 random SIGKILLs over a simulated month, any order of nights, reruns, backfills, late data",
    "the month equals one backfill",
    run,
)
