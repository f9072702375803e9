"""What people know and say about a fleet, beside what was measured.

`calendar.py` holds known periods (overhauls, shutdowns), `verdicts.py` a person's word about an event.
"""
