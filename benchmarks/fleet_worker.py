"""Imported by the server that worker processes are forked from: each of them counts what it does."""

import flows.run.imported  # noqa: F401
from benchmarks.fleet_parts import count_here

count_here()
