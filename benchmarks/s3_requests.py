"""Every request to S3 that leaves this process, counted at the last place before the wire."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

Note = Callable[[str, str, int, int], None]  # operation, key or prefix, bytes written, bytes read


@contextlib.contextmanager
def watched_requests(note: Note) -> Iterator[None]:
    """Call `note` for each request of the block, from whichever thread sends it."""
    from aiobotocore.client import AioBaseClient

    from storage.objects.s3_get import Getter

    send, get, page = AioBaseClient._make_api_call, Getter.get, Getter.page

    async def noted_send(self: Any, operation: str, parameters: dict[str, Any]) -> Any:
        written = len(parameters.get("Body") or b"")  # before it is sent: botocore makes a stream of it
        answer = await send(self, operation, parameters)
        key = parameters.get("Key") or parameters.get("Prefix") or "other"
        read = answer.get("ContentLength", 0) if operation == "GetObject" else 0
        note(operation, key, written, read)
        return answer

    def noted_get(self: Any, key: str) -> tuple[bytes, str] | None:
        answer = get(self, key)
        if answer is not None:  # else s3fs asks, which is noted above
            note("GetObject", key, 0, len(answer[0]))
        return answer

    def noted_page(self: Any, prefix: str, *where: Any) -> Any:
        answer = page(self, prefix, *where)
        if answer is not None:
            note("ListObjectsV2", prefix or "other", 0, 0)
        return answer

    AioBaseClient._make_api_call, Getter.get, Getter.page = noted_send, noted_get, noted_page
    try:
        yield
    finally:
        AioBaseClient._make_api_call, Getter.get, Getter.page = send, get, page
