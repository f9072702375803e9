"""The page about `benchmarks.fleet`: its goals, what was measured of them, and the chart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS, PAGE, CHART = HERE / "fleet.json", HERE / "FLEET.md", HERE / "fleet.svg"
STARTUP = HERE / "startup.json"

GOALS: dict[str, dict[str, Any]] = {
    "night-100": {"sensors": 100, "points": 288},
    "night-500": {"sensors": 500, "points": 288},
    "night-500-threads": {"sensors": 500, "points": 288, "engine": "threads"},
    "night-500-minutes": {"sensors": 500, "points": 1440},
    "night-200-minutes": {"sensors": 200, "points": 1440},
    "night-2000": {"sensors": 2000, "points": 288},
    "night-500-long": {"sensors": 500, "points": 288, "layout": "long"},
    "night-500-dask": {"sensors": 500, "points": 288, "engine": "dask"},
    "retrain-40": {"sensors": 40, "points": 288, "what": "retrain"},
}


def known_results() -> dict[str, Any]:
    """What was measured before, by goal."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def largest(result: dict[str, Any]) -> float:
    """The memory in MB of the largest process that is ours: the flow's own, or one of its workers."""
    return float(max(result["peak_mb"].get(name, 0) for name in ("flow", "worker")))


def goal_rows(found: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """(goal, wanted, measured, reached) of everything that was measured."""
    rows: list[tuple[str, str, str, bool]] = []
    night, minutes, large = (found.get(n) for n in ("night-500", "night-500-minutes", "night-2000"))
    if night:
        reached = night["ratio"] <= 1.6 and night["overhead_ms"] <= 8
        text = f"{night['ratio']:.2f} ×, {night['overhead_ms']:.1f} ms"
        rows.append(("500 × 288", "≤ 1.6 × floor, ≤ 8 ms per sensor", text, reached))
    if minutes:
        rows.append(("500 × 1,440", "≤ 1.25 × floor", f"{minutes['ratio']:.2f} ×", minutes["ratio"] <= 1.25))
    if night and large:
        share = (large["seconds"] / 2000) / (night["seconds"] / 500)
        rows.append(("2,000 × 288", "cost per sensor within 10 % of 500", f"{share:.2f} ×", share <= 1.1))
    if night:
        rows.append(
            ("the same night again", "≤ 0.6 of the first", f"{night['again']:.2f}", night["again"] <= 0.6)
        )
    if train := found.get("retrain-40"):
        rows.append(("retraining 40", "≤ 1.25 × floor", f"{train['ratio']:.2f} ×", train["ratio"] <= 1.25))
    if night:
        busy, memory = night["cores_busy"], largest(night)
        whole = f", {night['machine_busy']:.0%} with the servers" if "machine_busy" in night else ""
        rows.append(("cores busy", "≥ 90 %", f"{busy:.0%}{whole}", busy >= 0.9))
        wanted, text = "< 1.5 GB", f"{memory:.0f} MB"
        if large:
            most = max(memory, largest(large))
            wanted, text = "< 1.5 GB, flat to 2,000", f"{memory:.0f}, {most:.0f} MB"
            memory = most
        rows.append(("memory of a worker", wanted, text, memory < 1536))
        rows.append(
            (
                "requests per sensor",
                "≤ 3",
                f"{night['requests_per_sensor']:.2f}",
                night["requests_per_sensor"] <= 3,
            )
        )
        most = max(night["objects"].values(), default=0)
        rows.append(("objects per night", "≤ sensors / 32 + 4", f"{most}", most <= 500 / 32 + 4))
    if tables := found.get("tables"):
        ratio, each = tables["bytes_ratio"], tables["each_batch_itself"]["bytes_ratio"]
        goal = f"long tables, {tables['sensors']:,} sensors in {tables['batches']} batches: bytes read"
        text = f"{ratio:.2f} × (each batch for itself: {each:.0f} ×)"
        rows.append((goal, "≤ 1.2 × their size", text, ratio <= 1.2))
    return rows


CHOICES = """\
## How it is measured

Flows run as commands run them. The process has scored the night before, or looked at what is due: it has its
imports, its Prefect and S3 clients, and the server that worker processes are forked from. A new process needs
about 3 seconds for them (`Start-up` below), of which the two that the server of the workers takes pass beside
the look at sensors and registry. The worker processes themselves are new in each run. CPU seconds are
those of this process and its workers, memory is looked at once a second.

## Choices

Figures here that no row above has were measured by hand while the change was made: with a profiler, or by
this command on an earlier state.

- **Processes for large runs, threads for small ones.** Threads of one process wait for each other's Python:
  with them a night keeps one and a half cores busy, with processes both. A process of Prefect's own pool, of
  Dask or of Ray imports for seconds before its first batch (500 sensors in turns, an earlier state: threads
  46 and 49 s, Prefect's process pool 56 s; two Dask processes 67 s beside 45 s). Ours are forks of one
  server, which imports once, beside the start of the flow (`flows/run/workers.py`): `night-500` and
  `night-500-threads` above. Clusters are for more than one machine.
- **One process for each core**, also for a training, of which a tenth waits for the registry: three on two
  cores took 81 s where two took 76, because the registry's and the store's own work fills the gaps.
- **No tag on a task, no heartbeat for a command's run.** For each tag of a task run Prefect's server is asked
  for a limit: tagged as `paano score` tags its runs, a night of 500 took 19 s where it now takes 15. And a
  run that sends heartbeats waits for their thread at its end, up to a second.
- **Threads fetch, one thread decodes and opens.** Eight threads that read small Parquet files took a core
  2.9 ms for a sensor, eight that fetch and one that decodes 2.0; sixteen that look into the cache of models
  0.5 ms, one 0.2.
- **What a batch is given is hidden from Prefect**, which looks for futures in every list, dict and
  dataclass, thing by thing: for 500 versions with their tags that was a second of a core.
- **The encoder outside Python's lock** (`paano/network/unlocked.py`): on threads 46 and 49 s before it, 41
  and 43 s with it.
- **Two batches for each core in a night on threads**, because half of a batch's time it waits: on two cores
  two batches at once took 41 and 44 s, three 39 s, four 38 s. torch has one thread in each.
- **No scoring of several sensors in one call on a CPU.** Every sensor has weights of its own, and one
  sensor's patches already run at the rate of a matrix product (`python -m benchmarks.method`,
  `score_of_gemm`): there is nothing left to gain. On a GPU, training is stacked
  (`paano/network/fused.py`).
- The bytes of a night count its report too, which reads the history of the sensors it shows again.
- **Why a night of 500 sensors of 288 points is not at 1.6, nor at 8 ms**: both cores have work for 95 % of
  its time, so only less of it would help. Of about 29 CPU seconds `detect` takes 17 and the three servers 3
  (half of it S3, for 1,200 requests). The other 9 are spread thin, in seconds: opening models 1.3, fetching
  1.0 and decoding 0.9 of two Parquet files of 4 kB for each sensor, the second look at events 0.6, threads of
  polars 0.4, imports of the two workers 0.4, tables 0.4, pages of the report 0.3, the flow itself 1 (Prefect,
  listing, plan, incidents, page), and about 2 in starting threads, handing over and the kernel. Of what is
  idle most is after the last batch (1 s for late data, incidents and the page, in which one core is busy).
  With 1,440 points the same work stands against four times the compute. The ratio of one night and its two
  floors differs by 0.05 to 0.15 from run to run (1.58 to 1.73 in five runs of one evening): the middle one of
  three nights is shown.
- **A retraining** has more than its floor, which is the `fit` calls alone: the review test (0.19 s of a core
  for each version), its pictures (0.16 s), reading 16 days and writing its files (0.1 s), and of the servers
  0.35 s, most of it MLflow's, for ten calls.
""".splitlines()


def write_report() -> None:
    """FLEET.md and its chart from the results."""
    found = known_results()
    rows = goal_rows(found)
    found = {name: found[name] for name in GOALS if name in found}  # runs of flows
    lines = [
        "# What a night costs beside its multiply-adds",
        "",
        "Made by `python -m benchmarks.fleet --goals` and `--report`, and for long tables `python -m",
        "benchmarks.tables --publish`; the figures are in `fleet.json`.",
        "The floor is the same `detect` (or `fit`) calls on all cores with models and history in memory,",
        "measured in the same run.",
        "",
        *sorted({f"Machine: {result['machine']}." for result in found.values()}),
        "",
        "| goal | wanted | measured | reached |",
        "|---|---|---|---|",
        *(
            f"| {goal} | {wanted} | {text} | {'yes' if reached else 'no'} |"
            for goal, wanted, text, reached in rows
        ),
        "",
        "![seconds by part](fleet.svg)",
        "",
        "| fleet | seconds | floor | ratio | per sensor | again | cores busy | worker MB | requests each |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, r in found.items():
        again = "–" if r["again"] is None else f"{r['again']:.2f}"
        cells = [
            name,
            f"{r['seconds']:.1f}",
            f"{r['floor_seconds']:.1f}",
            f"{r['ratio']:.2f}",
            f"{r['overhead_ms']:.1f} ms",
            again,
            f"{r['cores_busy']:.0%}",
            f"{largest(r):.0f}",
            f"{r['requests_per_sensor']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    missing = [name for name in GOALS if name not in found]
    lines += ["", f"Not measured: {', '.join(missing)}."] if missing else []
    single = [name for name, r in found.items() if r["what"] == "score" and "ratios" not in r]
    lines += ["", f"Of one night each, on a former state: {', '.join(single)}."] if single else []
    lines += ["", *CHOICES, "", "Seconds of all threads by part:", ""]
    for name, r in found.items():
        lines.append(f"- {name}: " + ", ".join(f"{part} {s:.1f}" for part, s in r["parts_seconds"].items()))
    PAGE.write_text("\n".join(lines + startup_lines()) + "\n")
    CHART.write_text(chart(found))


def startup_lines() -> list[str]:
    """The section about what `benchmarks.startup` measured; none if it was not run."""
    if not STARTUP.exists():
        return []
    found = json.loads(STARTUP.read_text())
    lines = [
        "",
        "## Start-up",
        "",
        "Made by `python -m benchmarks.startup --publish`: commands on the demo's fleet, everything warm",
        "but the process, the median of several runs. Without servers MLflow is a SQLite file, and `score`",
        "starts Prefect's server inside the command, which takes most of its time.",
        "",
        "| command | seconds | of CPU | wanted |",
        "|---|---|---|---|",
    ]
    wanted = {"help": "0.15 s", "status": "1.5 s of CPU", "status, servers": "1.5 s of CPU"}
    wanted["score, servers"] = "6 s"
    names = {"help": "--help", "score": "score pump-01", "score, servers": "score pump-01, servers"}
    for name, r in found.items():
        shown = f"paano {names.get(name, name)}".partition(", ")
        text = f"`{shown[0]}`{', with servers running' if shown[2] else ''}"
        lines.append(f"| {text} | {r['wall']:.2f} | {r['cpu']:.2f} | {wanted.get(name, '')} |")
    return lines


def chart(found: dict[str, Any]) -> str:
    """Bars of flow and floor for every result, as SVG."""
    colours = {"floor": "#4878a8", "beside it": "#d98c3f"}
    widest = max((r["seconds"] for r in found.values()), default=1.0)
    parts = []
    for n, (name, r) in enumerate(found.items()):
        y, scale = 30 + 34 * n, 520 / widest
        floor = min(r["floor_seconds"], r["seconds"])
        parts.append(f'<text x="150" y="{y + 14}" text-anchor="end">{name}</text>')
        parts.append(
            f'<rect x="160" y="{y}" width="{floor * scale:.1f}" height="20" fill="{colours["floor"]}"/>'
        )
        parts.append(
            f'<rect x="{160 + floor * scale:.1f}" y="{y}" width="{(r["seconds"] - floor) * scale:.1f}" '
            f'height="20" fill="{colours["beside it"]}"/>'
        )
        parts.append(f'<text x="{168 + r["seconds"] * scale:.1f}" y="{y + 14}">{r["seconds"]:.1f} s</text>')
    height = 60 + 34 * len(found)
    legend = "".join(
        f'<rect x="{160 + 140 * n}" y="8" width="12" height="12" fill="{colour}"/>'
        f'<text x="{178 + 140 * n}" y="18">{name}</text>'
        for n, (name, colour) in enumerate(colours.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" font-family="sans-serif" '
        f'font-size="13"><rect width="800" height="{height}" fill="white"/>{legend}{"".join(parts)}</svg>\n'
    )
