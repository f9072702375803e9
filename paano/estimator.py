"""scikit-learn's conventions for PaAno.

scikit-learn and this library use two words differently, and both meanings are served:

    this library    `score(X)`              the anomaly score of each row: higher is *more* anomalous
    scikit-learn    `score_samples(X)`      minus that: higher is more normal
                    `decision_function(X)`  `score_samples(X) - offset_`: below 0 is an anomaly
                    `predict(X)`            −1 for an anomaly, 1 for all else

scikit-learn's checks count a column as a *feature*; it is a channel here. A row that has no score (no data)
is NaN in the first three and 1 in `predict`: a missing value is never an anomaly.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from paano.config import PaAnoConfig
from paano.errors import ConfigError, NotFitted
from paano.frames import Frame

if TYPE_CHECKING:
    from paano.alarms.calibrate import Calibration

PREFIX = "config__"  # of a single setting among the parameters


class ParameterError(ConfigError, ValueError):
    """A parameter is unknown or cannot have this value."""


class Estimator:
    """The part of PaAno that scikit-learn's tools call: `clone`, `Pipeline`, searches over parameters."""

    calibration: Calibration
    channels: int
    _given: dict[str, Any]  # the arguments of __init__ as they came

    def __init__(self, config: PaAnoConfig | None = None, device: str = "auto") -> None:
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None) -> Self:
        raise NotImplementedError

    def _scored(self, X: Any, origin: int = 0) -> tuple[Frame, np.ndarray]:
        raise NotImplementedError

    # -- parameters --

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of `PaAno(…)`; with `deep` also each setting, as `config__patch` and so on."""
        params = dict(self._given)
        if deep:
            config = self._given["config"] or PaAnoConfig.preset("default")
            params |= {PREFIX + name: value for name, value in config.to_dict().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change `config`, `device` or single settings (`config__patch=64`). The model is then not fitted.

        Raises:
            ParameterError: there is no such parameter, or a setting cannot have this value.
        """
        if not params:
            return self
        given = dict(self._given)
        settings = {n.removeprefix(PREFIX): v for n, v in params.items() if n.startswith(PREFIX)}
        for name, value in params.items():
            if name in given:
                given[name] = value
            elif not name.startswith(PREFIX):
                raise ParameterError(
                    f"PaAno has no parameter {name!r}; it has config, device and {PREFIX}NAME for a setting"
                )
        config = given["config"]
        if config is not None and not isinstance(config, PaAnoConfig):
            raise ParameterError(f"config = {config!r:.80} is not a PaAnoConfig")
        if not isinstance(given["device"], str):
            raise ParameterError(f"device = {given['device']!r:.80} is not the name of a device")
        try:
            if settings:
                given["config"] = (config or PaAnoConfig.preset("default")).replace(**settings)
            fresh = type(self)(**given)
        except ConfigError as error:
            raise ParameterError(str(error)) from error
        self.__dict__.clear()
        self.__dict__.update(fresh.__dict__)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type="outlier_detector",
            target_tags=TargetTags(required=False),
            input_tags=InputTags(allow_nan=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return "channels" in self.__dict__

    # -- decisions --

    @property
    def offset_(self) -> float:
        """Minus the score above which `predict` calls a row an anomaly.

        It is the score at which one event is expected in as many normal rows as the model was fitted on. For
        a threshold by events per 30 days, use `calibration.threshold(budget, interval_seconds)`.
        """
        if not self.__sklearn_is_fitted__():
            raise AttributeError("offset_ is there after fit() or load()")
        rows = self.calibration.scores
        if not rows:
            return -math.inf
        # a budget is for 30 days: with rows that far apart, the training rows take 30 days
        return -self.calibration.threshold(1.0, 30 * 86_400 / rows)

    def score_samples(self, X: Any) -> Any:
        """Minus the anomaly score of each row: higher is more normal, NaN where there is none."""
        frame, score = self._scored(X)
        return frame.answer(-score.astype(np.float64), "score_samples")

    def decision_function(self, X: Any) -> Any:
        """How far each row is from being an anomaly: below 0 for anomalies, NaN where there is no score."""
        frame, score = self._scored(X)
        return frame.answer(-score.astype(np.float64) - self.offset_, "decision_function")

    def predict(self, X: Any) -> Any:
        """−1 for each row that is an anomaly, 1 for all others, also for those without a score."""
        frame, score = self._scored(X)
        return frame.answer(np.where(-score.astype(np.float64) - self.offset_ < 0, -1, 1), "prediction")

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """`fit(X).predict(X)`."""
        return self.fit(X).predict(X)


def not_fitted(message: str) -> NotFitted:
    """A NotFitted that is scikit-learn's NotFittedError too."""
    from sklearn.exceptions import NotFittedError

    class ModelNotFitted(NotFitted, NotFittedError):  # type: ignore[misc]  # sklearn has no types
        """A model was asked to score before it was fitted."""

    return ModelNotFitted(message)


def check_names(model: Estimator, frame: Frame, *, fitting: bool) -> None:
    """Keep the names of a table's columns in `feature_names_in_` when fitting, compare them afterwards."""
    columns = frame.columns
    if fitting:
        model.__dict__.pop("feature_names_in_", None)
    elif not hasattr(model, "feature_names_in_"):
        return  # also after load(): `facts.channel_names` has the names there
    if columns is None:
        if fitting:
            return
        columns = np.reshape(frame.values, (len(frame.values), -1))
    from sklearn.utils.validation import validate_data

    validate_data(model, columns, reset=fitting, skip_check_array=True)
