"""Row 5: the Prefect API gone at the start, for a while, for good; restarted; the worker killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.processes.servers import free_port, running, wait_for
from tests.faults import fleet_work
from tests.faults.processes import in_process
from tests.faults.row_01_every_call import difference
from tests.faults.tally import Row, Tally

NIGHT = 6
WHOLE = 420  # seconds for a command that must come to an end
MAIN = [sys.executable, "-c", "from flows.cli.app import main; main()"]


def prepare(root: Path) -> None:
    fleet = fleet_work.make(root / "first", sensors=6, days=8, run={"workers": 1})
    fleet_work.fleets.write_fleet_file(fleet.settings)


def environment(home: Path, address: str) -> dict[str, str]:
    return {
        **os.environ,
        **({"PREFECT_API_URL": address} if address else {}),
        "PREFECT_HOME": str(home),
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }


@contextmanager
def server(home: Path, port: int) -> Iterator[None]:
    """A Prefect server on `port`; gone at the end of the block."""
    command = [str(Path(sys.executable).parent / "prefect"), "server", "start", "--port", str(port)]
    with running("Prefect", command, home.parent / "prefect.log", environment(home, ""), hard=True) as ended:

        def ready() -> bool:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=2).close()
            except OSError:
                return False
            return True

        wait_for("Prefect", ready, ended)
        yield


def start(folder: Path, home: Path, address: str) -> subprocess.Popen[str]:
    """`paano score` of one night."""
    command = [*MAIN, "score", "--day", fleet_work.fleets.night(NIGHT), "-f", str(folder / "fleet.toml")]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment(home, address), stdout=pipe, stderr=pipe, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """How it ended and what it said; it must end, and without a traceback."""
    try:
        out, err = process.communicate(timeout=WHOLE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it had not ended after {WHOLE} s") from None
    assert "Traceback" not in err, err[-1500:]
    return process.returncode, out + err


def rerun_equals(folder: Path, wanted: dict[str, str]) -> None:
    """Whatever was left is whole; the same night once more gives what an undisturbed one gives."""
    fleet_work.whole_objects(folder)
    in_process(score_night, str(folder))
    found = fleet_work.objects(folder)
    assert found == wanted, difference(found, wanted)


def score_night(folder: str) -> None:
    fleet_work.score(fleet_work.opened(folder), NIGHT)


def copy(root: Path, name: str) -> Path:
    shutil.copytree(root / "first", root / name)
    fleet = fleet_work.opened(root / name)
    fleet_work.fleets.write_fleet_file(fleet.settings)
    return root / name


def at_start(tally: Tally, root: Path, wanted: dict[str, str]) -> None:
    folder = copy(root, "at-start")
    with tally.trial("commands with the API gone at the start"):
        code, said = ended(start(folder, root / "home", f"http://127.0.0.1:{free_port()}/api"))
        assert code == 1 and "PREFECT_API_URL" in said and len(said.splitlines()) < 8, said[-800:]
        rerun_equals(folder, wanted)


def meanwhile(tally: Tally, root: Path, wanted: dict[str, str]) -> None:
    """The server is killed under a run: for good, and with another in its place."""
    for name, back in (("for good", None), ("for 60 s", 60), ("and restarted at once", 0)):
        folder, port = copy(root, name.replace(" ", "-")), free_port()
        address, home = f"http://127.0.0.1:{port}/api", root / f"home {name}".replace(" ", "-")
        home.mkdir()
        with tally.trial("runs whose API went away", name):
            with server(home, port):
                run = start(folder, home, address)
                time.sleep(12)  # it is importing, or at its first batches
            if back is None:
                code, said = ended(run)
            else:
                time.sleep(back)
                with server(home, port):
                    code, said = ended(run)
            assert code == 0 or said.strip(), "it failed and said nothing"
            rerun_equals(folder, wanted)


def killed(tally: Tally, root: Path, wanted: dict[str, str]) -> None:
    """The process of a run is killed; the next one goes on."""
    port, home = free_port(), root / "home-killed"
    address = f"http://127.0.0.1:{port}/api"
    home.mkdir()
    with server(home, port):
        for seconds in (8, 11, 14, 17):
            folder = copy(root, f"killed-{seconds}")
            with tally.trial("processes killed under a run", f"after {seconds} s"):
                run = start(folder, home, address)
                time.sleep(seconds)
                run.send_signal(signal.SIGKILL)
                run.communicate()
                fleet_work.whole_objects(folder)
                code, said = ended(start(folder, home, address))
                assert code == 0, said[-800:]
                found = fleet_work.objects(folder)
                assert found == wanted, difference(found, wanted)


def run(tally: Tally, root: Path, short: bool) -> None:
    in_process(prepare, root)
    folder = copy(root, "undisturbed")
    in_process(score_night, str(folder))
    wanted = fleet_work.objects(folder)
    at_start(tally, root, wanted)
    if not short:
        meanwhile(tally, root, wanted)
        killed(tally, root, wanted)


ROW = Row(
    5,
    "Prefect API gone for 60 s, for good, at the start; server restarted; a worker killed",
    "no lost commit; finishes, resumes or says so in a paragraph",
    run,
)
