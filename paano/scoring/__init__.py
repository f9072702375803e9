"""Scoring: how unlike all training data is each row.

- Which patches does the model keep? `bank`
- How far is a patch from them, and how do patches give scores of rows? `shape`
- Has the series had this height and movement before? `level`, with `seen` (values) and `sliding` (windows)
"""
