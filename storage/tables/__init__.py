"""Tables by date and shard (`day_table.py`): scores, events and runs; closed days are joined by
`compaction.py`.
"""
