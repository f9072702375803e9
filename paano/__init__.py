"""PaAno: anomaly scores for time series by patches, a small encoder and a memory bank.

>>> from paano import PaAno, PaAnoConfig
>>> model = PaAno(PaAnoConfig.preset("light")).fit(history)
>>> detection = model.detect(recent)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paano.config import PaAnoConfig

if TYPE_CHECKING:
    from paano.model import Detection, PaAno

__all__ = ["Detection", "PaAno", "PaAnoConfig"]


def __getattr__(name: str) -> Any:
    # torch takes a second to import; settings and errors alone must not wait for it.
    if name in ("PaAno", "Detection"):
        from paano import model

        return getattr(model, name)
    raise AttributeError(f"module 'paano' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
