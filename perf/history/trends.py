"""The series of a history: comparable figures, and regressions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.report import import_pandas
from zinc_rt.host.files import write_atomically
from zinc_rt.perf.history.chain import LOWER_IS_BETTER, HistoryEntry
from zinc_rt.perf.intervals import LevelChange, find_change_points

if TYPE_CHECKING:
    import pandas

WORSE = 0.03  # a level that is this much worse is a regression
NOT_COMPARED = ("code",)  # of an entry's context: the variables whose changes a series shows


@dataclass(frozen=True, slots=True)
class Series:
    """One figure of one workload on one device, oldest first."""

    figure: str
    context: dict[str, Any]
    entries: tuple[HistoryEntry, ...]

    @property
    def values(self) -> list[float]:
        return [entry.figures[self.figure] for entry in self.entries]

    @property
    def title(self) -> str:
        where = " (simulated)" if self.context["simulated"] else ""
        device = f"{self.context['tier']} on {self.context['device']}{where}"
        return f"{self.figure}, {device}, model {self.context['model'][:8]}"

    def find_changes(self) -> list[LevelChange]:
        return find_change_points(self.values)

    def find_regression(self) -> LevelChange | None:
        """Return the last change of level if it is for the worse."""
        changes = self.find_changes()
        if not changes:
            return None
        worse = changes[-1].ratio - 1 if self.figure in LOWER_IS_BETTER else 1 - changes[-1].ratio
        return changes[-1] if worse > WORSE else None


def group_series(entries: Sequence[HistoryEntry], figure: str = "") -> list[Series]:
    """Group entries of the same context by figure; if `figure` is set, only its entries."""
    groups: dict[tuple[str, str], list[HistoryEntry]] = {}
    for entry in entries:
        context = {name: value for name, value in entry.context.items() if name not in NOT_COMPARED}
        for name in entry.figures:
            if figure in ("", name):
                groups.setdefault((name, json.dumps(context, sort_keys=True)), []).append(entry)
    return [Series(name, json.loads(text), tuple(group)) for (name, text), group in groups.items()]


def build_frame(entries: Sequence[HistoryEntry]) -> pandas.DataFrame:
    """Return one row per entry; `workload` becomes columns such as `workload_ctx`. Raises UnsupportedError if
    pandas is not installed."""
    rows = [{"sequence": e.sequence, "at": e.at, "report": e.report, **e.figures, **e.context} for e in entries]
    table: pandas.DataFrame = import_pandas().json_normalize(rows, sep="_")
    return table


def write_csv(path: Path, entries: Sequence[HistoryEntry], figure: str = "") -> int:
    """Write the frame as CSV, atomically; if `figure` is set, only its column and entries. Return the number of
    rows. Raises UnsupportedError if pandas is not installed, OutputError if the file cannot be written."""
    table = build_frame(entries)
    if figure:
        others = {name for entry in entries for name in entry.figures} - {figure}
        table = table.drop(columns=sorted(others & set(table.columns)))
        table = table.dropna(subset=[figure]) if figure in table.columns else table.iloc[:0]
    text = table.to_csv(index=False)
    write_atomically(path, lambda file: file.write(text.encode()))
    return len(table)
