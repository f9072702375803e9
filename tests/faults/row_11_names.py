"""Row 11: hostile names and settings, through the whole fleet and every place where they are shown."""

from __future__ import annotations

from pathlib import Path

from flows.pages.escape import plain
from flows.run.fleet import open_fleet
from flows.settings.fleet_file import Settings
from paano.errors import PaanoError
from tests.faults import fleet_work
from tests.faults.existing import run_tests
from tests.faults.processes import in_process
from tests.faults.tally import Row, Tally

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


def score_names(folder: Path, names: list[str]) -> tuple[dict[str, str], list[str], list[str]]:
    """Two nights of sensors with these names; outcomes, whom the registry knows, and what lies outside."""
    settings = fleet_work.fleets.settings_of(folder / "fleet", **fleet_work.CHANGES)
    fleet_work.fleets.new_registry(settings)
    for number, name in enumerate(names):
        fleet_work.fleets.write_sensor(settings, name, fleet_work.signal(number % 3, 8))
    fleet = open_fleet(settings)
    outcomes = fleet_work.score(fleet, 5)
    outcomes = fleet_work.score(open_fleet(settings), 6)
    said = {outcome.sensor: outcome.text for outcome in outcomes}
    known = sorted(open_fleet(settings).registry.champions())
    outside = sorted(path.name for path in folder.iterdir() if path.name != "fleet")
    outside += [str(p) for p in (Path("/tmp/PWNED"), Path("PWNED"), folder / "PWNED") if p.exists()]
    return said, known, outside


def run(tally: Tally, root: Path, short: bool) -> None:
    names = NAMES[::9] if short else NAMES
    said, known, outside = in_process(score_names, root, names)
    for name in names:
        with tally.trial("names through history, registry, scores and events", repr(name)[:60]):
            assert name in said, "it was not seen"
            assert said[name].startswith("ok"), said[name]
            assert name in known, "the registry does not give it back"
            shown = plain(name)
            assert not any(c < " " or "\x7f" <= c < "\xa0" for c in shown), "a control character is shown"
    with tally.trial("looks outside the fleet's folder"):
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
