"""The past of the sensors: which there are (`catalog.py`), where their rows lie (`layout.py`), what is read
of them (`rows.py`, `reader.py`) and how it comes onto a regular grid (`grid.py`).
"""
