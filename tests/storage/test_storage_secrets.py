"""No secret in any message, link, log record or traceback."""

import logging
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paano.errors import PaanoError, RegistryError
from storage import secrets
from storage.secrets import clean, clean_traceback, public, without_secrets

SECRET = "wJalrXUtnFEMI/K7MDENG%bPxRfiCYEXAMPLEKEY"


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    """What one test teaches the next must not know."""
    monkeypatch.setattr(secrets, "_learnt", set())
    secrets._learn_variables.cache_clear()
    secrets._secrets_in.cache_clear()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://ada:pw@mlflow:5000/x did not answer", "http://***@mlflow:5000/x did not answer"),
        ("postgresql+psycopg2://u:p%40ss@db/x", "postgresql+psycopg2://***@db/x"),
        ("'https://token@host'", "'https://***@host'"),
        ("s3://bucket/site@4/a.parquet is damaged", "s3://bucket/site@4/a.parquet is damaged"),
        ("models:/plant.a@champion", "models:/plant.a@champion"),
        ("aws_secret_access_key = abc", "aws_secret_access_key = ***"),
        ("[line 2]: 'aws_secret_access_key abcdefghijklmnopqrstuv'", "[line 2]: 'aws_secret_access_key ***'"),
        (
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile",
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile",
        ),
        ("", ""),
    ],
)
def test_text_is_cleaned_and_the_rest_of_it_stays(text, expected):
    assert clean(text) == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://ada:pw@mlflow:5000", "http://mlflow:5000"),
        ("http://mlflow:5000/path", "http://mlflow:5000/path"),
        ("postgresql://u:p/w@db:5432/x", "postgresql://db:5432/x"),
        ("postgresql://db/x?user=u&password=hidden", "postgresql://db/x"),
        ("sqlite:////data/mlflow.db", "sqlite:////data/mlflow.db"),
    ],
)
def test_an_address_to_show_has_no_user_and_no_password(address, expected):
    assert public(address) == expected


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "MLFLOW_TRACKING_PASSWORD",
        "MLFLOW_TRACKING_TOKEN",
        "PREFECT_API_KEY",
        "PREFECT_API_AUTH_STRING",
    ],
)
def test_values_of_variables_that_hold_secrets_are_hidden(monkeypatch, name):
    monkeypatch.setenv(name, SECRET)
    assert clean(f"the request with {SECRET} failed") == "the request with *** failed"


def test_a_password_in_an_address_of_a_variable_is_hidden_wherever_it_is(monkeypatch):
    monkeypatch.setenv("PAANO_REGISTRY__TRACKING_URI", "postgresql://fleet:hunter22@db/mlflow")
    assert "hunter22" not in clean("psycopg2: password 'hunter22' of fleet was refused")


@pytest.mark.parametrize(
    "content",
    [
        f"[default]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = {SECRET}\n",
        f"[default\naws_secret_access_key {SECRET}",
        f"aws_secret_access_key={SECRET}",
        SECRET,
    ],
)
def test_what_a_credentials_file_holds_is_hidden_also_if_it_is_malformed(monkeypatch, tmp_path, content):
    path = tmp_path / "credentials"
    path.write_text(content)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    assert SECRET not in clean(f"Source contains parsing errors: {content!r}\n{content}")


def test_a_learnt_secret_is_hidden_in_every_spelling():
    secrets.learn("p@ss/w%rd ü")
    for text in ("p@ss/w%rd ü", "p%40ss%2Fw%25rd%20%C3%BC", repr("p@ss/w%rd ü"), "p%40ss%2Fw%25rd+%C3%BC"):
        assert clean(f"<{text}>").strip("'<>") == "***"


def test_short_or_plain_values_are_not_taken_for_secrets(monkeypatch):
    for value in ("a", "123", "true", "False", ""):
        monkeypatch.setenv("SOME_TOKEN", value)
        assert clean("a true message of 123 False words") == "a true message of 123 False words"


def test_messages_of_our_errors_are_cleaned_when_they_are_made():
    error = RegistryError("http://ada:hunter22@mlflow did not answer", 3)
    assert str(error.args[0]) == "http://***@mlflow did not answer" and error.args[1] == 3
    assert "hunter22" not in repr(error)


def test_tracebacks_with_causes_are_cleaned(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    try:
        try:
            raise ValueError(f"invalid interpolation in {SECRET!r}")
        except ValueError as error:
            raise KeyError(SECRET) from error
    except KeyError as error:
        text = clean_traceback(error)
        assert SECRET in "".join(traceback.format_exception(error))
    assert SECRET not in text and "invalid interpolation" in text and "KeyError" in text


def test_log_records_are_cleaned_whoever_writes_them(monkeypatch, caplog):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    secrets.install()
    log = logging.getLogger("somebody.else")
    log.warning("with %s and %d", SECRET, 3)
    try:
        raise ValueError(SECRET)
    except ValueError:
        log.exception("failed")
    assert SECRET not in caplog.text and "with *** and 3" in caplog.text and "ValueError: ***" in caplog.text


def test_an_unexpected_error_of_a_task_carries_no_secret(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)

    @without_secrets
    def work(text):
        raise ValueError(text)

    with pytest.raises(PaanoError, match=r"unexpected ValueError: \*\*\*"):
        work(SECRET)
    with pytest.raises(ValueError, match="plain"):
        work("plain")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=4, max_size=40))
def test_no_learnt_secret_survives(secret):
    secrets._learnt.clear()
    secrets.learn(secret)
    if not secret.isdigit() and secret.lower() not in ("true", "false", "none", "null") and "*" not in secret:
        assert secret not in clean(f"before {secret} after").replace("before", "").replace("after", "")
