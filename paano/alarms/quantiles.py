"""The quantiles that are kept of a distribution of scores."""

from __future__ import annotations

import numpy as np

# Probabilities at which `quantiles` are kept: even in the middle, finer and finer towards the top.
GRID = tuple(
    [i / 100 for i in range(100)]
    + [0.9925, 0.995, 0.9975, 0.999, 0.9995, 0.99975, 0.9999, 0.99995, 0.99999]
    + [1.0]
)
GRID_ARRAY = np.array(GRID)
