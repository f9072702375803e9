"""A registry in a SQLite file: made aside and put in place whole; a kill or a full disk leaves no half."""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from paano.errors import RegistryError, RegistryUnavailable


def make_ready(path: Path) -> None:
    """See that there is a usable database at `path`. The caller holds the lock of the registry.

    An unfinished one in which nothing is registered (an older release was killed while it made it) is put
    aside.

    Raises:
        RegistryError: there is something else at `path`, or no space for a new one.
    """
    state = _state(path)
    if state == "ready":
        return
    if state == "unfinished":
        path.replace(path.with_name(f"{path.name}.unfinished-{time.time_ns()}"))
    half = path.with_name(f".{path.name}.new-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        _create(half, path.parent / "mlruns")
        with half.open("rb") as file:
            os.fsync(file.fileno())
        half.replace(path)
    finally:
        # Also its journal, and what one that was killed left: the lock is ours, nobody else makes one now.
        for left in path.parent.glob(f".{path.name}.new-*"):
            left.unlink(missing_ok=True)


def _create(path: Path, artifacts: Path) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(f"sqlite:///{path}", artifacts.as_uri())  # type: ignore[no-untyped-call]
    store.engine.dispose()


def _state(path: Path) -> str:
    """ready, missing or unfinished."""
    if not path.exists() or path.stat().st_size == 0:
        return "missing"
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=30)) as database:
            rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = {str(name) for (name,) in rows}
            if not tables:
                return "missing"
            if {"experiments", "registered_models"} <= tables and _is_current(database, tables):
                return "ready"
            # Not of this release, or not finished: what holds anything is for MLflow to upgrade or refuse.
            used = [
                name
                for name in ("registered_models", "runs", "experiments")
                if name in tables and database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            ]
    except sqlite3.OperationalError as error:
        raise RegistryUnavailable(f"{path}: the database cannot be opened now ({error})") from error
    except sqlite3.DatabaseError as error:
        raise RegistryError(
            f"{path}: not a usable SQLite database ({error}); restore it from a backup, or point "
            "registry.tracking_uri to another"
        ) from error
    mlflows = {"alembic_version", "experiments", "runs", "metrics", "params", "registered_models"}
    if not tables & mlflows:
        raise RegistryError(f"{path}: a database of another program; correct registry.tracking_uri")
    return "ready" if used and used != ["experiments"] else "unfinished"


def _is_current(database: sqlite3.Connection, tables: set[str]) -> bool:
    from mlflow.store.db.utils import _get_latest_schema_revision

    if "alembic_version" not in tables:
        return False
    row = database.execute("SELECT version_num FROM alembic_version").fetchone()
    return row is not None and row[0] == _get_latest_schema_revision()  # type: ignore[no-untyped-call]
