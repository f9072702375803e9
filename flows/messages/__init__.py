"""Telling people: what there is to say (`compose.py`) and how it reads (`message.py`), where it goes
(`targets.py`), when it waits (`quiet.py`), and that it goes once (`send.py`, with
`storage/operations/sent.py`).
"""
