"""What a killed command leaves: no process, no folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fleets
import pytest

from flows.processes import leftovers, watchdog
from flows.processes.leftovers import clean_leftovers, lives, temporary_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc")


def until(true, seconds=180.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def children(pid):
    """The processes that carry the mark of the command `pid`, with their command lines."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            lines = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            if any(line.startswith(f"{watchdog.MARK}={pid}-".encode()) for line in lines):
                found[int(name)] = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def test_a_killed_score_leaves_no_server_and_no_watchdog(tmp_path):
    fleet = fleets.make(tmp_path / "fleet", sensors=2)
    file = fleets.write_fleet_file(fleet.settings)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    paano = str(Path(sys.executable).parent / "paano")
    with (tmp_path / "log").open("wb") as log:
        command = subprocess.Popen(
            [paano, "score", "-f", file, "--day", fleets.night(9)], env=environment, stdout=log, stderr=log
        )
        try:
            until(lambda: any("uvicorn" in line for line in children(command.pid).values()))
            started = set(children(command.pid))
        finally:
            command.send_signal(signal.SIGKILL)
            command.wait()
    until(lambda: not any(map(lives, started)), 30)
    assert not children(command.pid)


KILLED = """
import os, signal, subprocess, sys, time
from flows.processes.leftovers import temporary_folder, watch_children
watch_children()
child = subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
with temporary_folder() as folder:
    (folder / "half").write_bytes(b"x")
    print(child.pid, folder, flush=True)
    END
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
time.sleep(600)
"""


def started(end: str, tmp_path: Path) -> tuple[subprocess.Popen[str], int, Path]:
    text = KILLED.replace("CHILD", repr(STUBBORN)).replace("END", end)
    process = subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    child, folder = process.stdout.readline().split()
    return process, int(child), Path(folder)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_that_ignores_sigterm_and_a_folder_end_with_their_killed_parent(sign, tmp_path):
    process, child, folder = started("time.sleep(600)", tmp_path)
    assert lives(child) and (folder / "half").exists()
    process.send_signal(sign)
    process.wait()
    process.stdout.close()
    until(lambda: not lives(child), 30)
    until(lambda: not folder.exists(), 30)


def test_a_process_that_the_command_did_not_start_is_left_alone(tmp_path):
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        process, child, _ = started("time.sleep(600)", tmp_path)
        process.kill()
        process.wait()
        process.stdout.close()
        until(lambda: not lives(child), 30)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_the_next_command_removes_folders_of_processes_that_are_gone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = Path(f"{leftovers._prefix(dead.pid)}abc")
    left.mkdir()
    foreign = tmp_path / "paano-somebody-else"
    foreign.mkdir()
    with temporary_folder() as mine:
        assert clean_leftovers() == [left]
        assert mine.exists() and foreign.exists() and not left.exists()
    assert not mine.exists()


def test_only_old_halves_of_processes_that_are_gone_leave_the_cache(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    models, notes = tmp_path / "models", tmp_path / "tiny.champion.since"
    models.mkdir()
    notes.mkdir()
    old = [
        models / f".half-{dead.pid}-00ff",
        models / f".gone-{dead.pid}-00ff",
        notes / f".s00.json-{dead.pid}-00ff",
        tmp_path / f".tiny.champion.json-{dead.pid}-00ff",
    ]
    kept = [
        models / f".half-{os.getpid()}-00ff",
        models / f".half-{dead.pid}-young",
        models / "tiny.s00",
        tmp_path / "lock",
        notes / "s00.json",
    ]
    young = models / f".half-{dead.pid}-aaaa"
    for path in [*old, *kept, young]:
        path.mkdir() if path.parent == models else path.touch()
        if path != young:
            os.utime(path, (0, 0))
    assert sorted(clean_leftovers(tmp_path)) == sorted(old)
    assert all(path.exists() for path in [*kept, young]) and not any(path.exists() for path in old)
