from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from paano.errors import ConfigError
from storage.window import Window

DAY = date(2026, 3, 1)


def test_a_window_is_in_utc_whatever_zone_it_was_given_in():
    east = timezone(timedelta(hours=5))
    window = Window(datetime(2026, 3, 1, 5, tzinfo=east), datetime(2026, 3, 2))
    assert window == Window.day(DAY)


def test_a_window_touches_every_date_it_holds_a_moment_of():
    window = Window(datetime(2026, 2, 28, 23, 59, 59), datetime(2026, 3, 2))
    assert window.days() == [date(2026, 2, 28), date(2026, 3, 1)]


def test_a_window_that_ends_at_midnight_does_not_touch_the_next_date():
    assert Window.day(DAY).days() == [DAY]


def test_a_window_must_end_after_it_starts():
    with pytest.raises(ConfigError, match="must end after"):
        Window(datetime(2026, 3, 1), datetime(2026, 3, 1))


def test_a_window_survives_its_dictionary():
    window = Window.day(DAY).widen(timedelta(minutes=3), timedelta(hours=1))
    assert Window.from_dict(window.to_dict()) == window
    assert window.start == datetime(2026, 2, 28, 23, 57, tzinfo=UTC)


def test_windows_have_in_common_what_both_hold():
    first, second = Window.day(DAY, 2), Window.day(DAY + timedelta(days=1), 2)
    assert first.common(second) == Window.day(DAY + timedelta(days=1))
    assert Window.day(DAY).common(Window.day(DAY + timedelta(days=1))) is None
