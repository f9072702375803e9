"""Failing commands beside secrets: none is on the screen or in a file; row 13 of the faults has more."""

from __future__ import annotations

import fleets
import pytest

from flows.run.report import version_link
from tests.faults.row_13_secrets import PASSWORD, failing, make


@pytest.mark.parametrize("what", ["PostgreSQL", "a malformed credentials file"])
def test_a_failing_command_shows_no_secret(tmp_path, what):
    make(tmp_path / "fleet")
    for debug in ([], ["--debug"]):
        failing(tmp_path / "fleet", what, ["status", *debug], tmp_path / "fleet", "")


def test_links_to_the_registry_hold_no_password(tmp_path):
    settings = fleets.settings_of(tmp_path, registry={"tracking_uri": f"http://ada:{PASSWORD}@mlflow:5000"})
    assert version_link(settings, "s00", 3) == "[version 3](http://mlflow:5000/#/models/tiny.s00/versions/3)"
