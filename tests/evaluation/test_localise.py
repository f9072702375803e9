"""How exactly events say when: benchmarks/localise.py."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.localise import (
    Case,
    Finished,
    Tally,
    events_of,
    main,
    measure,
    measure_series,
    overlap,
    planted_cases,
)
from paano.evaluation.synth import KINDS

ROOT = Path(__file__).resolve().parents[2]


def test_the_overlap_is_intersection_over_union():
    assert overlap((0, 9), (0, 9)) == 1
    assert overlap((0, 9), (20, 29)) == 0
    assert overlap((0, 3), (2, 5)) == pytest.approx(1 / 3)


def test_a_fault_is_found_beside_it_and_an_event_far_from_all_is_a_false_alarm():
    tally = Tally()
    tally.add([(100, 102), (150, 160), (600, 610)], [("spike", 100, 102), ("shift", 900, 950)])
    figures = tally.figures()
    assert (figures["found"], figures["faults"]) == (1, 2)
    assert (figures["false_alarms"], figures["beside"]) == (1, 2)
    assert (figures["iou"], figures["start_error"], figures["spike_length"]) == (1.0, 0, 3)


def test_every_kind_of_sensor_has_faults_that_do_not_touch():
    for kind in KINDS:
        (case,) = planted_cases([kind], 1)
        faults = sorted((first, last) for _, first, last in case.faults)
        assert all(b[0] - a[1] > 2 * 96 for a, b in itertools.pairwise(faults))
        assert all(first > case.train for first, _ in faults)


@pytest.mark.slow
def test_the_second_look_finds_the_edges_of_a_spike():
    (case,) = planted_cases(["daily"], 1)
    spike = next(fault for fault in case.faults if fault[0] == "spike")
    near = slice(0, spike[2] + 300)
    events = events_of(Case(case.name, case.values[near], case.train, [spike]))
    best = {name: max(overlap(event, spike[1:]) for event in found) for name, found in events.items()}
    assert best["now"] > 0.5 > best["before"]


@pytest.mark.slow
def test_the_benchmark_prints_its_keys(capsys):
    main(["--json", "--seeds", "1", "--kinds", "flat", "--only", "planted"])
    found = json.loads(capsys.readouterr().out)["planted"]
    keys = {"iou", "start_error", "end_error", "spike_length", "found", "false_alarms"}
    assert keys <= set(found["now"]) == set(found["before"])
    assert found["now"]["iou"] > found["before"]["iou"]


def test_the_published_figures_are_those_of_the_events_that_are_kept():
    finished = Finished(ROOT / "benchmarks" / "localise-results.jsonl")
    kinds = [kind for kind in KINDS if kind != "short"]
    cases = list(planted_cases(kinds, 3))
    assert {("planted", case.name) for case in cases} <= set(finished.events)
    page = (ROOT / "benchmarks" / "ACCURACY.md").read_text()
    for figures in (measure("planted", iter(cases), finished)[way] for way in ("before", "now")):
        assert f"| {figures['found']} of {figures['faults']} | {figures['false_alarms']} |" in page


def test_every_labelled_series_counts_once(monkeypatch):
    spans = {"before": [(0, 9)], "now": [(5, 9)]}
    monkeypatch.setattr("benchmarks.localise.events_of", lambda case, stride: spans)
    none = np.zeros(1000)
    one = Case("one", none, 0, [("", 5, 9)])
    many = Case("many", none, 0, [("", row, row) for row in range(500, 900, 10)])
    found = measure_series(iter([one, many]), Finished())
    assert (found["before"]["series"], found["before"]["both"]) == (2, 1)
    assert (found["before"]["iou"], found["now"]["iou"], found["now"]["start_error"]) == (0.5, 1.0, 0)
    assert found["now"]["found"] == 0.5
    assert found["now"]["gain"].startswith("+0.500")
