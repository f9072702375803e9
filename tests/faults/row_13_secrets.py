"""Row 13: failing commands beside secrets; none is found on the screen, in a file, or in Prefect."""

from __future__ import annotations

from pathlib import Path

from storage.secrets import clean, learn_values
from tests.faults.existing import run_tests
from tests.faults.tally import Row, Tally

PASSWORDS = ("hunter22", "p%40ss/word", "a b&c=d", "x'y\"z", "ünï", "${HOME}", "[red]", "%s{}")
WHERE = {
    "an address": "http://ada:{}@mlflow:5000/x",
    "a database": "postgresql+psycopg2://ada:{}@db/mlflow?sslmode=require",
    "a longer text": "could not connect to http://ada:{}@mlflow:5000: refused",
}


def run(tally: Tally, root: Path, short: bool) -> None:
    from urllib.parse import quote

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
        run_tests(
            tally,
            "failing commands, each also with --debug",
            "tests/flows/test_flows_secrets.py",
            slow=True,
            at_once=4,
        )


ROW = Row(
    13,
    "secrets in addresses, variables and credentials files, beside failing commands",
    "none found on the screen, in files, in Prefect's database",
    run,
)
