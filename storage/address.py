"""Addresses of stores: one spelling for each place."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit


def normal(url: str) -> str:
    """One spelling of an address: `s3a` is `s3`, a local folder is its real path."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return os.path.realpath(url) if url.startswith("/") else url
    if scheme == "file":
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            return url
        return os.path.realpath(unquote(parts.path))
    return f"{'s3' if scheme == 's3a' else scheme}://{rest.rstrip('/')}"
