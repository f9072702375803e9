"""The one place that takes secrets out of text: messages, links, logs, tracebacks, files that we write.

    clean("http://ada:s3cret@mlflow/…")   # "http://***@mlflow/…"
    public("http://ada:s3cret@mlflow")    # "http://mlflow"

What is a secret: user and password in an address; values of variables whose names say so
(AWS_SECRET_ACCESS_KEY, MLFLOW_TRACKING_PASSWORD, …); what AWS credentials files hold; whatever
`learn` was told.
"""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import quote, quote_plus, unquote

from paano import errors

P = ParamSpec("P")
T = TypeVar("T")

HIDDEN = "***"
_SHORTEST = 4  # characters: shorter ones would take ordinary words out of every message
_SHORTEST_NUMBER = 6
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(\S+)")
_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)([^/\s'\"<>?#]*)@")
_NAMED = re.compile(
    r"(?i)\b((?:aws_)?(?:secret_access_key|session_token|access_key_id|security_token)|password|passwd"
    r"|api_key|secret_key)(['\"]?\s*[=:]\s*|\s+(?=\S{16}))(['\"]?)([^\s'\",;&)}\]]+)"
)
_VARIABLE = re.compile(
    r"(SECRET|PASSWORD|PASSWD|TOKEN|API_KEY|ACCESS_KEY|ACCESS_KEY_ID|SECRET_KEY|AUTH_STRING)$"
)
_PLAIN_VALUES = {"true", "false", "none", "null"}
_TOKEN = re.compile(r"[^\s=:,'\"\[\]]{16,}")
_LARGEST_FILE = 2**20
_learnt: set[str] = set()


def learn(*secrets: str | None) -> None:
    """From now on `clean` hides each of `secrets`, as it is and as it is written in an address."""
    for secret in secrets:
        if secret and len(secret) >= _SHORTEST and secret.lower() not in _PLAIN_VALUES:
            # (a short number would take ordinary numbers out of messages)
            if secret.isdigit() and len(secret) < _SHORTEST_NUMBER:
                continue
            forms = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret), unquote(secret)}
            _learnt.update(
                form for form in {*forms, *(repr(f)[1:-1] for f in forms)} if len(form) >= _SHORTEST
            )


def learn_address(*addresses: str | None) -> None:
    """Learn the passwords in addresses, also those with characters that do not belong there."""
    for address in addresses:
        match = _ADDRESS.fullmatch(address or "")
        if match is None:
            continue
        user, colon, password = _userinfo(match[2]).partition(":")
        if colon:
            learn(password)
        elif match[1].startswith("http"):
            learn(user)  # a token in the place of a user
        learn(*re.findall(r"(?i)[?&](?:password|token|secret|key)=([^&]+)", match[2]))


def _userinfo(rest: str) -> str:
    """User and password at the beginning of what follows `://`, also if the password has a `/` in it."""
    authority = rest.partition("/")[0]
    if "@" in authority:
        return authority.rpartition("@")[0]
    _, colon, after = authority.partition(":")
    return rest.rpartition("@")[0] if colon and not after.isdigit() and "@" in rest else ""


def learn_values(value: Any) -> None:
    """Learn the passwords in the addresses among settings, at any depth."""
    if isinstance(value, str):
        learn_address(value)
    elif isinstance(value, Mapping):
        for inner in value.values():
            learn_values(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            learn_values(inner)


def learn_file(path: str | Path) -> None:
    """Learn whatever in a credentials file looks like one, also if the file is malformed."""
    learn(*_secrets_in(str(path), _stamp(path)))


def _stamp(path: str | Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=64)
def _secrets_in(path: str, stamp: tuple[int, int]) -> tuple[str, ...]:
    if not 0 < stamp[1] <= _LARGEST_FILE:
        return ()
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()  # unreadable for us: nothing of it can get into a message
    found = set(_TOKEN.findall(text)) | {match[4] for match in _NAMED.finditer(text)}
    for line in text.splitlines():
        name, mark, value = line.partition("=")
        if mark and _VARIABLE.search(name.strip().upper()):
            found.add(value.strip())
    names = {"aws_access_key_id", "aws_secret_access_key", "aws_session_token"}
    return tuple(sorted(found - names))


@lru_cache(maxsize=8)
def _learn_variables(variables: tuple[tuple[str, str], ...]) -> None:
    for name, value in variables:
        if "://" in value:
            learn_address(value)
        elif _VARIABLE.search(name):
            learn(value)


def _learn_surroundings() -> None:
    """Learn what the variables and credentials files of this process hold now; both may change."""
    _learn_variables(
        tuple((name, value) for name, value in os.environ.items() if _VARIABLE.search(name) or "@" in value)
    )
    learn_file(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials")


def clean(text: str) -> str:
    """`text` without the secrets that are known, and without user and password in any address."""
    if not text:
        return text
    _learn_surroundings()
    for secret in sorted(_learnt, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, HIDDEN)
    text = _USERINFO.sub(rf"\1{HIDDEN}@", text)
    return _NAMED.sub(rf"\1\2\3{HIDDEN}", text)


def public(address: str) -> str:
    """An address that may be shown and linked to: without user, password and query."""
    scheme, mark, rest = address.partition("://")
    if not mark:
        return clean(address)
    learn_address(address)
    shown = rest.removeprefix(_userinfo(rest)).removeprefix("@")
    return clean(f"{scheme}{mark}{shown.partition('?')[0]}")


def clean_traceback(error: BaseException) -> str:
    """The traceback of `error` and of what it came from, as Python prints it, without secrets."""
    return clean("".join(traceback.format_exception(error)))


def clean_value(value: Any) -> Any:
    """`value` with every text in it, at any depth of lists and dicts, cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {key: clean_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(clean_value(inner) for inner in value)
    return value


def without_secrets(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, whose unexpected errors carry no secret to who keeps them (the state of a Prefect run)."""

    @wraps(function)
    def guarded(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except errors.PaanoError:
            raise  # its message was cleaned when it was made
        except Exception as error:
            if clean(str(error)) == str(error) and clean(repr(error)) == repr(error):
                raise
            raise errors.PaanoError(f"unexpected {type(error).__name__}: {error}") from None

    return guarded


def _record(*arguments: Any, **named: Any) -> logging.LogRecord:
    """A log record without secrets, whoever logs it and wherever it goes."""
    record = _make_record(*arguments, **named)
    try:
        text = record.getMessage()
    except (TypeError, ValueError):
        return record  # logging says itself what is wrong with it
    cleaned = clean(text)
    if cleaned != text:
        record.msg, record.args = cleaned, None
    if record.exc_info and record.exc_info[1] is not None:
        whole = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
        cleaned = clean(whole)
        if cleaned != whole:
            record.exc_info, record.exc_text = None, cleaned
    return record


_make_record = logging.getLogRecordFactory()


def install() -> None:
    """Clean every log record of this process and every message of our own errors. Done once, on import."""
    global _make_record
    if logging.getLogRecordFactory() is not _record:
        _make_record = logging.getLogRecordFactory()
        logging.setLogRecordFactory(_record)
    errors.set_cleaner(clean)


install()
