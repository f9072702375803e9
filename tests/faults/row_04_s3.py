"""Row 4: S3 with errors, throttling, lost answers, wrong listings, cut and slow connections."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from pathlib import Path

from flows.run.fleet import Fleet, open_fleet
from flows.run.outcome import Outcome
from flows.settings.fleet_file import Settings
from paano.errors import PaanoError
from storage.objects.store import open_store
from tests.faults import fleet_work
from tests.faults.bad_s3 import BadS3, bad_s3
from tests.faults.tally import Row, Tally
from tests.servers import S3, seaweed

ERRORS = ("error 500", "error 503", "throttling", "too many")
CONNECTIONS = ("lost answer", "cut answer", "connection refused")
LISTINGS = ("stale listing", "empty listing")
CASES = {
    "errors at 1 %": (ERRORS, 0.01),
    "errors at 5 %": (ERRORS, 0.05),
    "errors at 20 %": (ERRORS, 0.20),
    "throttling at 20 %": (("throttling", "too many"), 0.20),
    "lost answers at 5 %": (("lost answer",), 0.05),
    "lost answers at 20 %": (("lost answer",), 0.20),
    "cut and refused connections at 5 %": (CONNECTIONS, 0.05),
    "cut and refused connections at 20 %": (CONNECTIONS, 0.20),
    "slow connections at 20 %": (("slow answer",), 0.20),
    "all of it at 5 %": ((*ERRORS, *CONNECTIONS, "slow answer"), 0.05),
    "stale listings": (("stale listing",), 1.0),
    "empty listings at 20 %": (("empty listing",), 0.20),
    "empty listings": (("empty listing",), 1.0),
}
NIGHTS = (5, 6, 7)


def on_s3(local: Fleet, s3: S3, prefix: str, endpoint: str) -> Fleet:
    """The fleet with history, scores, events and models in a bucket, reached through `endpoint`."""
    values = local.settings.to_dict()
    places = {"history": "history", "scores": "scores", "events": "events"}
    for section, name in places.items():
        values[section] = {**values.get(section, {}), "url": s3.url(f"{prefix}/{name}")}
    options = dataclasses.replace(s3.options, endpoint=endpoint, read_timeout=5.0)
    return open_fleet(Settings.from_dict(values), options)


def copy_history(local: Fleet, s3: S3, prefix: str) -> None:
    source, sink = open_store(local.history.store.url), open_store(s3.url(f"{prefix}/history"), s3.options)
    for info in source.list():
        sink.put(info.key, source.get(info.key))


def check(tally: Tally, case: str, fleet: Fleet, whole: Fleet, wanted: Fleet, bad: BadS3) -> None:
    """Score the nights beside the faults: who was served, and no wrong row; then a rerun mends the rest."""
    kinds, share = CASES[case]
    bad.kinds, bad.share, bad.wrong = kinds, share, 0
    by_night: dict[int, list[Outcome]] = {}
    stopped: dict[int, str] = {}
    for number in NIGHTS:
        try:
            by_night[number] = fleet_work.patiently_score(fleet, number)
        except PaanoError as error:
            by_night[number], stopped[number] = [], str(error)
    outcomes = [outcome for some in by_night.values() for outcome in some]
    wrong, bad.share = bad.wrong, 0.0
    names = fleet_work.names_of(wanted)
    served = sum(o.state == "ok" for o in outcomes)
    nights = len(names) * len(NIGHTS)
    span = fleet_work.everything(whole)
    expected = {(r["sensor"], r["ts"]): r for r in wanted.scores.read_many(None, span).iter_rows(named=True)}
    found = list(whole.scores.read_many(None, span).iter_rows(named=True))
    kind = f"sensor nights with {case}"
    with tally.trial(kind, "no wrong rows"):
        for row in found:
            true = expected[row["sensor"], row["ts"]]
            provisional = row["status"] in ("provisional", "no_data", "no_model")
            assert provisional or row == true, f"a wrong row: {row} and not {true}"
    if "listing" in case and case != "stale listings":
        with tally.trial(kind, "whoever has no scores is named", count=nights):
            scored = {(r["sensor"], r["ts"].date()) for r in found if r["score"] is not None}
            lost = 0
            for number, name in itertools.product(NIGHTS, names):
                if (name, fleet_work.day(number)) not in scored and number not in stopped:
                    lost += 1
                    [said] = [o for o in by_night[number] if o.sensor == name]
                    assert said.reason, f"{name} on day {number}: {said.text}, and there are no scores"
            tally.notes.append(
                f"{case}: {wrong} of them; {lost} of {nights} sensor nights without scores, each named, "
                f"{len(stopped)} of {len(NIGHTS)} nights refused as a whole; all there after a rerun"
            )
    else:
        floor = 1.0 if share <= 0.05 or case == "stale listings" else 0.99
        with tally.trial(kind, "who was served", count=nights):
            assert not stopped, str(stopped)
            unserved = [o for o in outcomes if o.state != "ok"]
            assert served >= floor * nights, f"{served} of {nights}: {unserved[0].text if unserved else ''}"
            assert all(o.reason for o in unserved), "somebody is not named"
            tally.notes.append(f"{case}: {wrong} faults, {served} of {nights} sensor nights served at once")
    with tally.trial(kind, "the rerun"):
        for number in NIGHTS:
            fleet_work.score(whole, number)
        after = whole.scores.read_many(None, span)
        assert after.equals(wanted.scores.read_many(None, span)), "the rerun differs from an undisturbed one"
        events = whole.events.read_many(None, span)
        assert events.equals(wanted.events.read_many(None, span)), "events differ from an undisturbed run"


def run(tally: Tally, root: Path, short: bool) -> None:
    local = fleet_work.make(root / "fleet", sensors=4 if short else 40, days=8, scores={"shards": 4})
    fleet_work.score(local, *NIGHTS)
    cases = ["all of it at 5 %"] if short else list(CASES)
    with seaweed(root) as s3, bad_s3(s3.endpoint) as bad:
        copy_history(local, s3, "all")
        for number, case in enumerate(cases):
            prefix = f"case-{number}"
            copy_history(local, s3, prefix)
            fleet = on_s3(local, s3, prefix, bad.endpoint)
            if case == "stale listings":  # what was listed before the last day came
                last = [i.key for i in fleet.history.store.list() if fleet_work.fleets.night(7) in i.key]
                held = {key: fleet.history.store.get(key) for key in last}
                fleet.history.store.delete(last)
                on_s3(local, s3, prefix, bad.endpoint).history.sensors()
                for key, data in held.items():
                    open_store(fleet.history.store.url, s3.options).put(key, data)
            check(tally, case, fleet, on_s3(local, s3, prefix, s3.endpoint), local, bad)
            bad.listings.clear()
    shutil.rmtree(root / "fleet", ignore_errors=True)


ROW = Row(
    4,
    "S3 errors at 1, 5, 20 % of calls; throttling; lost answers; stale or empty listings; cut and slow "
    "connections",
    "all sensors up to 5 %; at 20 % at least 99 %, the rest named; no wrong rows",
    run,
)
