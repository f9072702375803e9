"""The documentation is true: pages made from the code are current, names exist, the tutorial runs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flows.settings.reference import render

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/*.md")])


def test_the_settings_page_is_what_the_settings_say():
    assert (ROOT / "docs" / "settings.md").read_text() == render(), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_of_the_project_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def names_in(path: Path) -> set[str]:
    """Functions, classes and methods (`Class.method`) that a file defines, and its constants."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{step.name}" for step in node.body if isinstance(step, ast.FunctionDef)}
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def test_the_walks_of_the_architecture_page_name_what_the_code_has():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"((?:flows|storage|paano)/[\w/]+\.py): ?([\w.]+)", text)
    assert len(named) > 20
    wrong = [
        f"{path}: {name}"
        for path, name in named
        if not (ROOT / path).exists() or name not in names_in(ROOT / path)
    ]
    assert not wrong


def test_every_path_that_the_architecture_page_names_exists():
    text = (ROOT / "docs" / "architecture.md").read_text()
    paths = re.findall(r"`((?:flows|storage|paano|deploy|tests|docs|benchmarks)/[\w/.-]*)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_room_is_on_the_architecture_page():
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = {
        str(path.parent.relative_to(ROOT)) + "/"
        for top in ("paano", "storage", "flows")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert [room for room in sorted(rooms) if f"`{room}`" not in text] == []


def test_every_room_says_what_it_is_for():
    silent = [
        str(path.relative_to(ROOT))
        for top in ("paano", "storage", "flows")
        for path in (ROOT / top).rglob("__init__.py")
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_the_glossary_is_short_and_sorted():
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs" / "glossary.md").read_text(), re.M)
    assert 20 <= len(words) <= 40
    assert words == sorted(words, key=str.lower)


def test_the_tutorial_runs_as_it_stands(tmp_path, prefect):
    from prefect.settings import PREFECT_API_URL

    blocks = re.findall(r"```(python|sh)\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.S)
    assert len(blocks) >= 7
    shell = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PREFECT_API_URL": str(PREFECT_API_URL.value()),  # each command would start a server of its own
    }
    for kind, text in blocks:
        command = ["bash", "-euc", text] if kind == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(
            command, cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "pump-2.png").read_bytes().startswith(b"\x89PNG")
