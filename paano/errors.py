"""Every error of the project, in one tree.

PaanoError                      something a person can act on; the message names the sensor and the remedy
├── ConfigError                 a setting is unknown, contradictory or out of range
├── SeriesError                 a series cannot be used as it is
│   └── SeriesTooShort          it has fewer points than the work needs
├── NotFitted                   a model was asked to score before it was fitted
├── ArtifactError               a stored model is damaged, hostile or of another format
├── HistoryError                history of one sensor cannot be read: damaged, wrong type, changed schema
│   └── UnknownSensor           there is no such sensor
├── StorageError                an object store refused
│   ├── AccessDenied            credentials are missing or wrong
│   ├── ObjectMissing           no such bucket, folder or object
│   ├── Conflict                another writer wrote the object first
│   └── StorageFull             no space is left
├── RegistryError               the model registry refused
├── RunFailed                   more sensors of a run failed than it may survive
└── Transient                   it may work in a while: a lost connection, a 503. Only these are retried.
    ├── StorageUnavailable
    └── RegistryUnavailable
"""

from collections.abc import Callable


def _as_it_is(text: str) -> str:
    return text


_clean: Callable[[str], str] = _as_it_is


def set_cleaner(clean: Callable[[str], str]) -> None:
    """Every message of an error made from now on goes through `clean` (`storage.secrets` hides secrets)."""
    global _clean
    _clean = clean


class PaanoError(Exception):
    """Something a person can act on."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(_clean(item) if isinstance(item, str) else item for item in arguments))


class ConfigError(PaanoError):
    """A setting is unknown, contradictory or out of range."""


class SeriesError(PaanoError, ValueError):
    """A series cannot be used as it is."""


class SeriesTooShort(SeriesError):
    """A series has fewer points than the work needs."""


class NotFitted(PaanoError):
    """A model was asked to score before it was fitted."""


class ArtifactError(PaanoError):
    """A stored model is damaged, hostile or of another format."""


class HistoryError(PaanoError):
    """The history of one sensor cannot be read."""


class UnknownSensor(HistoryError):
    """There is no such sensor."""


class StorageError(PaanoError):
    """An object store refused."""


class AccessDenied(StorageError):
    """Credentials are missing or wrong."""


class ObjectMissing(StorageError):
    """There is no such bucket, folder or object."""


class Conflict(StorageError):
    """Another writer wrote the object first."""


class StorageFull(StorageError):
    """No space is left."""


class RegistryError(PaanoError):
    """The model registry refused."""


class RunFailed(PaanoError):
    """More sensors of a run failed than it may survive. `report` says what became of each of them."""

    def __init__(self, message: str, report: object = None) -> None:
        super().__init__(message)
        self.report = report


class Transient(PaanoError):
    """It may work in a while. Only these are retried."""


class StorageUnavailable(Transient):
    """The object store did not answer."""


class RegistryUnavailable(Transient):
    """The model registry did not answer."""
