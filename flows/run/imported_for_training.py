"""What training imports beside scoring, once for all worker processes: MLflow's client and matplotlib.

No thread may be started by it: the processes are forks.
"""

import jinja2  # noqa: F401
import matplotlib.backends.backend_agg
import matplotlib.dates
import matplotlib.figure  # noqa: F401
import requests  # noqa: F401
import sqlalchemy  # noqa: F401

import paano.evaluation.inject  # noqa: F401
import storage.registry.sqlite  # noqa: F401
