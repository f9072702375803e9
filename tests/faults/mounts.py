"""A small disk for one process: a tmpfs in a mount namespace of its own, gone with the process."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_RECURSIVE, _PRIVATE, _READ_ONLY, _REMOUNT = 0x4000, 1 << 18, 1, 32


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(code: int) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def small_disk(folder: Path, size: int, files: int = 100_000) -> None:
    """Mount room for `size` bytes and so many `files` at `folder`, seen by this process only.

    OSError where that is not allowed.
    """
    libc, user, group = _libc(), os.geteuid(), os.getegid()
    folder.mkdir(parents=True, exist_ok=True)
    _check(libc.unshare(_NEW_MOUNTS if user == 0 else _NEW_MOUNTS | _NEW_USER))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _check(libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None))
    _check(libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", 0, f"size={size},nr_inodes={files}".encode()))


def read_only(folder: Path, on: bool) -> None:
    """Make the small disk read-only, or writable again."""
    flags = _REMOUNT | (_READ_ONLY if on else 0)
    _check(_libc().mount(b"none", str(folder).encode(), None, flags, None))
