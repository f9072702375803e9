"""The code that travels with every registered version: MLflow runs this file, nothing is unpickled.

    mlflow.pyfunc.load_model("models:/plant.pump-17@champion").predict(frame)

`frame` has a column per channel and a column `ts` (or a time index): time stamps, naive ones are UTC. Rows
may come in any order, with holes, repeated or a little off the grid, as in a history: they are put on the
model's grid as the nightly run does it. Without `ts` the rows are taken as neighbouring grid points. An array
or a list of rows has the channels in the order of the model.

The answer has a row for each row of `frame`, in its order: `score` (NaN where there is none), `threshold`,
`anomaly`, `status`, `coverage`. The threshold is the calibrated one for `params={"budget": …}` events per 30
days (1 by default), or `params={"threshold": …}`.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import mlflow.models
import numpy as np
import pandas as pd
from mlflow.pyfunc.model import PythonModel

from paano import PaAno
from paano.alarms.events import anomalous
from paano.device import compute_threads
from storage.history.grid import Grid, to_grid
from storage.window import Window

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LARGEST = 5_000_000  # grid points of one request
TIME = "ts"


class ScoringModel(PythonModel):
    """A saved model behind MLflow's face."""

    def load_context(self, context: Any) -> None:
        """Load the model from the version's own folder."""
        self.model = PaAno.load(context.artifacts["model"], device="cpu")

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Score, threshold, anomaly, status and coverage of each row of `model_input`.

        Raises:
            ValueError: a column is missing, or holds something that is not a number or a time.
        """
        frame, channels = self._frame(model_input)
        values = _numbers(frame, channels)
        stamps = _stamps(frame)
        with compute_threads(1):
            if stamps is None:
                found, slots = self.model.detect(values), np.arange(len(values))
            else:
                on_grid, first, slots = self._on_grid(stamps, values)
                found = self.model.detect(on_grid, origin=first)
        threshold = self._threshold(params or {})
        answer = {
            "score": np.asarray(found.score)[slots],
            "threshold": np.full(len(frame), threshold, dtype=np.float32),
            "anomaly": anomalous(found.score, found.status, threshold)[slots],
            "status": np.asarray(found.status)[slots].astype(str),
            "coverage": np.asarray(found.coverage)[slots],
        }
        if TIME in frame.columns:
            answer = {TIME: frame[TIME].to_numpy(), **answer}
        return pd.DataFrame(answer, index=frame.index)

    def _frame(self, given: Any) -> tuple[pd.DataFrame, list[str]]:
        """What was given as a table with named columns, and the names of the channels."""
        known = list(self.model.facts.get("channel_names") or [])
        if isinstance(given, pd.DataFrame):
            frame = given
        elif isinstance(given, pd.Series):
            frame = given.to_frame(known[0] if len(known) == 1 else given.name)
        elif isinstance(given, dict):
            frame = pd.DataFrame(given)
        else:
            try:
                array = np.asarray(given, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"a table, an array or a list of rows of numbers is needed: {error}"
                ) from None
            array = array[:, None] if array.ndim == 1 else array
            names = known or [f"c{n}" for n in range(self.model.channels)]
            if array.ndim != 2 or array.shape[1] != len(names):
                raise ValueError(
                    f"an array of shape {array.shape} is not rows of {len(names)} channels; this model needs "
                    f"{', '.join(names)} in this order, or a table with these columns and {TIME}"
                )
            frame = pd.DataFrame(array, columns=names)
        unnamed = list(range(len(frame.columns)))
        if known and len(known) == len(unnamed) and list(frame.columns) == unnamed:
            frame = frame.set_axis(known, axis=1)  # MLflow makes such a table of an array
        channels = known or [name for name in frame.columns if name != TIME]
        missing = [name for name in channels if name not in frame.columns]
        if missing:
            raise ValueError(f"the column {missing[0]!r} is missing; this model needs {', '.join(channels)}")
        if not len(frame):
            raise ValueError("there are no rows to score")
        return frame, channels

    def _on_grid(self, stamps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, int, np.ndarray]:
        """Values at the grid points, the number of the first since 1970, and the point of each row."""
        seconds = self.model.facts.get("interval_seconds")
        if seconds is None:
            raise ValueError(
                f"this model does not say its interval; leave out {TIME} and give every grid point"
            )
        step = timedelta(seconds=float(seconds))
        micro = step // timedelta(microseconds=1)
        # Grid points are multiples of the interval since 1970, as in the nightly run.
        first = (int(stamps.min()) + micro // 2) // micro
        last = (int(stamps.max()) + micro // 2) // micro
        if last - first >= LARGEST:
            raise ValueError(
                f"{TIME} spans {last - first + 1} steps of {step}; at most {LARGEST} are scored at once"
            )
        start = EPOCH + first * step
        grid = Grid.of(Window(start, start + (last - first + 1) * step), step, 0.5, timedelta(0))
        on_grid, _ = to_grid(stamps, values, grid)
        slots = np.clip((stamps - grid.first + micro // 2) // micro, 0, grid.count - 1)
        return on_grid, first, slots

    def _threshold(self, params: dict[str, Any]) -> float:
        if params.get("threshold") is not None:
            return float(params["threshold"])
        calibration = self.model.calibration
        seconds = self.model.facts.get("interval_seconds")
        if calibration is None or seconds is None:
            return float("inf")
        budget = params.get("budget")
        return float(calibration.threshold(1.0 if budget is None else float(budget), float(seconds)))


def _numbers(frame: pd.DataFrame, channels: list[str]) -> np.ndarray:
    try:
        return np.asarray(frame[channels].to_numpy(dtype="float64", na_value=float("nan")))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the columns {', '.join(channels)} must hold numbers: {error}") from None


def _stamps(frame: pd.DataFrame) -> np.ndarray | None:
    """Microseconds since 1970 of each row; None if the table has no times."""
    if TIME in frame.columns:
        column = frame[TIME]
    elif isinstance(frame.index, pd.DatetimeIndex):
        column = frame.index.to_series()
    else:
        return None
    if pd.api.types.is_numeric_dtype(column):
        raise ValueError(f"{TIME} holds numbers; give time stamps, such as 2026-01-31T12:00:00Z")
    try:
        times = pd.to_datetime(column, utc=True)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{TIME} holds something that is not a time stamp: {error}") from None
    if times.isna().any():
        raise ValueError(f"{TIME} is missing in {int(times.isna().sum())} rows")
    return np.asarray(times.dt.tz_localize(None).to_numpy()).astype("datetime64[us]").astype(np.int64)


mlflow.models.set_model(ScoringModel())
