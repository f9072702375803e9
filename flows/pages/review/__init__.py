"""For a reviewer: which models need a look, and the sheet of a version with its figures."""
