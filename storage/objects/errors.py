"""What went wrong, by name: errors of the operating system and of botocore become those of `paano.errors`.

A message names the object and a remedy. It carries the server's code, never its request, so that no key,
secret or signed address ends in a log.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import urllib3
from botocore.exceptions import BotoCoreError, HTTPClientError, NoCredentialsError, PartialCredentialsError
from fsspec.exceptions import FSTimeoutError

from paano.errors import (
    AccessDenied,
    Conflict,
    ObjectMissing,
    PaanoError,
    StorageError,
    StorageFull,
    StorageUnavailable,
)

_DENIED = {
    "AccessDenied",
    "AllAccessDisabled",
    "AccountProblem",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "InvalidSecurity",
    "NotSignedUp",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "AuthorizationHeaderMalformed",
    "401",
    "403",
}
_MISSING = {"NoSuchKey", "NoSuchVersion", "404"}
_CONFLICT = {"PreconditionFailed", "ConditionalRequestConflict", "412"}
_FULL = {
    "XMinioStorageFull",
    "InsufficientCapacity",
    "QuotaExceeded",
    "QuotaExceededException",
    "507",
}
_BUSY = {
    "SlowDown",
    "ServiceUnavailable",
    "InternalError",
    "RequestTimeout",
    "Throttling",
    "ThrottlingException",
    "OperationAborted",
    "RequestLimitExceeded",
    "TooManyRequests",
    "429",
    "500",
    "502",
    "503",
    "504",
}

# Lost or never made connections. TimeoutError covers sockets, aiohttp and asyncio alike.
_LOST = (
    HTTPClientError,
    aiohttp.ClientError,
    urllib3.exceptions.HTTPError,
    asyncio.IncompleteReadError,
    FSTimeoutError,
    TimeoutError,
    ConnectionError,
)
_LOST_NAMES = {
    "EndpointConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ConnectionClosedError",
    "IncompleteReadError",
    "ResponseStreamingError",
    "ResponseParserError",
}


@contextmanager
def named(where: str) -> Iterator[None]:
    """Turn a failure inside the block into a named error about the object `where`."""
    try:
        yield
    except PaanoError:
        raise
    except (
        OSError,
        BotoCoreError,
        aiohttp.ClientError,
        urllib3.exceptions.HTTPError,
        asyncio.IncompleteReadError,
    ) as error:
        raise name_error(error, where) from error


def name_error(error: BaseException, where: str) -> PaanoError:
    """The named error for `error`, which happened with the object `where`."""
    response = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
    if isinstance(response, dict):
        return _from_response(response, where)
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return AccessDenied(
            f"{where}: no complete credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "or a profile, or give the machine a role"
        )
    if isinstance(error, _LOST) or type(error).__name__ in _LOST_NAMES:
        return StorageUnavailable(
            f"{where}: the store did not answer ({type(error).__name__}); check the endpoint and the network"
        )
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFull(f"{where}: no space is left; free some or point to another disk")
    if isinstance(error, PermissionError) or number == errno.EROFS:
        return AccessDenied(f"{where}: not allowed; check the owner and the rights of the folder")
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return ObjectMissing(f"{where}: there is no such object")
    if number in (errno.EBUSY, errno.EAGAIN, errno.EIO, errno.ESTALE, errno.EHOSTUNREACH, errno.ENETUNREACH):
        return StorageUnavailable(f"{where}: the store did not answer ({errno.errorcode[number]})")
    text = errno.errorcode.get(number, type(error).__name__) if number else type(error).__name__
    return StorageError(f"{where}: the store refused ({text})")


def _from_response(response: dict[str, Any], where: str) -> PaanoError:
    """By the code of an S3 error; by the HTTP status where the code is one we do not know."""
    code = str(response.get("Error", {}).get("Code", ""))
    status = str(response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
    for known in (code, status):
        if known == "NoSuchBucket":
            return ObjectMissing(f"{where}: there is no such bucket; create it or correct the address")
        if known in _MISSING:
            return ObjectMissing(f"{where}: there is no such object")
        if known in _CONFLICT:
            return Conflict(f"{where}: somebody else wrote it first ({code})")
        if known in _DENIED:
            return AccessDenied(
                f"{where}: access denied ({code}); check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the "
                "rights of that key on the bucket"
            )
        if known in _FULL:
            return StorageFull(f"{where}: no space is left ({code}); free some or raise the quota")
        if known in _BUSY:
            return StorageUnavailable(f"{where}: the store is busy ({code}); it is tried again later")
    if code in ("PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraintException", "301"):
        return StorageError(f"{where}: the bucket is in another region ({code}); set AWS_REGION")
    if code == "RequestTimeTooSkewed":
        return StorageError(f"{where}: this machine's clock is wrong ({code})")
    return StorageError(f"{where}: the store refused ({code or status or 'no code'})")
