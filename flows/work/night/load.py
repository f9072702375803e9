"""What a night needs before anything is computed: the champions of its sensors and their history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from os import PathLike
from pathlib import Path

from flows.run.fleet import Fleet, pinned_intervals
from flows.work.alarm_rule import AlarmRule, alarm_rule
from paano import PaAno
from paano.errors import PaanoError, Transient
from storage.history.reader import Reading
from storage.registry.registry import Version
from storage.window import Window

NONE = timedelta(0)


@dataclass(frozen=True)
class Champion:
    """A loaded model with what scoring needs to know of its version."""

    version: Version
    model: PaAno
    interval: timedelta
    rule: AlarmRule

    @property
    def context(self) -> timedelta:
        """How far the data of a moment reaches: rows further away do not depend on it."""
        return self.model.config.context * self.interval

    def reach(self, window: Window) -> Window:
        """The history that gives exact rows in `window` and one context before and after it."""
        return window.widen(2 * self.context, 2 * self.context)


Champions = dict[str, Champion | PaanoError]
Readings = dict[str, Reading | PaanoError]


def load_champions(fleet: Fleet, sensors: Sequence[str], versions: Mapping[str, Version]) -> Champions:
    """The loaded champion, or what is wrong with it, for each sensor that has one.

    Raises:
        Transient: the registry or its store does not answer.
    """
    return open_champions(fleet, fetch_champions(fleet, sensors, versions), versions)


Folders = Mapping[str, Path | PaanoError]


def fetch_champions(fleet: Fleet, sensors: Sequence[str], versions: Mapping[str, Version]) -> Folders:
    """The local folder of each champion, or what is wrong with it."""
    return fleet.registry.fetch_many(versions[sensor] for sensor in sensors if sensor in versions)


def open_champions(fleet: Fleet, folders: Folders, versions: Mapping[str, Version]) -> Champions:
    """The champions in `folders`; Transient as `load_champions`."""
    found: Champions = {}
    for sensor, folder in folders.items():
        if isinstance(folder, Transient):
            raise folder
        try:
            found[sensor] = (
                folder if isinstance(folder, PaanoError) else open_champion(fleet, versions[sensor], folder)
            )
        except PaanoError as error:
            found[sensor] = error
    return found


def open_champion(fleet: Fleet, version: Version, folder: str | PathLike[str]) -> Champion:
    """The model in `folder` as the champion `version`.

    Raises:
        ArtifactError: the files are not what they should be.
    """
    settings = fleet.settings_for(version.sensor)
    model = PaAno.load(folder, device=settings.run.device)
    interval = model.facts.interval
    rule = alarm_rule(settings, version.sensor, model.calibration, interval)
    return Champion(version, model, interval, rule)


def load_night(
    fleet: Fleet,
    window: Window,
    sensors: Sequence[str],
    versions: Mapping[str, Version],
    loaded: Champions | None = None,
) -> tuple[Champions, Readings]:
    """Champions and readings of `sensors` for `window`, the models fetched beside the history.

    How much history a sensor needs is taken from the tags of its version; where the model turns out to need
    more, or another interval, its history is read again. `loaded` are champions that are open already.

    Raises:
        Transient: a store does not answer.
    """
    with ThreadPoolExecutor(1) as pool:
        # They are opened by this thread: memory of a thread that ends is not used again soon.
        waiting = None if loaded else pool.submit(fetch_champions, fleet, sensors, versions)
        guess = {s: need for s in sensors if (need := expected_need(fleet, versions.get(s)))}
        if loaded:
            guess = {s: Need.of(known) for s, known in loaded.items() if isinstance(known, Champion)}
        early = read_together(fleet, window, {s: need for s, need in guess.items() if s in sensors})
        champions = loaded or (open_champions(fleet, waiting.result(), versions) if waiting else {})
    needs: dict[str, Need] = {}
    pinned = pinned_intervals(fleet)
    readings: Readings = {}
    for sensor in sensors:
        known = champions.get(sensor)
        if isinstance(known, PaanoError):
            readings[sensor] = known
        elif known is None:
            lookback = fleet.settings_for(sensor).history.lookback
            needs[sensor] = Need(lookback, NONE, pinned.get(sensor))
        else:
            expected, need = guess.get(sensor), Need.of(known)
            # A model keeps its channels: a column that came later, or that only rises now, is not read.
            if expected and expected.covers(need) and _channels(early[sensor]) in (None, need.channels):
                readings[sensor] = early[sensor]
            else:
                needs[sensor] = need
    readings |= read_together(fleet, window, needs)
    return champions, readings


@dataclass(frozen=True)
class Need:
    """How much history a sensor needs around a window, on which grid and of which channels.

    None: the interval is inferred, the channels are what the settings name or what is found.
    """

    before: timedelta
    after: timedelta
    interval: timedelta | None
    channels: tuple[str, ...] | None = None

    @classmethod
    def of(cls, champion: Champion) -> Need:
        """What an open champion needs: two contexts on either side."""
        channels = champion.model.facts.channel_names
        return cls(2 * champion.context, 2 * champion.context, champion.interval, channels)

    def covers(self, other: Need) -> bool:
        """Whether a reading for this need does for the other."""
        return self.interval == other.interval and self.before >= other.before and self.after >= other.after


def _channels(reading: Reading | PaanoError) -> tuple[str, ...] | None:
    return tuple(reading.channels) if isinstance(reading, Reading) else None


def expected_need(fleet: Fleet, version: Version | None) -> Need | None:
    """What the champion will need, as far as its tags and the settings tell."""
    interval = version.parsed.interval if version else None
    if interval is None:
        return None
    around = 2 * fleet.settings.config().context * interval
    return Need(around, around, interval)


def read_together(fleet: Fleet, window: Window, needs: Mapping[str, Need]) -> Readings:
    """The history each sensor needs; sensors that need the same are read together.

    Raises:
        Transient: the store does not answer.
    """
    groups: dict[Need, list[str]] = {}
    for sensor, need in needs.items():
        groups.setdefault(need, []).append(sensor)
    readings: Readings = {}
    for need, members in groups.items():
        intervals = dict.fromkeys(members, need.interval) if need.interval else None
        channels = dict.fromkeys(members, need.channels) if need.channels else None
        wide = window.widen(need.before, need.after)
        readings |= fleet.history.read_many(members, wide, intervals, channels=channels)
    for reading in readings.values():
        if isinstance(reading, Transient):
            raise reading
    return readings
