"""One way to write a length of time, in the fleet file and in a catalog; one rule for a fleet's name."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.settings.fleet_file import Settings
from paano.errors import ConfigError
from storage.duration import parse, spell
from storage.history.catalog import parse_interval
from storage.keys import check_fleet


@pytest.mark.parametrize("text", ["5m", "5min", "300s", " 5 m "])
def test_minutes_are_minutes_in_the_fleet_file_and_in_a_catalog(text):
    assert parse(text) == parse_interval(text) == timedelta(minutes=5)
    made = Settings.from_dict({"history": {"interval": text}})
    assert made.history.interval == timedelta(minutes=5)


@given(st.timedeltas(min_value=timedelta(0)))
def test_a_length_that_was_spelled_is_read_back(length):
    assert parse(spell(length)) == length


@pytest.mark.parametrize("text", ["often", "-5", "5 parsecs", "", "1e3s", "99999999999999w", None, 5])
def test_what_is_no_length_of_time_is_refused_with_the_way_to_write_one(text):
    with pytest.raises(ValueError, match=r"such as|longer than"):
        parse(text)


def test_a_number_alone_is_seconds_in_a_catalog():
    assert parse_interval(30) == parse_interval("30") == timedelta(seconds=30)
    with pytest.raises(ConfigError, match="seconds"):
        parse_interval("often")


@pytest.mark.parametrize("name, good", [("a" * 63, True), ("a" * 64, False), ("", False), ("-a", False)])
def test_the_fleet_file_and_the_registry_take_the_same_names(name, good):
    for check in (check_fleet, lambda text: Settings.from_dict({"fleet": {"name": text}})):
        if good:
            check(name)
        else:
            with pytest.raises(ConfigError, match=r"fleet\.name"):
                check(name)
