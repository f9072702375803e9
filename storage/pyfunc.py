"""The code that travels with every registered version: MLflow runs this file, nothing is unpickled.

    mlflow.pyfunc.load_model("models:/plant.pump-17@champion").predict(frame)

`frame` has a column per channel, a row per grid point, NaN where a value is missing; a column `ts` is handed
back as it came. The answer has a row per row: `score` (NaN where there is none), `status`, `coverage`.
"""

from typing import Any

import mlflow
import pandas as pd

from paano import PaAno
from paano.device import torch_threads


class ScoringModel(mlflow.pyfunc.PythonModel):
    """A saved model behind MLflow's face."""

    def load_context(self, context: Any) -> None:
        self.model = PaAno.load(context.artifacts["model"], device="cpu")

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        names = self.model.facts.get("channel_names") or [c for c in model_input.columns if c != "ts"]
        missing = [name for name in names if name not in model_input.columns]
        if missing:
            raise ValueError(f"the column {missing[0]!r} is missing; this model needs {', '.join(names)}")
        values = model_input[names].to_numpy(dtype="float64", na_value=float("nan"))
        with torch_threads(1):
            found = self.model.detect(values)
        answer = {"score": found.score, "status": found.status, "coverage": found.coverage}
        if "ts" in model_input.columns:
            answer = {"ts": model_input["ts"].to_numpy(), **answer}
        return pd.DataFrame(answer, index=model_input.index)


mlflow.models.set_model(ScoringModel())
