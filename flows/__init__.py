"""When, where and in what batches: the Prefect flows stand here, one file each; the rooms below hold the
rest.

`work/` is what a task does, in plain functions; `run/` is how a run is planned, spread and reported;
`settings/` is the fleet file; `cli/` the command; `pages/` what people look at; `evaluation/` is `paano
evaluate`.
"""
