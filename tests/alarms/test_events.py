"""Events: merged over short breaks, the same whichever way the nights were scored."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paano.alarms.events import Edges, anomalous, event_id, find_events
from paano.alarms.fit_calibration import fit_calibration
from paano.alarms.settle import ScoredRows, carry_over, settle
from tests import oracle

MINUTE = timedelta(minutes=1)
START = np.datetime64("2026-03-01T00:00:00", "us")


def times(n: int, first: int = 0) -> np.ndarray:
    return START + (first + np.arange(n)) * np.timedelta64(60_000_000, "us")


def find(flags, *, merge=2, status=None, **kwargs):
    """Events of rows that score 1 where `flags` is set and 0 elsewhere, at a threshold of one half."""
    score = np.asarray(flags, dtype=np.float32)
    status = np.full(score.size, "ok") if status is None else np.asarray(status)
    return find_events(times(score.size), score, status, 0.5, sensor="s", merge=merge, **kwargs)


def row_of(moment: datetime) -> int:
    return round((moment - datetime(2026, 3, 1, tzinfo=UTC)) / MINUTE)


def spans(events) -> list[tuple[int, int]]:
    return [(row_of(e.start), row_of(e.end)) for e in events]


def test_quiet_rows_make_no_event():
    assert find([0, 0, 0]) == []
    assert find([]) == []


def test_a_break_of_merge_rows_is_bridged_and_one_more_is_not():
    assert spans(find([1, 0, 0, 1], merge=2)) == [(0, 3)]
    assert spans(find([1, 0, 0, 0, 1], merge=2)) == [(0, 0), (4, 4)]


def test_a_gap_never_alarms_whatever_number_stands_in_it():
    status = ["ok", "no_data", "no_model", "ok"]
    assert find([0, 1, 1, 0], status=status) == []
    assert find([0, np.nan, 0, 0]) == []


def test_a_short_hole_inside_an_event_does_not_end_it_but_a_long_one_does():
    status = ["ok", "no_data", "no_data", "ok"]
    assert spans(find([1, np.nan, np.nan, 1], status=status)) == [(0, 3)]
    status = ["ok", *["no_data"] * 9, "ok"]
    assert spans(find([1, *[np.nan] * 9, 1], status=status)) == [(0, 0), (10, 10)]


def test_rows_that_are_not_there_at_all_count_as_a_break():
    ts = np.concatenate([times(3), times(3, first=50)])
    events = find_events(ts, np.ones(6), np.full(6, "ok"), 0.5, sensor="s", merge=5, interval=MINUTE)
    assert spans(events) == [(0, 2), (50, 52)]


def test_a_score_equal_to_its_threshold_is_not_anomalous():
    ok = np.full(2, "ok")
    assert anomalous(np.array([0.5, 0.6]), ok, 0.5).tolist() == [False, True]
    # compared in the type in which both are stored
    assert not anomalous(np.float32([0.1]), ok[:1], 0.1).any()


def test_the_peak_is_the_row_furthest_over_its_own_threshold():
    score, threshold = np.array([0.9, 0.8, 0.7]), np.array([0.8, 0.2, 0.3])
    (event,) = find_events(times(3), score, np.full(3, "ok"), threshold, sensor="s", merge=0)
    assert row_of(event.peak) == 1
    assert event.score == pytest.approx(0.8)
    assert event.length == 3


def test_the_id_depends_on_sensor_and_start_only():
    short, long = find([0, 1, 0, 0])[0], find([0, 1, 1, 1])[0]
    assert short.event_id == long.event_id == event_id("s", short.start)
    assert event_id("t", short.start) != short.event_id
    assert find([1, 1, 0, 0])[0].event_id != short.event_id


def test_an_event_is_final_only_when_later_rows_cannot_reach_it():
    quiet = [0, 1, 0, 0]
    assert find([*quiet, 0], merge=2)[0].final  # three quiet rows follow
    assert not find(quiet, merge=2)[0].final  # the next row could still join it
    status = ["ok"] * 4 + ["provisional"] * 3
    assert not find([0, 1, 0, 0, 0, 0, 0], merge=2, status=status)[0].final
    assert find([1, 0, 0, 0, 0, 0, 0], merge=2, status=status)[0].final


def test_severity_comes_from_the_calibration_of_the_model_that_scored_the_peak():
    rng = np.random.default_rng(0)
    calm, wild = fit_calibration(rng.random(3000)), fit_calibration(5 * rng.random(3000))
    asked = []

    def of_version(version: int):
        asked.append(version)
        return {7: calm, 8: wild}[version]

    score = np.array([2.0, 0.0, 0.0, 0.0, 30.0])
    events = find_events(
        times(5), score, np.full(5, "ok"), 1.5, sensor="s", merge=1, calibration=of_version,
        version=np.array([7, 7, 8, 8, 8]),
    )  # fmt: skip
    assert asked == [7, 8]
    assert events[0].severity == calm.severity(2.0, 1.5)
    assert events[1].severity == wild.severity(30.0, 1.5)


def test_the_cause_is_the_part_that_raised_the_score_at_the_peak():
    parts = {"shape": np.array([9.0, 1.0, 5.0]), "level": np.array([1.0, 9.0, 4.9])}
    for row, cause in enumerate(["shape", "level", "shape and level"]):
        flags = np.zeros(3)
        flags[row] = 1
        assert find(flags, parts=parts)[0].cause == cause
    silent = {"shape": np.ones(3), "level": np.full(3, np.nan)}
    assert find([1, 0, 0], parts=silent)[0].cause == "shape"
    assert find([1, 0, 0])[0].cause == ""


def moment(row: int) -> datetime:
    return datetime(2026, 3, 1, tzinfo=UTC) + row * MINUTE


def test_the_faults_of_a_stretch_are_events_with_their_own_edges_and_peaks():
    score = np.array([0, 1, 2, 1, 1, 3, 1, 0])
    asked = []

    def edges(start, end, version):
        asked.append((row_of(start), row_of(end), version))
        return [(moment(2), moment(2)), (moment(4), moment(5))]

    first, second = find(score, edges=edges, version=np.full(8, 7))
    assert asked == [(1, 6, 7)]
    assert spans([first, second]) == [(2, 2), (4, 5)]
    assert [first.length, second.length] == [1, 2]
    assert [(row_of(e.peak), e.score) for e in (first, second)] == [(2, 2.0), (5, 3.0)]


def test_the_first_event_of_a_stretch_has_the_id_that_the_stretch_has():
    flags = [0, 1, 1, 1, 1, 0]
    (whole,) = find(flags)
    first, second = find(flags, edges=lambda *_: [(moment(2), moment(2)), (moment(4), moment(4))])
    assert first.event_id == whole.event_id != second.event_id
    longer = find([*flags, 1], edges=lambda *_: [(moment(r), moment(r)) for r in (2, 4, 6)])
    assert [e.event_id for e in longer[:2]] == [first.event_id, second.event_id]


def test_a_fault_without_an_anomalous_row_is_no_event_and_edges_stay_within_the_stretch():
    flags = [0, 1, 0, 0, 1, 0, 0]
    assert spans(find(flags, edges=lambda *_: [(moment(2), moment(3))])) == [(1, 4)]
    assert spans(find(flags, edges=lambda *_: [(moment(0), moment(1)), (moment(3), moment(6))])) == [
        (1, 1),
        (3, 4),
    ]


FLAGS = st.lists(st.sampled_from([0, 0, 0, 1, None]), max_size=60)


@settings(deadline=None)
@given(FLAGS, st.integers(0, 6))
def test_events_equal_those_of_the_slow_twin(flags, merge):
    score = np.array([np.nan if f is None else f for f in flags], dtype=np.float32)
    status = ["no_data" if f is None else "ok" for f in flags]
    found = find(score, merge=merge, status=status, interval=MINUTE)
    assert spans(found) == oracle.event_spans([bool(f) for f in flags], merge)
    assert len({e.event_id for e in found}) == len(found)


# -- nights --

PER_DAY = 24
HOUR = timedelta(hours=1)


class Shelf:
    """The smallest score and event store: rows by time, events by date."""

    def __init__(self) -> None:
        self.rows = {}
        self.events = {}
        self.reads = 0

    def write(self, rows: ScoredRows) -> None:
        for i, moment in enumerate(rows.ts):
            self.rows[moment] = tuple(column[i] for column in rows.columns())

    def read(self, start: datetime, end: datetime) -> ScoredRows:
        self.reads += 1
        start, end = (np.datetime64(t.replace(tzinfo=None), "us") for t in (start, end))
        found = [self.rows[t] for t in sorted(self.rows) if start <= t < end]
        return ScoredRows(*map(np.array, zip(*found, strict=True))) if found else ScoredRows.none()

    def settle(
        self, rows: ScoredRows, merge: int, longest: timedelta | None = None, edges: Edges | None = None
    ) -> None:
        done = settle(
            rows, self.read, sensor="s", merge=merge, interval=HOUR, step=timedelta(hours=7), longest=longest,
            edges=edges,
        )  # fmt: skip
        self.settled = done
        stored = [e for day in self.events.values() for e in day]
        for day in done.dates(stored):
            kept = [e for e in self.events.get(day, []) if not done.replaces(e)]
            self.events[day] = sorted(
                [*kept, *(e for e in done.events if e.date == day)], key=lambda e: e.start
            )

    def all(self) -> list:
        return [e for day in sorted(self.events) for e in self.events[day]]


def rows_of(flags, first: int, statuses) -> ScoredRows:
    ts = START + (first + np.arange(len(flags))) * np.timedelta64(HOUR)
    # over the threshold by much, or by so little that only a row unlike the history makes an event of it
    size = np.where((first + np.arange(len(flags))) % 7 == 0, 1.0, 0.6)
    score = (np.asarray(flags) * size).astype(np.float32)
    return ScoredRows(
        ts,
        score,
        np.asarray(statuses, dtype="<U11"),
        np.full(score.size, 0.5, np.float32),
        np.ones(score.size, int),
    )


@st.composite
def nights(draw):
    """Final flags of several nights in bursts, and what the provisional tail of each night looked like."""
    days = draw(st.integers(1, 5))
    flags = []
    while len(flags) < days * PER_DAY:
        flags += [draw(st.booleans())] * draw(st.integers(1, 40))
    flags = np.array(flags[: days * PER_DAY], dtype=bool)
    tail = draw(st.integers(0, 8))
    tails = [draw(st.lists(st.booleans(), min_size=tail, max_size=tail)) for _ in range(days)]
    longest = draw(st.sampled_from([None, timedelta(hours=5), timedelta(hours=24), timedelta(hours=31)]))
    return flags, tail, tails, draw(st.integers(0, 6)), longest


def night_rows(flags, tail, tails, night) -> ScoredRows:
    """What the run of one night writes: the tail of the night before, finished, and the night itself."""
    first = max(0, night * PER_DAY - tail)
    last = (night + 1) * PER_DAY
    values = flags[first:last].copy()
    statuses = np.full(last - first, "ok", dtype="<U11")
    if tail:
        values[-tail:] = tails[night]
        statuses[-tail:] = "provisional"
    return rows_of(values, first, statuses)


@settings(max_examples=60, deadline=None)
@given(nights())
def test_nightly_runs_and_one_backfill_give_the_same_events(case):
    flags, tail, tails, merge, longest = case
    days = flags.size // PER_DAY
    nightly, backfill = Shelf(), Shelf()
    for night in range(days):
        rows = night_rows(flags, tail, tails, night)
        nightly.write(rows)
        nightly.settle(rows, merge, longest)
    whole = flags.copy()
    statuses = np.full(flags.size, "ok", dtype="<U11")
    if tail:
        whole[-tail:], statuses[-tail:] = tails[-1], "provisional"
    rows = rows_of(whole, 0, statuses)
    backfill.write(rows)
    backfill.settle(rows, merge, longest)
    assert nightly.all() == backfill.all()
    uncut = oracle.event_spans(whole.tolist(), merge)
    if longest is not None:
        every = max(round(longest / HOUR), 2 * (merge + 1))
        zero = int(START.astype("datetime64[h]").astype(int))
        uncut = oracle.cut_spans(uncut, whole.tolist(), merge, every, zero)
    assert spans_in_hours(nightly.all()) == uncut


def test_a_stretch_like_the_history_is_an_event_only_if_its_score_is_clearly_over_the_threshold():
    near, clear = [0, 0.6, 0.64, 0], [0, 0.6, 0.66, 0]  # the threshold is 0.5
    nothing = {"edges": lambda *_: []}
    assert find(near, **nothing) == []
    assert spans(find(near)) == spans(find(clear, **nothing)) == [(1, 2)]
    assert spans(find(near, edges=lambda *_: [(moment(2), moment(2))])) == [(2, 2)]


def looking_ahead(faulty: np.ndarray, known: int, ahead: int) -> Edges:
    """Edges as the second look gives them: by values up to `ahead` rows later, if there are any."""

    def edges(start: datetime, end: datetime, version: int | None):
        first, last = (round((t - datetime(2026, 3, 1, tzinfo=UTC)) / HOUR) for t in (start, end))
        seen = faulty[:known]
        rows = [row for row in range(first, last + 1) if seen[row : row + ahead + 1].sum() > ahead // 2]
        spans = oracle.event_spans([row in rows for row in range(last + 1)], 1)
        return [tuple(datetime(2026, 3, 1, tzinfo=UTC) + row * HOUR for row in span) for span in spans]

    return edges


@settings(max_examples=60, deadline=None)
@given(nights(), st.integers(0, 2**32 - 1), st.data())
def test_nightly_runs_a_rerun_and_a_backfill_give_the_same_edges(case, seed, data):
    flags, tail, tails, merge, longest = case
    faulty = np.random.default_rng(seed).random(flags.size) < 0.5
    ahead = data.draw(st.integers(0, tail))
    nightly, backfill = Shelf(), Shelf()
    for night in range(flags.size // PER_DAY):
        rows = night_rows(flags, tail, tails, night)
        nightly.write(rows)
        nightly.settle(rows, merge, longest, looking_ahead(faulty, (night + 1) * PER_DAY, ahead))
    whole, statuses = flags.copy(), np.full(flags.size, "ok", dtype="<U11")
    if tail:
        whole[-tail:], statuses[-tail:] = tails[-1], "provisional"
    rows = rows_of(whole, 0, statuses)
    backfill.write(rows)
    backfill.settle(rows, merge, longest, looking_ahead(faulty, flags.size, ahead))
    assert nightly.all() == backfill.all()
    # an old night again, which now sees the values of the nights after it
    night = data.draw(st.integers(0, flags.size // PER_DAY - 1))
    first = night * PER_DAY
    again = rows_of(whole[first : first + PER_DAY], first, statuses[first : first + PER_DAY])
    nightly.settle(again, merge, longest, looking_ahead(faulty, flags.size, ahead))
    assert nightly.all() == backfill.all()
    assert len({event.event_id for event in nightly.all()}) == len(nightly.all())


@settings(max_examples=60, deadline=None)
@given(nights(), st.data())
def test_scoring_an_old_night_again_leaves_the_events_of_its_new_rows_only(case, data):
    flags, tail, tails, merge, longest = case
    shelf = Shelf()
    for night in range(flags.size // PER_DAY):
        rows = night_rows(flags, tail, tails, night)
        shelf.write(rows)
        shelf.settle(rows, merge, longest)
    night = data.draw(st.integers(0, flags.size // PER_DAY - 1))
    again = data.draw(st.lists(st.booleans(), min_size=PER_DAY, max_size=PER_DAY))
    rows = rows_of(again, night * PER_DAY, ["ok"] * PER_DAY)
    shelf.write(rows)
    shelf.settle(rows, merge, longest)
    stored = shelf.read(datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    expected = find_events(
        *stored.columns()[:4], sensor="s", merge=merge, interval=HOUR, version=stored.version, longest=longest
    )
    assert shelf.all() == expected
    before = shelf.all()
    shelf.settle(rows, merge, longest)
    assert shelf.all() == before


def spans_in_hours(events) -> list[tuple[int, int]]:
    zero = datetime(2026, 3, 1, tzinfo=UTC)
    return [(round((e.start - zero) / HOUR), round((e.end - zero) / HOUR)) for e in events]


def test_an_event_across_midnight_keeps_its_id_and_its_first_date():
    flags = np.zeros(2 * PER_DAY, dtype=bool)
    flags[20:30] = True
    shelf = Shelf()
    for night in range(2):
        rows = rows_of(flags[night * 24 : night * 24 + 24], night * 24, ["ok"] * 24)
        shelf.write(rows)
        shelf.settle(rows, merge=2)
        (event,) = shelf.all()
        assert event.date == date(2026, 3, 1)
        assert event.event_id == event_id("s", datetime(2026, 3, 1, 20, tzinfo=UTC))
    assert event.length == 10


def test_a_quiet_night_reads_no_further_than_it_must():
    shelf = Shelf()
    shelf.write(rows_of(np.zeros(30 * 24, dtype=bool), 0, ["ok"] * 720))
    shelf.reads = 0
    shelf.settle(rows_of(np.zeros(24, dtype=bool), 720, ["ok"] * 24), merge=3)
    assert shelf.reads == 2  # once back, once forward


def test_a_known_explanation_is_kept_while_the_peak_stays_the_same():
    old = find([0, 1, 0, 0, 0, 0])[0].explained(["flow", "heat"], "level")
    grown = find([0, 1, 1, 0, 0, 0])
    carried, to_do = carry_over(grown, [old])
    assert carried[0].channels == ("flow", "heat")
    assert carried[0].cause == "level"
    assert to_do == []
    higher = find([0, 1, 2, 0, 0, 0])
    assert carry_over(higher, [old]) == (higher, higher)


def test_a_sensor_in_alarm_for_months_is_settled_without_reading_them():
    shelf = Shelf()
    alarm = np.ones(90 * 24, dtype=bool)
    shelf.write(rows_of(alarm, 0, ["ok"] * alarm.size))
    tonight = rows_of(alarm[:24], alarm.size, ["ok"] * 24)
    shelf.write(tonight)
    shelf.reads = 0
    shelf.settle(tonight, merge=3, longest=timedelta(days=2))
    assert shelf.reads < 20  # of seven hours each
    assert [e.length for e in shelf.all()][:-1] == [48] * (len(shelf.all()) - 1)
