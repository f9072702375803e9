"""Long benchmarks that can be stopped and taken up again: benchmarks/resumable.py."""

from __future__ import annotations

from benchmarks.resumable import read_rows, run_tasks


def test_each_finished_task_is_a_line_and_is_read_back(tmp_path):
    out = tmp_path / "rows.jsonl"
    assert read_rows(None) == read_rows(out) == []
    found = list(run_tasks(dict, [[("file", "a")], [("file", "b")]], out, workers=1))
    assert [progress for progress, _ in found] == ["1/2", "2/2"]
    assert read_rows(out) == [row for _, row in found] == [{"file": "a"}, {"file": "b"}]
    assert list(run_tasks(dict, [], out, workers=1)) == []
    list(run_tasks(dict, [[("file", "c")]], out, workers=1))
    assert [row["file"] for row in read_rows(out)] == ["a", "b", "c"]
