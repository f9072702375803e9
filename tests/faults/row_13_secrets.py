"""Row 13: failing commands beside secrets; none is found on the screen, in a file, or in Prefect."""

from __future__ import annotations

import itertools
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from flows.processes.servers import prefect_server
from storage.secrets import clean, learn_values
from tests.faults.commands import Done, paano, plain_environment
from tests.faults.existing import run_tests
from tests.faults.fleet_work import fleets
from tests.faults.processes import in_process
from tests.faults.tally import Row, Tally
from tests.servers import mlflow_server

PASSWORDS = ("hunter22", "p%40ss/word", "a b&c=d", "x'y\"z", "ünï", "${HOME}", "[red]", "%s{}")
WHERE = {
    "an address": "http://ada:{}@mlflow:5000/x",
    "a database": "postgresql+psycopg2://ada:{}@db/mlflow?sslmode=require",
    "a longer text": "could not connect to http://ada:{}@mlflow:5000: refused",
}

# -- failing commands

PASSWORD = "hunter22%2Fsecret"
KEY = "wJalrXUtnFEMI/K7MDENG%bPxRfiCYEXAMPLEKEY"
COMMANDS = [
    ["doctor"],
    ["status"],
    ["sensors"],
    ["score", "--day", fleets.night(8)],
    ["retrain", "s00"],
    ["review", "list"],
    ["sweep"],
]
AWAY = {
    "HTTP": {"registry": {"tracking_uri": f"http://ada:{PASSWORD}@127.0.0.1:9"}},
    "PostgreSQL": {"registry": {"tracking_uri": f"postgresql://ada:{PASSWORD}@127.0.0.1:9/mlflow"}},
    "another database": {"registry": {"tracking_uri": f"oracle://ada:{PASSWORD}@127.0.0.1:9/mlflow"}},
    "S3": {"scores": {"url": "s3://bucket/scores"}, "storage": {"endpoint": "http://127.0.0.1:9"}},
    "store with a password": {"scores": {"url": f"ftp://ada:{PASSWORD}@127.0.0.1:9/scores"}},
    "a malformed credentials file": {"storage": {"credentials": "credentials"}},
}
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": KEY,
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "PAANO_RUN__RETRIES": "0",
}
AT_ONCE = 2  # commands
OWN_SERVER = "HTTP"  # here commands start their own Prefect server


def leaks(done: Done, *folders: Path) -> list[str]:
    """Where a secret was found; the fleet file and the credentials file hold theirs by right."""
    places = {"stdout": done.stdout, "stderr": done.stderr}
    for path in itertools.chain(*(folder.rglob("*") for folder in folders)):
        if path.is_file() and path.name not in ("fleet.toml", "credentials") and "history" not in path.parts:
            places[str(path)] = path.read_bytes()
    secrets = (b"hunter22", KEY.encode(), KEY.encode()[:20])
    return [name for name, data in places.items() if any(secret in data for secret in secrets)]


def make(folder: Path) -> None:
    """Two sensors with history and no models, as `failing` finds them."""
    settings = fleets.settings_of(folder)
    for number in range(2):
        fleets.write_sensor(settings, f"s{number:02d}", fleets.signal(number, 480))


def failing(folder: Path, away: str, command: list[str], home: Path, api: str) -> None:
    """A command of the fleet in `folder` with something away: no secret is anywhere, and no traceback.

    Runs go to the Prefect server at `api` with its data in `home`; empty: to one that the command starts.
    """
    fleets.write_fleet_file(fleets.settings_of(folder, **AWAY[away]))
    (folder / "credentials").write_text(f"[default\naws_secret_access_key {KEY}\n")
    given = plain_environment(**SECRETS, **({"PREFECT_API_URL": api} if api else {}))
    done = paano(*command, "-f", str(folder / "fleet.toml"), environment=given)
    found = leaks(done, folder, home)
    assert not found, (found, done.stdout[-1000:], done.stderr[-1000:])
    assert b"Traceback" not in done.stderr or "--debug" in command, done.stderr.decode()[-2000:]


def succeeding(folder: Path, server: Path) -> None:
    """A training and a night with a password in the address of the registry, and all goes well."""
    with mlflow_server(server) as address:
        uri = address.replace("://", f"://ada:{PASSWORD}@")
        fleets.write_fleet_file(fleets.settings_of(folder, registry={"tracking_uri": uri}))
        for command in (["retrain"], ["score", "--day", fleets.night(8)]):
            given = [*command, "-f", str(folder / "fleet.toml")]
            done = paano(*given, environment=plain_environment(**SECRETS))
            assert done.code == 0, done.stderr.decode()[-2000:]
            assert leaks(done, folder) == [], leaks(done, folder)


def commands(tally: Tally, root: Path) -> None:
    """Two at a time; those that run a flow share a Prefect server, but where nothing else is away."""
    in_process(make, root / "first")
    shutil.copytree(root / "first", root / "good")
    with tally.trial("trainings and nights that succeed", count=2):
        succeeding(root / "good", root / "registry")
    home = root / "prefect"
    shutil.copytree(root / "good" / "prefect", home)  # its database is there already: making it takes long
    shutil.copytree(home, root / "first" / "prefect")
    cases = itertools.product(AWAY, COMMANDS, ([], ["--debug"]))

    with prefect_server(home, {"PREFECT_LOGGING_LEVEL": "INFO"}) as api, ThreadPoolExecutor(AT_ONCE) as pool:

        def one(number: int, away: str, command: list[str]) -> None:
            folder = root / f"fleet-{number}"
            shutil.copytree(root / "first", folder)
            with tally.trial("failing commands, half of them with --debug", f"{' '.join(command)}, {away}"):
                failing(folder, away, command, home, "" if away == OWN_SERVER else api)
            shutil.rmtree(folder)

        waiting = [pool.submit(one, n, a, [*c, *debug]) for n, (a, c, debug) in enumerate(cases)]
        for done in waiting:
            done.result()


def run(tally: Tally, root: Path, short: bool) -> None:
    for password in PASSWORDS:
        for where, form in WHERE.items():
            address = form.format(quote(password, safe=""))
            with tally.trial("messages with a password", f"{password!r} in {where}"):
                learn_values(
                    {"registry": {"tracking_uri": address.split(" ")[-2] if " " in address else address}}
                )
                shown = clean(f"failed: {address}: try again")
                assert quote(password, safe="") not in shown and "failed" in shown, shown
    if not short:
        run_tests(tally, "tests of cleaning", "tests/storage/test_storage_secrets.py")
        commands(tally, root)


ROW = Row(
    13,
    "secrets in addresses, variables and credentials files, beside failing commands",
    "none found on the screen, in files, in Prefect's database",
    run,
)
