"""Looking at a fleet asks the registry for all models at once, however many there are."""

from __future__ import annotations

from collections import Counter
from datetime import date

import fleets
import polars as pl
import pytest

from flows.pages.review.needs_review import Why, needs_review
from flows.pages.views import sensors, status
from flows.run.fleet import open_fleet
from paano import PaAno
from paano.errors import RegistryUnavailable
from storage.registry.client import RegistryClient
from storage.registry.lookup import FEW
from storage.registry.registry import CHALLENGER, CHAMPION
from storage.window import Window
from tests.storage import made

READS = ("models", "model", "version", "versions", "every_version")
DAY = date.fromisoformat(fleets.night(1))


@pytest.fixture(scope="module")
def growing(tmp_path_factory):
    """A function: the fleet with so many sensors, each with champion, challenger and a night of scores."""
    fleet = fleets.make(tmp_path_factory.mktemp("many") / "fleet", sensors=0)
    model = PaAno(fleet.settings.config(), device="cpu").fit(fleets.signal(0, 200))
    model.save(fleet.settings.folder / "model", facts={"channel_names": ["c0"]})
    names: list[str] = []

    def grow(count: int):
        for number in range(len(names), count):
            names.append(f"s{number:02d}")
            fleets.write_sensor(fleet.settings, names[-1], fleets.signal(number, 96))
            for alias in (CHAMPION, CHALLENGER):
                fleet.registry.register(names[-1], fleet.settings.folder / "model", alias=alias)
        fleet.scores.update(pl.concat([made.scores(name, DAY) for name in names]), Window.day(DAY))
        return open_fleet(fleet.settings)

    return grow


@pytest.fixture
def asked(monkeypatch):
    """How often each question was put to the registry."""
    calls: Counter[str] = Counter()

    def counted(name):
        real = getattr(RegistryClient, name)

        def ask(self, *arguments, **named):
            calls[name] += 1
            return real(self, *arguments, **named)

        return ask

    for name in (*READS, "call"):
        monkeypatch.setattr(RegistryClient, name, counted(name))
    return calls


@pytest.mark.parametrize("look", [needs_review, status, sensors], ids=lambda look: look.__name__)
def test_one_search_of_the_registry_serves_any_number_of_sensors(growing, asked, look):
    for count in (FEW + 2, 2 * FEW + 4):
        fleet = growing(count)
        asked.clear()
        found = look(fleet)
        assert asked == {"models": 1}, f"{count} sensors: {asked}"
    if look is needs_review:
        waiting = [row.sensor for row in found if row.why is Why.WAITS]
        assert len(waiting) == count, "each of them was looked at"


def test_status_of_a_registry_that_is_away_is_what_was_last_seen_also_where_no_challenger_ever_was(
    tmp_path, monkeypatch
):
    fleet = fleets.make(tmp_path / "fleet", sensors=1)
    model = PaAno(fleet.settings.config(), device="cpu").fit(fleets.signal(0, 200))
    model.save(tmp_path / "model", facts={"channel_names": ["c0"]})
    fleet.registry.register("s00", tmp_path / "model", alias=CHAMPION)

    def away(*_, **__):
        raise RegistryUnavailable("s00: the registry did not answer")

    for name in (*READS, "call"):
        monkeypatch.setattr(RegistryClient, name, away)
    facts = status(open_fleet(fleet.settings))
    assert facts["without_model"] == 0 and facts["waiting_for_review"] == 0
    assert facts["registry"].startswith("away, models as of ")
