"""Facts of a model: read by type, refused by name, written as they came."""

import json
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paano import PaAno
from paano.errors import ArtifactError
from paano.facts import CHECKS, ModelFacts

GOOD = {
    "channel_names": ["flow", "power"],
    "data_digest": "29d6bb13b895afcbc2a24b494aed159c",
    "interval_seconds": 300.0,
    "kind": "trained",
    "sensor": "pump-01",
    "window_end": "2026-01-20T00:00:00+00:00",
    "window_start": "2026-01-05T00:00:00+00:00",
}
START = datetime(2026, 1, 5, tzinfo=UTC)


def test_facts_have_types_and_are_written_as_they_came():
    facts = ModelFacts(GOOD)
    assert facts.sensor == "pump-01" and facts.kind == "trained"
    assert facts.interval == timedelta(minutes=5) and facts.interval_seconds == 300.0
    assert facts.channel_names == ("flow", "power")
    assert facts.window_start == START and facts.window_end == START + timedelta(days=15)
    assert facts == GOOD and json.dumps(facts.to_dict(), sort_keys=True) == json.dumps(GOOD, sort_keys=True)
    made = ModelFacts.of(
        sensor="pump-01",
        kind="trained",
        interval=timedelta(minutes=5),
        channel_names=("flow", "power"),
        window_start=START,
        window_end=START + timedelta(days=15),
        data_digest=GOOD["data_digest"],
    )
    assert made == facts and made.to_dict() == GOOD


@pytest.mark.parametrize("name", sorted(set(CHECKS) - {"longest_repeats"}))
def test_a_missing_fact_is_named_where_it_is_needed(name):
    facts = ModelFacts({key: value for key, value in GOOD.items() if key != name})
    with pytest.raises(ArtifactError, match=rf"facts\.{name} is missing"):
        getattr(facts, name)
    assert facts.get(name) is None


def test_a_model_made_before_repeats_were_counted_has_no_longest_repeats():
    assert ModelFacts(GOOD).longest_repeats is None
    assert ModelFacts({**GOOD, "longest_repeats": [12, 0]}).longest_repeats == (12, 0)


WRONG = {
    "sensor": ["", 5, None, "x" * 5000],
    "kind": ["", True, ["trained"]],
    "interval_seconds": [0, -1, True, "300", None, math.nan, math.inf, 1e12, 10**400],
    "channel_names": ["flow", [], [1], {"a": 1}, [""]],
    "window_start": ["yesterday", "2026-01-05T00:00:00", 0, "2027-01-01T00:00:00+00:00"],
    "window_end": ["", None, "2026-13-05T00:00:00+00:00"],
    "data_digest": [None, 12],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in WRONG.items() for v in values])
def test_a_fact_that_cannot_be_is_refused_by_its_name(name, value):
    with pytest.raises(ArtifactError, match=rf"facts\.{name}"):
        ModelFacts({**GOOD, name: value})


TEXT = st.text("ab0129-:T+Z", max_size=12)  # all letters there are take seconds to prepare
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*CHECKS, "n"]), JSON))
def test_any_json_is_either_facts_or_refused(entries):
    try:
        facts = ModelFacts(entries)
    except ArtifactError as error:
        assert "facts." in str(error)
        return
    for name in CHECKS:
        if name in entries:
            getattr(facts, name)


def test_entries_of_ones_own_are_kept_and_none_are_needed(small, wave, tmp_path):
    model = PaAno(small.replace(iterations=0), "cpu").fit(wave)
    model.save(tmp_path / "none")
    assert PaAno.load(tmp_path / "none", "cpu").facts == {}
    model.save(tmp_path / "own", facts={"figures": [1, None], "sensor": "a"})
    loaded = PaAno.load(tmp_path / "own", "cpu")
    assert loaded.facts == {"figures": [1, None], "sensor": "a"} and loaded.facts.sensor == "a"
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again/model.json").read_bytes() == (tmp_path / "own/model.json").read_bytes()


def test_a_model_names_as_many_channels_as_it_has(small, wave, tmp_path):
    model = PaAno(small.replace(iterations=0), "cpu").fit(wave)
    model.save(tmp_path / "m", facts=GOOD)
    with pytest.raises(ArtifactError, match=r"facts\.channel_names has 2 names for 1 channels"):
        PaAno.load(tmp_path / "m", "cpu")


@pytest.mark.parametrize(
    "losses", [{}, [5], [{"loss": 1.0}], [{"loss": "1", "contrast": 0, "pretext": 0, "weight": 0}]], ids=str
)
def test_losses_that_are_none_are_refused(losses, small, wave, tmp_path):
    PaAno(small, "cpu").fit(wave).save(tmp_path / "m")
    stored = json.loads((tmp_path / "m/model.json").read_text())
    (tmp_path / "m/model.json").write_text(json.dumps({**stored, "losses": losses}))
    with pytest.raises(ArtifactError, match="losses"):
        PaAno.load(tmp_path / "m", "cpu")
