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
LATE_SENSOR = "s01"


def plan(chance: random.Random, days: int) -> list[dict[str, Any]]:
    """Every day once in any order, with reruns, backfills and rescores between; late data, then its days."""
    numbers = list(range(FIRST, FIRST + days))
    chance.shuffle(numbers)
    steps: list[dict[str, Any]] = [{"do": "night", "days": [n]} for n in numbers]
    for _ in range(days // 2):
        first = chance.randrange(FIRST, FIRST + days)
        last = min(first + chance.randrange(1, 5), FIRST + days - 1)
        kind = chance.choice(["night", "backfill", "rescore"])
        span = [first] if kind == "night" else list(range(first, last + 1))
        steps.insert(chance.randrange(len(steps)), {"do": kind, "days": span})
    for late in chance.sample(range(FIRST, FIRST + days), max(1, days // 8)):
        at = chance.randrange(len(steps))
        steps.insert(at, {"do": "arrive", "days": [late]})
        # Whoever writes late data has the day scored again.
        steps.insert(chance.randrange(at + 1, len(steps) + 1), {"do": "night", "days": [late]})
    return steps


def write_without(fleet: Any, days: int, missing: list[int]) -> None:
    """The history of the sensor whose data comes late."""
    values = fleet_work.signal(1, FIRST + days)
    for number in missing:
        values[number * 48 + 10 : (number + 1) * 48 - 5] = float("nan")
    fleet_work.fleets.write_sensor(fleet.settings, LATE_SENSOR, values)


def prepare(folder: Path, days: int, steps: list[dict[str, Any]]) -> None:
    fleet = fleet_work.make(folder, sensors=3, days=FIRST + days)
    write_without(fleet, days, [s["days"][0] for s in steps if s["do"] == "arrive"])
    (folder / "plan.json").write_text(json.dumps({"days": days, "steps": steps, "next": 0}))


def work(folder: Path, kill: int) -> tuple[int, int]:
    """Go on with the plan, killed at the moment `kill` (0: never); (step reached, moments seen)."""
    fault = injected.begin(injected.kill_at(kill))
    fleet = fleet_work.opened(folder)
    file = folder / "plan.json"
    state = json.loads(file.read_text())
    for number in range(state["next"], len(state["steps"])):
        step = state["steps"][number]
        if step["do"] == "arrive":
            later = [s["days"][0] for s in state["steps"][number + 1 :] if s["do"] == "arrive"]
            write_without(fleet, state["days"], later)
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
    fleet = fleet_work.make(folder, sensors=3, days=FIRST + days)
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
    return [step for step in plan(chance, days) if step["do"] != "arrive"]


ROW = Row(
    2,
    "200 random SIGKILLs over a simulated month, any order of nights, reruns, backfills, late data",
    "the month equals one backfill",
    run,
)
