"""The paper's own figures, to be shown beside ours and never mixed with them.

They are means over ten runs on the *evaluation* split of TSB-AD: per subset and overall from table E.1 of
the appendix, the next best from table E.2.
"""

from __future__ import annotations

from collections.abc import Iterable

UNIVARIATE, MULTIVARIATE = "TSB-AD-U", "TSB-AD-M"

# The order of the paper's columns.
COLUMNS = ("vus_pr", "vus_roc", "range_f1", "auc_pr", "auc_roc", "point_f1")

# Number of series, then the measures.
SUBSETS: dict[str, dict[str, tuple[float, ...]]] = {
    UNIVARIATE: {
        "UCR": (70, 0.3707, 0.9252, 0.4488, 0.3670, 0.9176, 0.4235),
        "YAHOO": (30, 0.7011, 0.9481, 0.3201, 0.5847, 0.9458, 0.6263),
        "WSD": (20, 0.5118, 0.9337, 0.5845, 0.4492, 0.9247, 0.4864),
        "CATSv2": (1, 0.3196, 0.7550, 0.1986, 0.4890, 0.7485, 0.5396),
        "Daphnet": (1, 0.3370, 0.9143, 0.3430, 0.3381, 0.9214, 0.4354),
        "Exathlon": (30, 0.8271, 0.9640, 0.6395, 0.8206, 0.9625, 0.8380),
        "IOPS": (15, 0.3199, 0.8959, 0.3985, 0.2284, 0.8663, 0.3137),
        "LTDB": (8, 0.7000, 0.8176, 0.6790, 0.6325, 0.7895, 0.6662),
        "MGAB": (8, 0.2749, 0.9542, 0.4185, 0.2698, 0.9542, 0.3525),
        "MITDB": (7, 0.4382, 0.9087, 0.4214, 0.3734, 0.8686, 0.4405),
        "MSL": (7, 0.2527, 0.7159, 0.3783, 0.2283, 0.6701, 0.3281),
        "NAB": (23, 0.5040, 0.7864, 0.5771, 0.4907, 0.7682, 0.5404),
        "NEK": (8, 0.5614, 0.7394, 0.5944, 0.5906, 0.7638, 0.6347),
        "OPPORTUNITY": (27, 0.2698, 0.6920, 0.3663, 0.2763, 0.6866, 0.3410),
        "Power": (1, 0.1898, 0.6634, 0.2491, 0.1953, 0.6427, 0.2744),
        "SED": (2, 0.9492, 0.9984, 0.8344, 0.7940, 0.9937, 0.8159),
        "SMAP": (17, 0.8065, 0.9199, 0.7738, 0.7931, 0.9167, 0.7709),
        "SMD": (33, 0.4935, 0.9218, 0.5490, 0.4603, 0.9207, 0.5253),
        "Stock": (8, 0.7164, 0.8414, 0.1257, 0.0821, 0.4927, 0.1511),
        "SVDB": (18, 0.7069, 0.9813, 0.6203, 0.6417, 0.9704, 0.6613),
        "SWaT": (1, 0.0962, 0.1758, 0.1136, 0.0965, 0.1954, 0.2153),
        "TAO": (2, 0.8748, 0.9341, 0.2025, 0.1156, 0.5035, 0.2099),
        "TODS": (13, 0.7301, 0.8760, 0.2946, 0.3752, 0.7856, 0.4181),
    },
    MULTIVARIATE: {
        "CATSv2": (5, 0.0690, 0.6881, 0.1381, 0.0744, 0.6813, 0.1285),
        "CreditCard": (1, 0.0343, 0.5558, 0.0351, 0.0068, 0.5652, 0.0416),
        "Daphnet": (1, 0.2706, 0.8925, 0.3117, 0.2564, 0.9052, 0.4189),
        "Exathlon": (25, 0.7769, 0.9545, 0.6045, 0.7482, 0.9518, 0.8357),
        "GECCO": (1, 0.1601, 0.8727, 0.2268, 0.2192, 0.9050, 0.2959),
        "GHL": (23, 0.0085, 0.3391, 0.0240, 0.0073, 0.3090, 0.0241),
        "Genesis": (1, 0.2964, 0.9902, 0.2930, 0.1945, 0.9867, 0.3023),
        "LTDB": (4, 0.6066, 0.8640, 0.5965, 0.5856, 0.8327, 0.5861),
        "MITDB": (11, 0.3841, 0.8803, 0.4647, 0.4264, 0.8567, 0.4864),
        "MSL": (14, 0.2416, 0.7768, 0.3630, 0.1969, 0.7498, 0.2937),
        "OPPORTUNITY": (7, 0.1701, 0.6069, 0.3463, 0.1646, 0.5810, 0.2134),
        "PSM": (1, 0.2033, 0.6597, 0.2749, 0.1839, 0.6571, 0.2621),
        "SMAP": (25, 0.5363, 0.9009, 0.5860, 0.5220, 0.9055, 0.5428),
        "SMD": (20, 0.3545, 0.8479, 0.4044, 0.3850, 0.8728, 0.4445),
        "SVDB": (28, 0.5574, 0.9050, 0.5436, 0.5259, 0.8814, 0.5496),
        "SWaT": (2, 0.2428, 0.6864, 0.3421, 0.2174, 0.6679, 0.3213),
        "TAO": (11, 0.7273, 0.8535, 0.1848, 0.0849, 0.4966, 0.1591),
    },
}

OVERALL: dict[str, tuple[float, ...]] = {
    UNIVARIATE: (0.5296, 0.8877, 0.4869, 0.4682, 0.8660, 0.5164),
    MULTIVARIATE: (0.4263, 0.7940, 0.4065, 0.3772, 0.7623, 0.4275),
}

# The best of the other methods, for each measure on its own (two digits are all that is published).
NEXT_BEST: dict[str, tuple[tuple[float, str], ...]] = {
    UNIVARIATE: (
        (0.42, "Sub-PCA"),
        (0.82, "KAN-AD"),
        (0.43, "KAN-AD"),
        (0.41, "KAN-AD"),
        (0.80, "KAN-AD"),
        (0.44, "KAN-AD"),
    ),
    MULTIVARIATE: (
        (0.40, "KAN-AD"),
        (0.76, "KAN-AD"),
        (0.41, "KAN-AD"),
        (0.35, "KAN-AD"),
        (0.73, "KAN-AD"),
        (0.40, "KAN-AD"),
    ),
}


def collection_of(channels: int) -> str:
    """The half of the benchmark that a series belongs to."""
    return UNIVARIATE if channels == 1 else MULTIVARIATE


def of_subset(collection: str, subset: str) -> dict[str, float] | None:
    """The published figures of a subset, or None where the paper has none."""
    figures = SUBSETS[collection].get(subset)
    return dict(zip(COLUMNS, figures[1:], strict=True)) if figures else None


def series_of(collection: str, subset: str | None = None) -> int:
    """How many series the published figures of a subset, or of a whole collection, are the mean of."""
    if subset is not None:
        return int(SUBSETS[collection][subset][0])
    return sum(int(figures[0]) for figures in SUBSETS[collection].values())


def overall(collection: str) -> dict[str, float]:
    return dict(zip(COLUMNS, OVERALL[collection], strict=True))


def next_best(collection: str) -> dict[str, tuple[float, str]]:
    return dict(zip(COLUMNS, NEXT_BEST[collection], strict=True))


def same_subsets(collection: str, subsets: Iterable[str]) -> dict[str, float] | None:
    """The published figures averaged over `subsets`, one entry for each of our files.

    So a mean over our files stands beside a mean with the same weights. None unless every one is published.
    """
    figures = [of_subset(collection, subset) for subset in subsets]
    if not figures or not all(figures):
        return None
    return {name: sum(f[name] for f in figures if f) / len(figures) for name in COLUMNS}
