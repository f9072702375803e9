"""What people know and said of a fleet, as one run sees it: its calendar and its verdicts, each read once.

A calendar that is damaged, or whose store does not answer, mutes nothing: a shutdown that is half known must
alarm, not hide. Nothing is learned meanwhile, because what must not be learned from is then unknown.
"""

from __future__ import annotations

import functools

import polars as pl

from flows.settings.fleet_file import Settings
from paano.errors import ConfigError, PaanoError, StorageError, Transient
from storage.objects.store import StorageOptions, open_store
from storage.operations.calendar import Calendar
from storage.operations.verdicts import VerdictStore
from storage.window import Window


class Known:
    """The calendar and the verdicts of a fleet, read when they are first asked for."""

    def __init__(self, settings: Settings, options: StorageOptions) -> None:
        self.settings, self.options = settings, options

    @functools.cached_property
    def _calendar(self) -> Calendar | PaanoError:
        place = self.settings.place(self.settings.operations.calendar)
        try:
            return Calendar.read(place, self.options, self.settings.zone)
        except (ConfigError, StorageError, Transient) as error:
            return error

    @property
    def problem(self) -> str:
        """Why the calendar cannot be used; empty if it can, or if there is none."""
        return str(self._calendar) if isinstance(self._calendar, PaanoError) else ""

    @property
    def calendar(self) -> Calendar:
        """The known periods.

        Raises:
            ConfigError: the calendar is damaged or has a wrong row.
            StorageError, Transient: its store refuses it or does not answer.
        """
        if isinstance(self._calendar, PaanoError):
            raise self._calendar
        return self._calendar

    def muted(self, sensor: str, group: str | None, window: Window) -> list[Window]:
        """Stretches of `window` in which `sensor` makes no event; none where the calendar cannot be read."""
        return [] if self.problem else self.calendar.muted(sensor, group, window)

    @functools.cached_property
    def verdicts(self) -> pl.DataFrame:
        """The newest verdict on each event or stretch.

        Raises:
            StorageError: an object of the table is damaged; the message names it.
        """
        place = self.settings.place(self.settings.operations.verdicts)
        return VerdictStore(open_store(place, self.options)).latest()
