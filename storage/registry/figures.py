"""The figures of a version that MLflow's tables sort, filter and draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LONGEST_PARAM = 500  # characters of a value that every MLflow backend holds
LARGEST_BATCH = 900  # metrics of one request; MLflow takes a thousand


@dataclass(frozen=True)
class VersionFigures:
    """What was measured of a version, and what it was made of. None or empty: not measured."""

    vus_pr: float | None = None  # of the review test, over all kinds of fault
    faults: Mapping[str, float] = field(default_factory=dict)  # VUS-PR by kind of fault
    alarms: float | None = None  # per 30 days, in the review test
    threshold: float | None = None  # by the fleet's alarm rule, when the version was made
    losses: Sequence[float] = ()  # of every training step
    fit_seconds: float | None = None
    params: Mapping[str, str] = field(default_factory=dict)  # settings that differ from the preset, window
    data_digest: str = ""  # of the history it was made of

    def metrics(self) -> dict[str, float]:
        """{name in MLflow: value}, finite ones only."""
        named: dict[str, float | None] = {
            "vus_pr": self.vus_pr,
            **{f"vus_pr.{fault}": value for fault, value in self.faults.items()},
            "alarms": self.alarms,
            "threshold": self.threshold,
            "loss": self.losses[-1] if self.losses else None,
            "fit_seconds": self.fit_seconds,
        }
        return {
            name: float(value) for name, value in named.items() if value is not None and math.isfinite(value)
        }

    def loss_curve(self) -> list[tuple[int, float]]:
        """[(step, loss)], at most as many as one request takes: of a longer training every n-th."""
        every = max(1, -(-len(self.losses) // LARGEST_BATCH))
        curve = [(step, float(loss)) for step, loss in enumerate(self.losses) if step % every == 0]
        return [(step, loss) for step, loss in curve if math.isfinite(loss)]

    def shown_params(self) -> dict[str, str]:
        """The params as MLflow holds them."""
        named = dict(self.params) | ({"data_digest": self.data_digest} if self.data_digest else {})
        return {key: str(value)[:LONGEST_PARAM] for key, value in list(named.items())[:100]}
