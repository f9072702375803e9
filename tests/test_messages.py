"""What messages tell a person to set, to add or to run: each of these things exists."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from flows.cli.app import app
from flows.settings.fleet_file import keys
from tests.test_architecture import ROOMS, sources

SETTINGS = {f"{section}.{key}" for section, key, _ in keys()}
SECTIONS = {name.partition(".")[0] for name in SETTINGS}
NAMED_SETTING = re.compile(rf"(?<![\w/.'\"-])({'|'.join(sorted(SECTIONS))})\.([a-z][a-z_]*)(?![\w./(])")
NAMED_COMMAND = re.compile(r"`paano( [^`]*)?`")
NAMED_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
# Files, and what is said to other programs.
FILES = {"json", "html", "css", "parquet", "safetensors", "toml", "csv", "py", "db", "md", "png", "part"}
OTHER_PROGRAMS = re.compile(r"\b(mlflow|prefect|pip|dask|ray|weed)\b")
A_PAGE = re.compile(r"<(html|div|style|tr|td|p|h\d)\b|var\(--|style=")  # HTML and CSS are no messages
COMMANDS = get_command(app)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of every string of a file that is not a docstring; an f-string is one text."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(id(node.value))  # a docstring
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in node.values}
            # A value that is put in stands as one word, so that `paano retrain {sensor}` is a command line.
            yield (
                node.lineno,
                "".join(str(p.value) if isinstance(p, ast.Constant) else "VALUE" for p in node.values),
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.lineno, node.value


def flags(command: object) -> set[str]:
    """Every flag of a command and of the commands below it."""
    own = {
        flag for option in getattr(command, "params", ()) for flag in (*option.opts, *option.secondary_opts)
    }
    return own.union(*(flags(sub) for sub in getattr(command, "commands", {}).values()))


ALL_FLAGS = flags(COMMANDS) | {"--help"}


def wrong_in(text: str) -> list[str]:
    """The settings, commands and flags in `text` that do not exist."""
    if A_PAGE.search(text):
        return []
    wrong = [
        f"setting {match[0]}"
        for match in NAMED_SETTING.finditer(text)
        if match[0] not in SETTINGS and match[2] not in FILES
    ]
    for match in NAMED_COMMAND.finditer(text):
        command = COMMANDS
        for word in shlex.split(match[1] or ""):
            below = getattr(command, "commands", None)
            if word.startswith("--"):
                if word.partition("=")[0] not in flags(command):
                    wrong.append(f"flag {word} of `paano{match[1]}`")
            elif below is not None and word in below:
                command = below[word]
            elif below is not None and word not in ("…", "VALUE", "COMMAND"):
                wrong.append(f"command `paano{match[1]}`")
                break
    if " " in text.strip() and not OTHER_PROGRAMS.search(text):  # one word alone: an argument of a program
        wrong += [f"flag {flag}" for flag in NAMED_FLAG.findall(text) if flag not in ALL_FLAGS]
    return wrong


@pytest.mark.parametrize("room", ROOMS)
def test_every_setting_flag_and_command_that_a_message_names_exists(room):
    wrong = [
        f"{path.name}:{line}: {what}"
        for path in sources(room)
        for line, text in texts(path)
        for what in wrong_in(text)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "text, what",
    [
        ("name the columns in history.values", "setting history.values"),
        ("history.kind = 'x' is not one of", "setting history.kind"),
        ("run `paano retrian VALUE`", "command `paano retrian VALUE`"),
        ("`paano score --night VALUE`", "flag --night of `paano score --night VALUE`"),
        ("begin anew with --afresh", "flag --afresh"),
    ],
)
def test_a_thing_that_does_not_exist_is_found(text, what):
    assert wrong_in(text)[0] == what


@pytest.mark.parametrize(
    "text",
    [
        "set history.interval",
        "`paano review`",
        "`paano backfill --first VALUE --last VALUE`",
        "see model.json",
    ],
)
def test_what_exists_is_accepted(text):
    assert wrong_in(text) == []
