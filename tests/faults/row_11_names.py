"""Row 11: hostile names and settings, through the whole fleet and every place where they are shown."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl

from flows.pages.escape import one_line
from flows.run.fleet import open_fleet
from flows.settings.fleet_file import Settings
from paano.errors import PaanoError
from storage.history.paths import folder_of, sensor_of
from storage.history.reader import HistoryLayout, write_history
from tests.faults import fleet_work
from tests.faults.existing import run_tests
from tests.faults.processes import in_process
from tests.faults.tally import Row, Tally

START = fleet_work.fleets.START
NAMES = [
    "../../x",
    "..",
    "...",
    ".hidden",
    "/etc/passwd",
    "a/../../b",
    "a//b",
    "a\\..\\b",
    "C:\\x",
    "~root",
    "-rf",
    "--help",
    "a b",
    " lead",
    "trail ",
    "tab\tname",
    "new\nline",
    "carriage\rreturn",
    "bell\a",
    "esc\x1b[2J",
    "\x1b]0;title\x07",
    "‮right-to-left",
    "zero\u200bwidth",
    "ü",
    "u\u0308",
    "А-cyrillic",
    "A-latin",
    "ｆｕｌｌ",
    "㎏",
    "😀",
    "ſ",
    "İ",
    "x" * 300,
    "ü" * 150,
    "'",
    '"',
    "''; DROP TABLE x; --",
    "' OR '1'='1",
    "`tick`",
    "$(touch PWNED)",
    "a;b",
    "a|b",
    "a&b",
    "a>b",
    "<script>alert(1)</script>",
    "&amp;",
    "</script><img src=x onerror=alert(1)>",
    "[link](javascript:alert(1))",
    "![x](http://evil/x.png)",
    "| a | b |",
    "# heading",
    "**bold**",
    "[red]markup[/red]",
    "[/]",
    "[bold",
    "{}",
    "{0}",
    "{x.__class__}",
    "%s",
    "%(x)s",
    "%n",
    "100%",
    "_",
    "%25",
    "a%2Fb",
    "a=b",
    "date=2026-01-01",
    "con",
    "nul.parquet",
    "s00",
    "S00",
    "name.champion",
    "null",
    "None",
    "nan",
    "0",
    "1e9",
    "True",
]
SETTINGS = [
    {"fleet": {"name": name}}
    for name in ("", "..", "a/b", "a.b", "x" * 300, "a b", "'", "ü", "a\nb", "<b>", "{}", "%s", "-a", "\0")
] + [
    {"history": {"url": "scores"}, "scores": {"url": "scores"}},
    {"alarms": {"merge": "9999d"}},
    {"alarms": {"budget": float("nan")}},
    {"alarms": {"budget": float("inf")}},
    {"alarms": {"budget": -1}},
    {"fleet": {"timezone": "../../etc/passwd"}},
    {"fleet": {"timezone": "Mars/Olympus"}},
    {"fleet": {"seed": 10**30}},
    {"model": {"patch": 0}},
    {"model": {"patch": 10**9}},
    {"model": {"width": -1}},
    {"model": {"preset": "__import__('os')"}},
    {"history": {"lookback": "-1d"}},
    {"history": {"lookback": "1e400d"}},
    {"history": {"path": "{sensor.__class__}"}},
    {"history": {"path": "../{sensor}"}},
    {"history": {"largest_mb": 0}},
    {"run": {"workers": -1}},
    {"run": {"engine": "os.system"}},
    {"scores": {"url": "s3://key:secret@bucket/x"}},
    {"scores": {"shards": 10**9}},
    {"unknown": {"key": 1}},
    {"run": {"unknown": 1}},
]


def write_names(settings: Settings, names: list[str]) -> None:
    """A history for each of the names: a folder each, or all in long tables."""
    if settings.history.layout == "sensor":
        for number, name in enumerate(names):
            fleet_work.fleets.write_sensor(settings, name, fleet_work.signal(number % 2, 8))
        return
    parts = [fleet_work.signal(number % 2, 8)[:, 0] for number in range(len(names))]
    stamps = pl.datetime_range(
        START, interval="30m", end=START + timedelta(days=8), closed="left", eager=True
    )
    frame = pl.DataFrame(
        {
            "ts": pl.concat([stamps] * len(names)),
            "sensor": [name for name, values in zip(names, parts, strict=True) for _ in values],
            "c0": np.concatenate(parts),
        }
    )
    write_history(settings.place(settings.history.url), frame, HistoryLayout(kind="long"))


def score_names(folder: Path, layout: str, names: list[str]) -> tuple[dict[str, str], list[str], list[str]]:
    """Two nights of sensors with these names; outcomes, whom the registry knows, and what lies outside."""
    changes = {**fleet_work.CHANGES, "history": {**fleet_work.CHANGES["history"], "layout": layout}}
    settings = fleet_work.fleets.settings_of(folder / "fleet", **changes)
    fleet_work.fleets.new_registry(settings)
    write_names(settings, names)
    fleet = open_fleet(settings)
    outcomes = fleet_work.score(fleet, 5)
    outcomes = fleet_work.score(open_fleet(settings), 6)
    said = {outcome.sensor: outcome.text for outcome in outcomes}
    known = sorted(open_fleet(settings).registry.champions())
    outside = sorted(path.name for path in folder.iterdir() if path.name != "fleet")
    outside += [str(p) for p in (Path("/tmp/PWNED"), Path("PWNED"), folder / "PWNED") if p.exists()]
    return said, known, outside


def run(tally: Tally, root: Path, short: bool) -> None:
    for layout in ("sensor", "long"):
        names = (NAMES[::9] if layout == "sensor" else NAMES[5::20]) if short else NAMES
        folder = root / layout
        folder.mkdir()
        said, known, outside = in_process(score_names, folder, layout, names)
        where = "folders" if layout == "sensor" else "long tables"
        for name in names:
            with tally.trial(f"names in {where} through registry, scores and events", repr(name)[:60]):
                # A name too long for a folder is shortened there, and the folder's name is the id.
                name = sensor_of(folder_of(name)) if layout == "sensor" else name
                assert name in said, "it was not seen"
                assert said[name].startswith("ok"), said[name]
                assert name in known, "the registry does not give it back"
                shown = one_line(name)
                assert not any(c < " " or "\x7f" <= c < "\xa0" for c in shown), "a control character is shown"
        with tally.trial("looks outside the fleet's folder", where):
            assert not outside, outside
    for values in SETTINGS:
        with tally.trial("hostile settings", str(values)[:70]):
            try:
                open_fleet(Settings.from_dict({**values, "folder": root})).history.sensors()
            except PaanoError as error:
                assert str(error)
            else:
                raise AssertionError("it was accepted")
    if not short:
        run_tests(tally, "tests of keys and ids", "tests/storage/test_storage_keys.py")
        run_tests(tally, "tests of escaping", "tests/pages/test_escape.py")
        run_tests(
            tally, "tests of pages and commands with hostile names",
            "tests/pages/test_night_report.py", "tests/flows/test_flows_cli.py", keyword="hostile or safe",
        )  # fmt: skip


ROW = Row(
    11,
    "hostile names and settings: traversal, look-alikes, 300 characters, newlines, quotes, HTML, Markdown, "
    "rich markup, `{}` and `%`",
    "refused or encoded; never leave their prefix; never reach a filter, page or terminal unescaped",
    run,
)
