"""Which objects hold a sensor's rows, listed once for everything that a run asks.

A night asks three times: what there is before it reads, what to read, and which past days have changed. And
where all sensors are asked for, one listing of the whole history takes a request for a thousand objects
instead of one for each sensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from paano.errors import HistoryError, StorageError
from storage.history import paths
from storage.history.layout import Found, HistoryLayout
from storage.history.paths import is_parquet
from storage.objects.store import Store
from storage.window import Window

WORKERS = 8  # folders listed at once
LEFT_OUT = timedelta(days=100)  # of dates before a window: fewer are listed faster than they are left out
Listed = tuple[Window, list[Found]]  # in which time, and what was found


class Listing:
    """The objects of a history. What `ahead` has listed is not asked for again."""

    def __init__(self, store: Store, layout: HistoryLayout) -> None:
        self.store, self.layout = store, layout
        self._kept: dict[str | None, Listed] = {}

    def objects(self, sensor: str | None, window: Window) -> list[Found]:
        """The objects that may hold rows of `window`, as `HistoryLayout.objects` gives them."""
        if not self._covers(sensor, window):
            return self.layout.objects(self.store, sensor, window)
        span = self.layout.span(window)
        return [one for one in self._kept[sensor][1] if paths.overlaps(one.key, span)]

    def by_window(self, sensor: str | None, windows: Sequence[Window]) -> list[list[Found]]:
        """`objects` for each window; one listing for all of them where a sensor's path holds no date."""
        if self.layout.dated or not windows:
            return [self.objects(sensor, window) for window in windows]
        whole = Window(min(window.start for window in windows), max(window.end for window in windows))
        every = [(one, paths.span_of(one.key)) for one in self.objects(sensor, whole)]
        spans = [self.layout.span(window) for window in windows]
        return [[one for one, held in every if held is None or held.common(span)] for span in spans]

    def ahead(self, sensors: Iterable[str], window: Window, known: int) -> None:
        """List now what will be asked of `sensors` within `window`, and keep it; what is kept already stays.

        A sensor that has nothing there, or something that is refused, is listed again when it is asked for.

        Args:
            known: how many sensors the history has; if most of them are asked for, all is listed together.
        """
        layout = self.layout
        names = [sensor for sensor in sensors if not self._covers(sensor, window)]
        if layout.kind == "long":
            if not self._covers(None, window):
                self._keep(None, window, layout.objects(self.store, None, window))
        elif not layout.dated and not is_parquet(layout.path):
            if 2 * len(names) >= known:
                for sensor, found in self._whole(names, window).items():
                    self._keep(sensor, window, found)
            else:
                with ThreadPoolExecutor(WORKERS) as pool:
                    list(pool.map(lambda sensor: self._one(sensor, window), names))

    def kept(self) -> dict[str, Listed]:
        """What was listed ahead of sensors with folders of their own, to be handed to another process."""
        return {sensor: listed for sensor, listed in self._kept.items() if sensor is not None}

    def take(self, listed: Mapping[str, Listed]) -> None:
        """Keep what another process has listed."""
        self._kept.update(listed)

    def _covers(self, sensor: str | None, window: Window) -> bool:
        span, kept = self.layout.span(window), self._kept.get(sensor)
        return kept is not None and kept[0].start <= span.start and span.end <= kept[0].end

    def _keep(self, sensor: str | None, window: Window, found: list[Found]) -> None:
        if found:
            self._kept[sensor] = self.layout.span(window), found

    def _one(self, sensor: str, window: Window) -> None:
        try:
            self._keep(sensor, window, self.layout.objects(self.store, sensor, window))
        except (HistoryError, StorageError):
            self._kept.pop(sensor, None)  # whoever reads this sensor gets the error

    def _whole(self, names: Iterable[str], window: Window) -> dict[str, list[Found]]:
        """The objects of many sensors by one listing of all."""
        layout, span = self.layout, self.layout.span(window)
        depth = layout.path.count("/") + 1
        folders = {paths.of_sensor(layout.path, sensor): sensor for sensor in names}
        found: dict[str, list[Found]] = {sensor: [] for sensor in folders.values()}
        before, far = (f"date={span.start.date() - gap}" for gap in (timedelta(days=1), LEFT_OUT))

        def skip(key: str) -> str:
            """The day before the window, of a sensor whose dates of long before are listed."""
            *parts, _ = key.split("/")
            # What lies between two folders `date=…` are dates between them.
            dated = len(parts) > depth and paths.IN_DATE.fullmatch(parts[depth])
            return "/".join([*parts[:depth], before]) if dated and parts[depth] < far else ""

        for info in self.store.list(layout.base, skip):
            *parts, _ = info.key.split("/")
            sensor = folders.get("/".join(parts[:depth]))
            if sensor is None or not is_parquet(info.key):
                continue
            if paths.not_dates(parts[depth:]) is not None:
                found.pop(sensor, None)  # too deep: it is refused when it is read
            elif sensor in found and paths.overlaps(info.key, span):
                found[sensor].append(Found.of(info))
        return found
