"""How a run goes: the opened stores (`fleet.py`), batches (`plan.py`), where they run (`engine.py`), handing
them out (`fanout.py`), what became of each sensor (`outcome.py`), the report (`report.py`).
"""
