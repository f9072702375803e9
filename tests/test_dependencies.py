"""What the packages import is declared: nothing works only because another package happens to bring it."""

from __future__ import annotations

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
OURS = ("paano", "storage", "flows")


def imported():
    """{top-level module: one file that imports it} of everything outside the standard library."""
    found = {}
    for path in (path for name in OURS for path in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and top not in OURS:
                    found[top] = str(path.relative_to(ROOT))
    return found


def declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in extras if name != "dev" for line in extras[name])]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def test_every_package_that_is_imported_is_declared():
    owners, known = packages_distributions(), declared()
    missing = {
        module: file
        for module, file in imported().items()
        # One that is not installed here (an extra) is looked for under its own name.
        if not {canonicalize_name(name) for name in owners.get(module, [module])} & known
    }
    assert missing == {}
