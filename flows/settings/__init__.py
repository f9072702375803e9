"""The fleet file: its settings (`fleet_file.py`), the commented file (`template.py`), the page of settings
(`reference.py`), the variables of the environment (`variables.py`).
"""
