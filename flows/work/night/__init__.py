"""A night of sensors: `night.py` puts it together from `load.py`, `compute.py`, `rows.py` and `events.py`.

`days.py` says which days, `late_data.py` which past days changed, `unchanged.py` who needs no computing,
`silence.py` who stopped, `incidents.py` what belongs together, `edges.py` where a fault began and ended.
"""
