"""The shape of the house: which way imports go, and what never appears in our rooms."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("paano", "storage", "flows")

# What each room may import besides the standard library and itself.
METHOD = {"numpy", "torch", "sklearn", "scipy", "safetensors", "threadpoolctl"}
FORBIDDEN = {
    "paano": {
        "storage",
        "flows",
        "prefect",
        "mlflow",
        "fsspec",
        "s3fs",
        "polars",
        "pyarrow",
        "requests",
        "httpx",
    },
    "storage": {"flows", "prefect", "typer", "rich"},
    "flows": {"deploy", "tests", "benchmarks"},
}


def sources(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The top-level packages that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_imports_go_one_way(room):
    wrong = {
        str(path.relative_to(ROOT)): sorted(imported(path) & FORBIDDEN[room])
        for path in sources(room)
        if imported(path) & FORBIDDEN[room]
    }
    assert not wrong


def test_the_method_needs_nothing_but_numerical_libraries():
    allowed = METHOD | {"paano"} | set(sys.stdlib_module_names)
    wrong = {
        path.name: sorted(imported(path) - allowed) for path in sources("paano") if imported(path) - allowed
    }
    assert not wrong


# Modules that run what they read, and calls that evaluate text, unpickle or start a shell.
BANNED_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve"}
BANNED_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "torch.load",
    "torch.jit.load",
    "torch.hub.load",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "joblib.load",
    "pandas.read_pickle",
    "pd.read_pickle",
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "mlflow.pyfunc.load_model",
    "mlflow.pyfunc.load_context",
}


def banned_in(tree: ast.AST) -> list[str]:
    """What a source must not hold: an import or a call of the above, `shell=True`, `allow_pickle=True`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in BANNED_MODULES]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = {f"{module}.{alias.name}" for alias in node.names}
            found += [module] * (module.split(".")[0] in BANNED_MODULES) + sorted(names & BANNED_CALLS)
        elif isinstance(node, ast.Call):
            found += [name for name in [ast.unparse(node.func)] if name in BANNED_CALLS]
            found += [
                f"{word.arg}={ast.unparse(word.value)}"
                for word in node.keywords
                if word.arg in ("shell", "allow_pickle")
                and not (isinstance(word.value, ast.Constant) and word.value.value is False)
            ]
    return found


@pytest.mark.parametrize("room", [*ROOMS, "deploy"])
def test_nothing_is_unpickled_evaluated_or_run_through_a_shell(room):
    found = {str(p.relative_to(ROOT)): banned_in(ast.parse(p.read_text())) for p in sources(room)}
    assert {path: hits for path, hits in found.items() if hits} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "eval('1')",
        "import yaml\nyaml.load(x)",
        "subprocess.run('ls', shell=True)",
        "subprocess.run('ls', shell=bool(1))",
        "np.load('x', allow_pickle=True)",
        "mlflow.pyfunc.load_model('models:/x')",
    ],
)
def test_what_is_banned_is_found(text):
    assert banned_in(ast.parse(text))


@pytest.mark.parametrize("room", ROOMS)
def test_no_handler_drops_an_error_in_silence(room):
    """A handler may translate, record or re-raise; a body of only `pass` or `continue` hides the fault."""
    silent = []
    for path in sources(room):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ExceptHandler):
                continue
            broad = node.type is None or (
                isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}
            )
            if broad and all(isinstance(step, ast.Pass | ast.Continue) for step in node.body):
                silent.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not silent


def test_the_commands_of_the_readme_are_targets_of_make():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^    )make ([a-z0-9-]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named <= targets


def test_ci_runs_what_a_person_types():
    assert "make test" in (ROOT / ".ci" / "run").read_text()
