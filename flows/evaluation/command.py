"""`paano evaluate`: judge PaAno as the benchmark does, on its files or on one's own.

paano evaluate FOLDER                     the TSB-AD protocol on a folder of its CSV files
paano evaluate --history sensor.parquet   no labels: faults injected into held-out data of a sensor
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from flows.cli.console import print_error, print_json
from flows.pages.escape import plain
from paano.config import PaAnoConfig
from paano.errors import ConfigError, PaanoError

if TYPE_CHECKING:
    from flows.evaluation.run import Job, Skip


def command(
    folder: Annotated[
        Path | None,
        typer.Argument(help="CSV files in the form of TSB-AD: NAME_tr_N_….csv, column Label last."),
    ] = None,
    preset: Annotated[
        str, typer.Option(help="Settings by name: paper, light, untrained, default.")
    ] = "default",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, as in the fleet file: model.width=0.5")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per file, each with a seed of its own.")] = 1,
    files: Annotated[str, typer.Option(help="Only files whose name matches, as in '*NAB*'.")] = "*",
    max_rows: Annotated[
        int | None, typer.Option(min=1, help="Only the first rows of each file: a quick look.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=0, help="Processes, one core each; 0: all cores. The results are the same.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results.parquet, scores.parquet and report.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Also sub-sequence PCA, k-means and an isolation forest.")
    ] = False,
    history: Annotated[
        str | None,
        typer.Option(help="An unlabelled sensor: CSV or Parquet file, or a fleet file with --sensor."),
    ] = None,
    sensor: Annotated[str | None, typer.Option(help="The sensor of a fleet file, with --history.")] = None,
    as_of: Annotated[
        str | None, typer.Option(help="The end of the history of a fleet's sensor (default: now).")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Do everything again, also what is kept.")] = False,
) -> None:
    """Judge PaAno by the TSB-AD benchmark's protocol, or on your own sensor by injected faults.

    A run can be stopped and taken up again with the same command: finished files are kept.
    """
    if (folder is None) == (history is None):
        raise typer.BadParameter("give either a FOLDER of labelled files or --history with one sensor")
    try:
        config = configured(preset, settings or [])
        if history is not None:
            from flows.evaluation.history import judge

            code = judge(
                history,
                sensor,
                config,
                as_of=as_of,
                seeds=seeds,
                max_rows=max_rows,
                out=out,
                as_json=as_json,
                device=device,
            )
        elif folder is not None:
            code = evaluate_folder(
                folder,
                config,
                title=" ".join([f"preset {preset}", *(settings or [])]),
                seeds=seeds,
                files=files,
                max_rows=max_rows,
                workers=workers,
                out=out,
                as_json=as_json,
                baseline=baseline,
                device=device,
                fresh=fresh,
            )
    except PaanoError as error:
        print_error(str(error))
        raise typer.Exit(2) from error
    except KeyboardInterrupt as error:
        typer.secho("stopped. What is finished is kept: the same command goes on from here.", err=True)
        raise typer.Exit(130) from error
    raise typer.Exit(code)


def configured(preset: str, changes: Iterable[str]) -> PaAnoConfig:
    """The settings of `preset` with `model.NAME=VALUE` changes on top."""
    found: dict[str, Any] = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals or not name.strip().startswith("model."):
            raise ConfigError(f"--set {change!r} is not of the form model.NAME=VALUE, as in model.width=0.5")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()  # a bare word is a text
        found[name.strip().removeprefix("model.")] = value
    return PaAnoConfig.preset(preset, **found)


def evaluate_folder(
    folder: Path,
    config: PaAnoConfig,
    *,
    title: str,
    seeds: int = 1,
    files: str = "*",
    max_rows: int | None = None,
    workers: int = 0,
    out: Path | None = None,
    as_json: bool = False,
    baseline: bool = False,
    device: str = "auto",
    fresh: bool = False,
) -> int:
    """Run the protocol on every file and show what came of it; 0 unless nothing did or something broke."""
    from flows.evaluation.run import Kept, default_folder, find_files, plan, run_jobs
    from flows.evaluation.summary import as_json as summary_json
    from flows.evaluation.summary import frame_of, open_screen, print_tables

    names = ("pca", "kmeans", "iforest") if baseline else ()
    jobs, skipped = plan(
        find_files(folder, files), config, seeds=seeds, baselines=names, max_rows=max_rows, device=device
    )
    kept = Kept(out / "kept" if out else default_folder())
    with _progress(jobs) as done:
        rows, refused = run_jobs(jobs, kept, workers=workers or cores(), fresh=fresh, done=done)
    skipped += refused
    frame = frame_of([row for _, row in rows]) if rows else None
    used = {
        "preset": title,
        "digest": config.digest,
        "seeds": seeds,
        "max_rows": max_rows,
        **config.to_dict(),
    }

    if out is not None and frame is not None:
        from flows.evaluation.page import write_out

        write_out(out, frame, rows, kept, title=title, skipped=skipped)
    if as_json:
        print_json(summary_json(frame, skipped, used))
    else:
        screen = open_screen()
        if frame is not None:
            print_tables(screen, frame, title)
        for skip in skipped:
            screen.print(Text.assemble(("skipped ", "yellow"), plain(skip.reason)))
        if out is not None and frame is not None:
            screen.print(f"written: {out}/results.parquet, scores.parquet, report.html")
    return 1 if frame is None or any(skip.fault for skip in skipped) else 0


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _progress(jobs: list[Job]) -> Iterator[Callable[[Job, dict[str, Any] | Skip, bool], None]]:
    """A bar on the error stream, with the time left by the rows done, not by the files done."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from flows.cli.console import errors
    from flows.evaluation.run import Skip

    columns = (
        TextColumn("{task.fields[files]}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[last]}", style="dim", markup=False),
    )
    with Progress(*columns, console=errors) as bar:
        total = sum(job.cost for job in jobs)
        task = bar.add_task("", total=total, files=f"0/{len(jobs)}", last="")
        finished = 0

        def done(job: Job, result: dict[str, Any] | Skip, was_kept: bool) -> None:
            nonlocal finished, total
            finished += 1
            if isinstance(result, Skip):
                last = f"skipped {plain(result.reason)}"
            else:
                last = f"{job.detector} {plain(job.file.removesuffix('.csv'))} VUS-PR {result['vus_pr']:.3f}"
            if was_kept:  # took no time: it must not make the rest look quick
                total -= job.cost
                bar.update(task, total=total, files=f"{finished}/{len(jobs)}", last=last)
            else:
                bar.update(task, advance=job.cost, files=f"{finished}/{len(jobs)}", last=last)

        yield done


def main() -> None:
    typer.run(command)


if __name__ == "__main__":
    main()
