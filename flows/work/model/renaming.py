"""A sensor gets another id: its model is carried over, or the new one starts without a model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from flows.run.fleet import RENAMED_TO, Fleet
from flows.work.model.decisions import note_previous
from flows.work.model.training import open_model, save_version
from flows.work.model.version_facts import Kind, figures_of
from flows.work.operations import open_calendar
from paano.errors import ConfigError, RegistryError
from paano.facts import ModelFacts
from storage.keys import model_name
from storage.registry.registration import without_links
from storage.registry.registry import Version

RENAMED_FROM = "paano.renamed_from"
# What a version says of its own sensor, place and decisions: the new version has its own.
_OWN = {
    "sensor",
    "fleet",
    "digest",
    "kind",
    "recipe",
    "why",
    "previous",
    "review",
    "renamed_from",
    "renamed_to",
}


@dataclass(frozen=True)
class Renamed:
    """What a renaming did."""

    old: str
    new: str
    from_version: int  # the champion of the old id, which is kept
    version: int | None  # the champion of the new id; None: it starts without a model
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {
            "old": self.old,
            "new": self.new,
            "from_version": self.from_version,
            "version": self.version,
            "notes": self.notes,
        }


def rename_sensor(fleet: Fleet, old: str, new: str, fresh: bool = False) -> Renamed:
    """Carry the champion of `old` over to `new` as a version that says so; done again, it changes nothing.

    With `fresh` nothing is carried over. Everything of `old` stays in both cases: versions, scores, events.

    Raises:
        ConfigError: the ids are the same, `new` is not an id, or it has a trained champion of its own.
        RegistryError: `old` has no champion.
    """
    if old == new:
        raise ConfigError(f"{old!r} is the old and the new id: give two")
    model_name(fleet.registry.fleet, new)  # ConfigError for what cannot be an id
    champions = fleet.registry.champions([old, new])
    if champions.stale:
        raise RegistryError(f"{old} cannot be renamed while the registry is away: {champions.reason}")
    former, present = champions.get(old), champions.get(new)
    if former is None:
        raise RegistryError(
            f"{old}: there is no champion to carry over; `paano sensors` lists the models there are"
        )
    made: Version | None = None
    if not fresh:
        if present is not None and not _may_give_way(present, old):
            raise ConfigError(
                f"{new} has a champion of its own, version {present.version}, and keeps it; to begin "
                "with it, rename with --fresh"
            )
        made = _carry_over(fleet, former, new)
    fleet.registry.set_tags(former, {RENAMED_TO: new})
    return Renamed(old, new, former.version, made.version if made else None, _notes(fleet, old, new))


def _may_give_way(champion: Version, old: str) -> bool:
    """Whether it is the untrained model of a first night, or was carried over from `old` before."""
    return champion.parsed.kind == Kind.UNTRAINED or champion.tags.get(RENAMED_FROM) == old


def _carry_over(fleet: Fleet, former: Version, new: str) -> Version:
    model = open_model(fleet, former)
    # One that was never trained is due for training under the new id too.
    kind = Kind.UNTRAINED if model.facts.kind == Kind.UNTRAINED else Kind.RENAMED
    entries = {"sensor": new, "kind": str(kind), "renamed_from": former.sensor}
    facts = ModelFacts({**model.facts.to_dict(), **entries})
    tags = {
        name: value
        for name, value in former.tags.items()
        if name.startswith("paano.") and name.removeprefix("paano.") not in _OWN
    }
    said = f"renamed from {former.sensor}, version {former.version}"
    tags |= {"paano.kind": str(kind), "paano.why": said, RENAMED_FROM: former.sensor}
    text = f"Carried over from sensor `{former.sensor}`, version {former.version}, which is kept.\n\n"
    said_of = former.parsed
    figures = replace(
        figures_of(model, facts, fleet.settings_for(new)),
        vus_pr=said_of.vus_pr,
        faults=said_of.faults,
        alarms=said_of.alarms,
    )
    version = save_version(
        fleet,
        model,
        facts,
        tags,
        text + without_links(former.description),
        alias="",
        figures=figures,
        attachments=fleet.registry.attached(former),
    )
    note_previous(fleet, version)
    fleet.registry.set_champion(new, version.version)
    return version


def _notes(fleet: Fleet, old: str, new: str) -> list[str]:
    """What the person should know or do."""
    settings = fleet.settings
    notes = [
        f"scores, events and verdicts up to now stay under {old}; those of {new} begin with its next night"
    ]
    if new not in fleet.history.sensors():
        notes.append(f"there is no history of {new} yet")
    if old in fleet.history.sensors():
        notes.append(f"{old} is still in the history: as long as it is, it is scored too")
    if fleet.registry.challengers([old]):
        notes.append(f"a challenger of {old} waits; `paano review reject` turns it down")
    places = [f'[sensors."{old}"]'] * (old in settings.sensors)
    places += ["alarms.thresholds"] * (old in settings.alarms.thresholds)
    if places:
        notes.append(f"the fleet file names {old} in {' and '.join(places)}: change it to {new}")
    for period in open_calendar(settings).periods:
        if period.sensor == old:
            notes.append(f"the known period {period.id} is about {old}: `paano calendar add` one for {new}")
    return notes
