"""A page for one sensor: history, scores and events in one plot that can be zoomed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.parts import Parts
from storage.window import Window


def write_page(parts: Parts, page: dict[str, Any], path: Path) -> None:
    """Write a self-contained HTML file for what `looking.sensor_page` gave."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    window = Window.from_dict(page["window"])
    reading = parts.history.read(page["sensor"], window)
    scores = page["scores"]
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06, row_heights=[0.55, 0.45])
    for n, channel in enumerate(reading.channels):
        figure.add_trace(go.Scatter(x=reading.ts, y=reading.values[:, n], name=channel), row=1, col=1)
    times = [row["ts"] for row in scores]
    figure.add_trace(go.Scatter(x=times, y=[row["score"] for row in scores], name="score"), row=2, col=1)
    limit = [row["threshold"] for row in scores]
    figure.add_trace(go.Scatter(x=times, y=limit, name="threshold", line={"dash": "dash"}), row=2, col=1)
    for event in page["events"]:
        figure.add_vrect(
            x0=event["start"], x1=event["end"], fillcolor="red", opacity=0.15, line_width=0, row="all", col=1
        )
    figure.update_layout(title=f"{page['sensor']}, {window}", template="plotly_white", height=700)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.write_html(path, include_plotlyjs=True)
