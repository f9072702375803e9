"""Object stores: one contract (`store.py: Store`), a local folder, S3, and whatever fsspec can reach.

To add a store, implement `Store` and name its scheme in `store.py: open_store`; `tests/storage` runs the same
suite on each.
"""
