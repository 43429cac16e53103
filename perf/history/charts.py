"""Charts of a series: inline SVG without any package, PNG with matplotlib."""

from __future__ import annotations

import html
from pathlib import Path

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.host.files import write_atomically
from zinc_rt.perf.history.trends import Series

WIDTH, HEIGHT = 640, 150
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 24
INK, FAINT, WORSE = "#0b68cb", "#687076", "#cd2b31"


def draw_svg(series: Series) -> str:
    """Draw the values in order, with the axis from zero and a line at each change of level."""
    values = series.values
    top = max(values) * 1.1 or 1.0
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def scale_x(index: float) -> float:
        return round(LEFT + plot_width * (index + 0.5) / len(values), 1)

    def scale_y(value: float) -> float:
        return round(TOP + plot_height * (1 - value / top), 1)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">']
    for value in (0.0, top / 2, top):
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{scale_y(value)}" y2="{scale_y(value)}" '
            'stroke="#e3e6e8"/>'
            f'<text x="{LEFT - 6}" y="{scale_y(value) + 4}" text-anchor="end" fill="{FAINT}" font-size="11">'
            f"{value:.3g}</text>"
        )
    worse = series.find_regression()
    for change in series.find_changes():
        colour = WORSE if change == worse else FAINT
        position = scale_x(change.index - 0.5)
        parts.append(
            f'<line x1="{position}" x2="{position}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="{colour}" '
            'stroke-dasharray="4 3"/>'
        )
    points = " ".join(f"{scale_x(index)},{scale_y(value)}" for index, value in enumerate(values))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{INK}" stroke-width="1.5"/>')
    for index, (value, entry) in enumerate(zip(values, series.entries, strict=True)):
        title = html.escape(f"{entry.at}: {value:.4g}, code {entry.context.get('code', '')[:8]}")
        parts.append(
            f'<circle cx="{scale_x(index)}" cy="{scale_y(value)}" r="3" '
            f'fill="{INK}"><title>{title}</title></circle>'
        )
    first, last = series.entries[0].at[:10], series.entries[-1].at[:10]
    for position, anchor, text in ((LEFT, "start", first), (WIDTH - RIGHT, "end", last)):
        parts.append(
            f'<text x="{position}" y="{HEIGHT - 6}" text-anchor="{anchor}" fill="{FAINT}" '
            f'font-size="11">{text}</text>'
        )
    return "".join([*parts, "</svg>"])


def write_plot(path: Path, every: list[Series]) -> None:
    """Write the chart. `path` ends in .html or .png. Raise UnsupportedError for another suffix, or if .png lacks
    matplotlib.
    """
    if path.suffix == ".html":
        body = "".join(f"<h3>{html.escape(series.title)}</h3>{draw_svg(series)}" for series in every)
        page = f'<!doctype html><meta charset="utf-8"><title>zinc-rt history</title><body>{body}'
        write_atomically(path, lambda file: file.write(page.encode()))
        return
    if path.suffix != ".png":
        raise UnsupportedError(f"{path}: expected a plot file with the suffix .html or .png")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError(
            "PNG plots need matplotlib", next="pip install 'zinc-rt[report]', or --plot F.html without it"
        ) from error
    figure = Figure(figsize=(8, 2.4 * len(every)), layout="constrained")
    for location, series in enumerate(every, 1):
        axes = figure.add_subplot(len(every), 1, location)
        axes.plot(range(1, len(series.values) + 1), series.values, marker="o")
        axes.set_title(series.title, fontsize=9)
        axes.set_ylim(bottom=0)
        for change in series.find_changes():
            axes.axvline(
                change.index + 0.5, linestyle="--", color=WORSE if change == series.find_regression() else FAINT
            )
    write_atomically(path, lambda file: figure.savefig(file, format="png"))
