"""Where a page stands, and so where its links lead: in the live view, or as a file beside others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from urllib.parse import quote, urlencode


@dataclass(frozen=True)
class Place:
    """The links of a page. An empty link means that there is nothing to lead to."""

    live: bool = False
    base: str = ""  # of the live view, as http://127.0.0.1:8750; empty: links within it
    written: frozenset[str] = frozenset()  # sensors whose page is a file beside the report
    folder: str = "sensors"  # of these files, relative to the report

    @classmethod
    def file(cls) -> Place:
        """A page that is a file on its own."""
        return cls()

    def sensor(self, sensor: str, first: date | None = None, last: date | None = None) -> str:
        """The page of a sensor, for the days from `first` to `last`."""
        if self.live or self.base:
            days = {"since": first, "until": last}
            query = {"id": sensor, **{name: str(day) for name, day in days.items() if day}}
            return f"{self.base}/sensor?{urlencode(query)}"
        return f"{self.folder}/{quote(file_name(sensor))}" if sensor in self.written else ""

    def night(self, day: date) -> str:
        return f"{self.base}/night?day={day}" if self.live or self.base else ""

    def overview(self, days: int, last: date | None = None) -> str:
        until = f"&until={last}" if last else ""
        return f"{self.base}/overview?days={days}{until}" if self.live or self.base else ""

    def group(
        self, group: str, sensors: Iterable[str] = (), first: date | None = None, last: date | None = None
    ) -> str:
        """The sensors of a group, or those named, side by side."""
        which = [("name", group)] if group else [("id", sensor) for sensor in sensors]
        days = [(name, str(day)) for name, day in (("since", first), ("until", last)) if day]
        return f"{self.base}/group?{urlencode([*which, *days])}" if self.live or self.base else ""

    def sheet(self, sensor: str, version: int) -> str:
        """The review sheet of a version."""
        query = urlencode({"id": sensor, "version": version})
        return f"{self.base}/review/sheet?{query}" if self.live or self.base else ""

    def review(self) -> str:
        return f"{self.base}/review" if self.live or self.base else ""


def file_name(sensor: str) -> str:
    """A file name for the page of a sensor: readable, safe everywhere, another for every id."""
    mark = hashlib.sha256(sensor.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '_', sensor)[:60].strip('._') or 'sensor'}-{mark}.html"
