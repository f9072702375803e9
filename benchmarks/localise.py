"""How exactly events say when a fault was: version 0.1.0 and now, side by side.

    python -m benchmarks.localise [--json]          the demo fleet, and every fault × sensor kind × 3 seeds
    python -m benchmarks.localise --labelled 20     also labelled segments of so many of the 110 series
    python -m benchmarks.localise --only labelled --labelled 110 --widen 2      are labels wider than events?
    python -m benchmarks.localise --seeds 1 --kinds daily,pump      a part of it
    python -m benchmarks.localise --out localise.jsonl      one line for each finished sensor: stop and go on

`before` is the preset `default` of version 0.1.0, whose events were the stretches of rows over the threshold;
`now` is the preset of now, with the edges of `paano.alarms.edges`. Both at the default budget.

    iou                       median overlap of event and fault (intersection over union)
    start_error, end_error    median, in points
    spike_length              median length of the events of spikes, in points
    found, faults             found: an event touches the fault or the patch beside it; of several events the
                              one that overlaps it most counts
    false_alarms, beside      events that touch no fault nor the patch beside one; that overlap no fault

Some labelled series have a thousand single rows labelled, most have one segment: there each series counts
once. `iou` is the mean, an error the median over the series in which both ways found something of the
medians within each, `gain` the mean difference in overlap, now minus before, ± its standard error; `found` is
the mean share of the labelled segments, false alarms are all there are.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import labelled_files, mean_and_error
from benchmarks.resumable import read_rows
from paano import PaAno, PaAnoConfig
from paano.alarms.edges import find_edges
from paano.alarms.events import find_events
from paano.device import compute_threads
from paano.evaluation.inject import kinds_for, put_fault
from paano.evaluation.protocol import parse_name, read_series
from paano.evaluation.synth import FAULT_ROWS, FIRST_DAY, KINDS, NEW_PATCHES, Clock, make_fleet
from paano.network.train import train

INTERVAL = timedelta(minutes=5)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAYS, NIGHTS = 21, 3  # of the demo
BUDGET = 1.0
APART = 500  # rows that a planted fault has for itself
FORMER: dict[str, Any] = {
    "neighbours": 3,
    "next_value": "none",
    "plain": "none",
    "still": "measured",
    "keep": 0,
}  # default in version 0.1.0
GROUPS = ("UCR", "WSD", "others")  # of labelled series
GOALS = {"iou": "at least 0.60", "start_error": "at most 8", "spike_length": "at most 12"}

Span = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """One sensor with known faults: rows of `values` from `train` on are scored."""

    name: str
    values: np.ndarray
    train: int
    faults: list[tuple[str, int, int]]  # kind, first and last row


def demo_cases() -> Iterator[Case]:
    """The sensors of `paano demo` that have a model."""
    scored = int(timedelta(days=NIGHTS) / INTERVAL)
    for sensor in make_fleet(12, DAYS, INTERVAL, seed=0, start=FIRST_DAY, nights=NIGHTS):
        if len(sensor.values) > scored + 5 * 96:
            rows = [
                (f.kind, (f.start - sensor.start) // INTERVAL, (f.end - sensor.start) // INTERVAL)
                for f in sensor.faults
            ]
            yield Case(sensor.name, sensor.values, len(sensor.values) - scored, rows)


def planted_cases(kinds: Sequence[str], seeds: int) -> Iterator[Case]:
    """Every fault kind once in a sensor of every kind; a fault that changes nothing is not planted."""
    for kind in kinds:
        for seed in range(seeds):
            rng = np.random.default_rng([seed, sorted(KINDS).index(kind), 77])
            signal, _ = KINDS[kind]
            train = NEW_PATCHES * 96 if kind == "new" else int(timedelta(days=DAYS - NIGHTS) / INTERVAL)
            channels = len(signal(Clock.of(FIRST_DAY, 50, INTERVAL), np.random.default_rng(0))[0])
            faults = kinds_for(channels)
            rows = train + 192 + APART * len(faults) + 96
            _, values = signal(Clock.of(FIRST_DAY, rows, INTERVAL), rng)
            planted = []
            for i, fault in enumerate(rng.permutation(faults).tolist()):
                first = train + 192 + i * APART + int(rng.integers(0, APART - FAULT_ROWS[fault] - 250))
                last = first + FAULT_ROWS[fault] - 1
                before = values[first : last + 1].copy()
                put_fault(
                    values, fault, first, FAULT_ROWS[fault], rng, channels=[int(rng.integers(channels))]
                )
                if not np.allclose(before, values[first : last + 1], equal_nan=True):
                    planted.append((fault, first, last))
            yield Case(f"{kind} {seed}", values, train, planted)


def group_of(file: str) -> str:
    subset = parse_name(file)[0]
    return subset if subset in GROUPS else GROUPS[-1]


def labelled_cases(files: int, group: str | None = None) -> Iterator[Case]:
    """Labelled segments after the training rows of the smallest of the 110 labelled series; of one group."""
    for path in labelled_files()[:files]:
        if group not in (None, group_of(path.name)):
            continue
        series = read_series(path)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], series.labels, [0]]).astype(int)))
        segments = [("", int(a), int(b) - 1) for a, b in edges.reshape(-1, 2) if a >= series.train_rows]
        yield Case(path.stem, series.values, series.train_rows, segments)


def events_of(case: Case, stride: int = 1) -> dict[str, list[Span]]:
    """Events of the rows after training as (first, last) row, `before` and `now`."""
    before, now = fit_alike(
        case.values[: case.train],
        PaAnoConfig.preset("default", stride=stride, **FORMER),
        PaAnoConfig.preset("default", stride=stride),
    )
    return {
        "before": _events(case, before, second_look=False),
        "now": _events(case, now, second_look=True),
    }


def fit_alike(past: np.ndarray, *configs: PaAnoConfig) -> list[PaAno]:
    """What `PaAno(config).fit(past)` gives for each of the `configs`, which train alike: trained once."""
    series, material = PaAno(configs[0], "cpu").prepare(past)
    ((encoder, losses),) = train([material], configs[0])
    after_training = material.generator.get_state()
    models = []
    for config in configs:
        material.generator.set_state(after_training)  # the bank is drawn with it
        models.append(PaAno(config, "cpu").finish(series, material, encoder, losses, 0.0))
    return models


def _events(case: Case, model: PaAno, second_look: bool) -> list[Span]:
    lead = min(case.train, 2 * model.config.context)
    values = case.values[case.train - lead :]
    found = model.detect(values)
    ts = np.datetime64(0, "us") + np.arange(len(values)) * np.timedelta64(INTERVAL)
    tonight = np.arange(len(values)) >= lead

    def edges(start: datetime, end: datetime, version: int | None) -> list[tuple[datetime, datetime]]:
        first, last = ((moment - EPOCH) // INTERVAL for moment in (start, end))
        return [
            (EPOCH + a * INTERVAL, EPOCH + b * INTERVAL) for a, b in find_edges(model, values, first, last)
        ]

    events = find_events(
        ts[tonight],
        found.score[tonight],
        found.status[tonight],
        model.calibration.threshold(BUDGET, INTERVAL.total_seconds()),
        sensor="sensor",
        merge=model.calibration.merge,
        interval=INTERVAL,
        edges=edges if second_look else None,
    )
    shift = case.train - lead
    return [((e.start - EPOCH) // INTERVAL + shift, (e.end - EPOCH) // INTERVAL + shift) for e in events]


def overlap(event: Span, fault: Span) -> float:
    """Intersection over union, in rows.

    >>> overlap((0, 9), (5, 14))
    0.3333333333333333
    """
    common = min(event[1], fault[1]) - max(event[0], fault[0]) + 1
    return max(common, 0) / (max(event[1], fault[1]) - min(event[0], fault[0]) + 1)


def near(event: Span, fault: Span, margin: int) -> bool:
    return event[0] <= fault[1] + margin and event[1] >= fault[0] - margin


@dataclass
class Tally:
    """What was found over many cases."""

    faults: int = 0
    false_alarms: int = 0
    beside: int = 0
    rows: list[tuple[str, float, int, int, int]] | None = None  # kind, overlap, start and end error, length

    def add(self, events: list[Span], faults: list[tuple[str, int, int]], patch: int = 96) -> None:
        self.rows = self.rows or []
        self.faults += len(faults)
        for kind, first, last in faults:
            fault = (first, last)
            hits = [event for event in events if near(event, fault, patch)]
            if hits:
                best = max(hits, key=lambda event: (overlap(event, fault), -abs(event[0] - fault[0])))
                self.rows.append(
                    (
                        kind,
                        overlap(best, fault),
                        abs(best[0] - first),
                        abs(best[1] - last),
                        best[1] - best[0] + 1,
                    )
                )
        for event in events:
            self.false_alarms += not any(near(event, (a, b), patch) for _, a, b in faults)
            self.beside += not any(near(event, (a, b), 0) for _, a, b in faults)

    def figures(self) -> dict[str, float | int | None]:
        rows = self.rows or []
        spikes = [row[4] for row in rows if row[0] == "spike"]

        def middle(values: list[float] | list[int]) -> float | None:
            return round(float(np.median(values)), 3) if values else None

        return {
            "iou": middle([row[1] for row in rows]),
            "start_error": middle([row[2] for row in rows]),
            "end_error": middle([row[3] for row in rows]),
            "spike_length": middle(spikes),
            "found": len(rows),
            "faults": self.faults,
            "false_alarms": self.false_alarms,
            "beside": self.beside,
        }


class Finished:
    """The events of sensors that were finished before, in a file with a line for each; without one, none."""

    def __init__(self, path: Path | None = None):
        self.path = path
        self.events = {(row["part"], row["name"]): row["events"] for row in read_rows(path)}

    def events_of(self, part: str, case: Case, stride: int = 1) -> dict[str, list[Span]]:
        if (part, case.name) not in self.events:
            self.events[part, case.name] = found = events_of(case, stride)
            if self.path:
                with self.path.open("a") as file:
                    file.write(json.dumps({"part": part, "name": case.name, "events": found}) + "\n")
        return {way: [(a, b) for a, b in spans] for way, spans in self.events[part, case.name].items()}


def measure(part: str, cases: Iterator[Case], finished: Finished) -> dict[str, Any]:
    """Figures of both ways over all faults of all cases."""
    tallies = {"before": Tally(), "now": Tally()}
    began = time.perf_counter()
    for case in cases:
        for name, events in finished.events_of(part, case).items():
            tallies[name].add(events, case.faults)
    seconds = round(time.perf_counter() - began, 1)
    return {name: tally.figures() for name, tally in tallies.items()} | {"seconds": seconds}


def measure_series(cases: Iterator[Case], finished: Finished, widen: int = 0) -> dict[str, Any]:
    """Figures of both ways over labelled series, each of which counts once; events of now get `widen` rows
    more on either side."""
    series: dict[str, list[dict[str, Any]]] = {"before": [], "now": []}
    began = time.perf_counter()
    for case in cases:
        for name, events in finished.events_of("labelled", case, stride=4).items():
            more = widen if name == "now" else 0
            tally = Tally()
            tally.add([(first - more, last + more) for first, last in events], case.faults)
            series[name].append(tally.figures())
    seconds = round(time.perf_counter() - began, 1)
    pairs = list(zip(series["before"], series["now"], strict=True))
    both = [pair for pair in pairs if None not in (pair[0]["iou"], pair[1]["iou"])]
    answer: dict[str, Any] = {
        name: {
            "series": len(pairs),
            "both": len(both),
            "iou": round(float(np.mean([pair[i]["iou"] for pair in both])), 3) if both else None,
            "start_error": float(np.median([pair[i]["start_error"] for pair in both])) if both else None,
            "end_error": float(np.median([pair[i]["end_error"] for pair in both])) if both else None,
            "found": round(
                float(np.mean([p[i]["found"] / p[i]["faults"] for p in pairs if p[i]["faults"]])), 3
            ),
            "false_alarms": sum(pair[i]["false_alarms"] for pair in pairs),
            "gain": "",
        }
        for i, name in enumerate(series)
    }
    gains = np.array([now["iou"] - before["iou"] for before, now in both])
    if gains.size:
        answer["now"]["gain"] = "{:+.3f} ± {:.3f}".format(*mean_and_error(gains))
    return answer | {"seconds": seconds}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one object on standard output")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(kind for kind in KINDS if kind != "short"))
    parser.add_argument("--labelled", type=int, default=0, help="so many labelled series, the smallest first")
    parser.add_argument("--widen", type=int, default=0, help="labelled events of now have so many rows more")
    parser.add_argument("--only", choices=("demo", "planted", "labelled"), help="only this part")
    parser.add_argument("--out", type=Path, help="keep the events of each sensor, and go on from there")
    options = parser.parse_args(arguments)
    finished = Finished(options.out)
    unknown = [kind for kind in options.kinds.split(",") if kind not in KINDS]
    if unknown:
        parser.error(f"unknown sensor kind {unknown[0]!r}; known: {', '.join(KINDS)}")
    parts = {
        "demo": lambda: measure("demo", demo_cases(), finished),
        "planted": lambda: measure(
            "planted", planted_cases(options.kinds.split(","), options.seeds), finished
        ),
    }
    if options.labelled:
        there = {group_of(path.name) for path in labelled_files()[: options.labelled]}
        for group in (None, *(group for group in GROUPS if group in there)):
            parts[f"labelled {group}" if group else "labelled"] = lambda group=group: measure_series(
                labelled_cases(options.labelled, group), finished, options.widen
            )
    found: dict[str, Any] = {"goals": GOALS}
    with compute_threads(1):
        for name, run in parts.items():
            if options.only in (None, name.split()[0]):
                found[name] = run()
                if not options.json:
                    print(f"\n{name} ({found[name]['seconds']} s)")
                    keys = list(found[name]["now"])
                    print("        " + " ".join(f"{key:>14}" for key in keys))
                    for way in ("before", "now"):
                        print(f"{way:8}" + " ".join(f"{found[name][way][key]!s:>14}" for key in keys))
    if options.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
