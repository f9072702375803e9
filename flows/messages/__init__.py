"""Telling people: which message goes out when (`rules.py`), what it says (`message.py`), where it goes
(`targets.py`), and that it goes once (`send.py`, with `storage/operations/sent.py`).
"""
