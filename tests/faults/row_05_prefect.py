"""Row 5: the Prefect API gone at the start, for a while, for good; restarted; the worker killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.processes.servers import free_port, running, wait_for
from tests.faults import fleet_work
from tests.faults.processes import in_process
from tests.faults.row_01_every_call import difference
from tests.faults.tally import Row, Tally

ROOT = Path(__file__).resolve().parents[2]
NIGHT = 6
WHOLE = 420  # seconds for a command that must come to an end
PARAGRAPH = 12  # lines
LEASE = 30  # seconds that the server keeps the slot of a run whose process is gone; 300 unless it is told
MAIN = [sys.executable, "-c", "from flows.cli.app import main; main()"]
BIN = Path(sys.executable).parent
AT_ONCE = 3  # runs, each with a server of its own
ENDED = ("COMPLETED", "FAILED", "CRASHED")


def prepare(root: Path) -> None:
    # Four objects, written one after another: there is a moment between them.
    fleet = fleet_work.make(root / "first", sensors=6, days=8, run={"workers": 1}, scores={"shards": 4})
    fleet_work.fleets.write_fleet_file(fleet.settings)


def environment(home: Path, address: str) -> dict[str, str]:
    return {
        **os.environ,
        **({"PREFECT_API_URL": address} if address else {}),
        "PREFECT_HOME": str(home),
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_CONCURRENCY_INITIAL_DEPLOYMENT_LEASE_DURATION": str(LEASE),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }


@contextmanager
def server(home: Path, port: int) -> Iterator[None]:
    """A Prefect server on `port`; gone at the end of the block."""
    command = [str(BIN / "prefect"), "server", "start", "--port", str(port)]
    with running("Prefect", command, home / "server.log", environment(home, ""), hard=True) as over:

        def ready() -> bool:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=2).close()
            except OSError:
                return False
            return True

        wait_for("Prefect", ready, over, WHOLE)
        yield


def first_home(root: Path) -> None:
    """The database of a new server: making it takes longer than most of what is tried here."""
    (root / "home-first").mkdir()
    with server(root / "home-first", free_port()):
        pass


def new_home(root: Path, name: str) -> Path:
    """A folder for a server, with a new database."""
    return Path(shutil.copytree(root / "home-first", root / f"home-{name}"))


def ask(address: str, what: str, body: dict[str, Any] | None = None) -> Any:
    """An answer of Prefect's API. While its database is locked it says 503, and its own clients ask again."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/{what}", data, {"Content-Type": "application/json"})
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > deadline:
                raise
            time.sleep(1)


def until(ready: Callable[[], bool], over: Callable[[], Any] = lambda: None) -> None:
    """Wait for a moment of a run; AssertionError if it is `over` before."""
    deadline = time.monotonic() + WHOLE
    while not ready():
        assert over() is None, "the run was over before the moment came"
        assert time.monotonic() < deadline, f"the moment had not come after {WHOLE} s"
        time.sleep(0.02)


def began(folder: Path, address: str) -> bool:
    """Whether a run is under way."""
    running_now = {"flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}}
    return bool(ask(address, "flow_runs/filter", running_now))


def wrote(number: int) -> Callable[[Path, str], bool]:
    """Whether `number` objects of the night are written."""
    date = f"date={fleet_work.fleets.night(NIGHT)}"
    return lambda folder, address: len(list((folder / "scores" / date).glob("*.parquet"))) >= number


MOMENTS: dict[str, Callable[[Path, str], bool]] = {
    "as it began": began,
    "after its first object": wrote(1),
    "after its third object": wrote(3),
}


def start(folder: Path, home: Path, address: str) -> subprocess.Popen[str]:
    """`paano score` of one night."""
    command = [*MAIN, "score", "--day", fleet_work.fleets.night(NIGHT), "-f", str(folder / "fleet.toml")]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment(home, address), stdout=pipe, stderr=pipe, text=True)


def started_until(moment: str, folder: Path, home: Path, address: str) -> subprocess.Popen[str]:
    """The command, at this moment of its run."""
    run = start(folder, home, address)
    until(lambda: MOMENTS[moment](folder, address), run.poll)
    return run


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


def meanwhile(root: Path, wanted: dict[str, str], back: int | None, moment: str) -> int:
    """The server is killed at this moment of a run, and after `back` seconds (None: never) there is another.

    How the command ended.
    """
    name = f"away-{back}-{moment.split()[-1]}"
    folder, port, home = copy(root, name), free_port(), new_home(root, name)
    address = f"http://127.0.0.1:{port}/api"
    with server(home, port):
        run = started_until(moment, folder, home, address)
    if back is None:
        code, said = ended(run)
    else:
        time.sleep(back)
        with server(home, port):
            code, said = ended(run)
    if code:
        assert said.strip(), "it failed and said nothing"
        assert len(said.splitlines()) <= PARAGRAPH, f"more than a paragraph: {said[-1500:]}"
    rerun_equals(folder, wanted)
    return code


AWAY = {"for good": None, "for 60 s": 60, "and was restarted at once": 0}


def killed(tally: Tally, root: Path, wanted: dict[str, str]) -> None:
    """The process of a run is killed; the next one goes on."""
    port, home = free_port(), new_home(root, "killed")
    address = f"http://127.0.0.1:{port}/api"
    with server(home, port):
        for number, moment in enumerate(MOMENTS):
            folder = copy(root, f"killed-{number}")
            with tally.trial("processes killed under a run", moment):
                run = started_until(moment, folder, home, address)
                run.send_signal(signal.SIGKILL)
                run.communicate()
                fleet_work.whole_objects(folder)
                code, said = ended(start(folder, home, address))
                assert code == 0, said[-800:]
                found = fleet_work.objects(folder)
                assert found == wanted, difference(found, wanted)
                assert not began(folder, address), "the run that was killed is still called running"
        worker_killed(tally, root, wanted, home, address)


def worker_killed(tally: Tally, root: Path, wanted: dict[str, str], home: Path, address: str) -> None:
    """A worker of a work pool is killed with the run it holds; the next worker does the night."""
    folder = copy(root, "killed-worker")
    given = {**environment(home, address), "PAANO_FLEET_FILE": str(folder / "fleet.toml")}
    command = [str(BIN / "prefect"), "worker", "start", "--pool", "cpu", "--type", "process"]
    night = {"parameters": {"day": fleet_work.fleets.night(NIGHT)}}
    with tally.trial("workers of a pool killed under a run"):
        setup = ["sh", str(ROOT / "deploy" / "setup.sh")]
        made = subprocess.run(setup, env=given, capture_output=True, text=True, timeout=WHOLE)
        assert made.returncode == 0, made.stdout[-800:] + made.stderr[-800:]
        deployment = ask(address, "deployments/name/score/tiny-nightly-score")["id"]
        with running("worker", command, root / "worker.log", given, hard=True) as over:
            ask(address, f"deployments/{deployment}/create_flow_run", night)
            until(lambda: wrote(1)(folder, address), lambda: over() or None)
        fleet_work.whole_objects(folder)
        with running("worker", command, root / "worker.log", given, hard=True) as over:
            run = ask(address, f"deployments/{deployment}/create_flow_run", night)["id"]

            def state() -> str:
                return str(ask(address, f"flow_runs/{run}")["state"]["type"])

            until(lambda: state() in ENDED, lambda: over() or None)
            assert state() == "COMPLETED", ask(address, f"flow_runs/{run}")["state"]
        found = fleet_work.objects(folder)
        assert found == wanted, difference(found, wanted)


def run(tally: Tally, root: Path, short: bool) -> None:
    in_process(prepare, root)
    folder = copy(root, "undisturbed")
    in_process(score_night, str(folder))
    wanted = fleet_work.objects(folder)
    at_start(tally, root, wanted)
    if short:
        return
    first_home(root)

    def away(name: str, moment: str) -> None:
        with tally.trial("runs whose API went away", f"{name}, {moment}"):
            code = meanwhile(root, wanted, AWAY[name], moment)
            tally.notes.append(f"API away {name}, {moment}: the command ended with {code}")

    with ThreadPoolExecutor(AT_ONCE) as pool:  # they mostly wait
        cases = [pool.submit(away, name, moment) for name in AWAY for moment in list(MOMENTS)[:2]]
        cases.append(pool.submit(killed, tally, root, wanted))
    for case in cases:
        case.result()
    tally.notes.sort()


ROW = Row(
    5,
    "Prefect API gone for 60 s, for good, at the start; server restarted; a worker killed",
    "no lost commit; finishes, resumes or says so in a paragraph",
    run,
)
