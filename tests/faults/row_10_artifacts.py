"""Row 10: hostile model folders, each loaded by a process that has 50 MB of memory left for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from paano import PaAno, PaAnoConfig
from tests.attacks import attacks
from tests.faults.tally import Row, Tally

ROOT = Path(__file__).resolve().parents[2]


def link(name: str, target: str) -> Callable[[Path], None]:
    def attack(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return attack


def flipped(name: str, share: float) -> Callable[[Path], None]:
    """One bit of a tensor file turned."""

    def attack(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[int(share * (len(data) - 1))] ^= 4
        (folder / name).write_bytes(data)

    return attack


def cut(name: str, share: float) -> Callable[[Path], None]:
    def attack(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(share * len(data))])

    return attack


TENSORS = (attacks.ENCODER, attacks.BANK)
TARGETS = ("/dev/zero", "/etc/passwd", "/dev/random", "..", "/proc/self/mem")
SHARES = (0.0, 0.001, 0.1, 0.5, 1.0)
FILES = (*TENSORS, attacks.MODEL)
MORE: dict[str, Callable[[Path], None]] = {
    **{f"link to {target} as {name}": link(name, target) for name in FILES for target in TARGETS},
    **{f"link to itself as {name}": link(name, name) for name in FILES},
    **{f"bit {share} of {name}": flipped(name, share) for name in TENSORS for share in SHARES},
    **{f"{share} of {name}": cut(name, share) for name in FILES for share in (0.0, 0.01, 0.5, 0.99)},
}


def run(tally: Tally, root: Path, short: bool) -> None:
    good = root / "good" / "model"
    config = PaAnoConfig(patch=16, width=0.0625, iterations=0)
    PaAno(config, "cpu").fit(np.sin(np.arange(200) / 3)).save(good)
    every = {attack.__name__: attack for attack in attacks.ALL} | MORE
    chosen = list(every)[::4] if short else list(every)
    chosen = [name for name in chosen if not short or name not in ("long_header", "huge_json")]
    chosen += ["bit 0.5 of encoder.safetensors"] * (short and "bit 0.5 of encoder.safetensors" not in chosen)
    folders = {"good": good}
    for number, name in enumerate(chosen):
        folders[name] = folder = root / str(number) / "model"
        shutil.copytree(good, folder)
        every[name](folder)
    lines = [json.dumps(["load", str(folder)]) for folder in folders.values()]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.attacks.loader"],
        input="\n".join([*lines, ""]),
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    said = [json.loads(line) for line in ran.stdout.splitlines()]
    if len(said) != len(folders):
        raise AssertionError(f"{len(said)} answers for {len(folders)} folders: {ran.stderr[-1500:]}")
    for (name, folder), answer in zip(folders.items(), said, strict=True):
        if name == "good":
            assert answer is None, f"the good model does not load: {answer}"
            continue
        with tally.trial("hostile model folders", name):
            assert answer is not None, "it was loaded"
            assert answer[0] == "ArtifactError", answer
            assert not (folder.parent / "PWNED").exists(), "it ran"


ROW = Row(
    10,
    "hostile artifacts (pickle renamed, giant header, overlapping tensors, NaN, wrong hash or shape, newer "
    "format, links)",
    "refused; resident memory grows under 50 MB, measured in a process of its own",
    run,
)
