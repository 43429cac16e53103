"""The format of a command's tables (--format): text for people, github (Markdown) and csv for other programs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

FORMATS = ("text", "github", "csv")
_GROUPED = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")  # 1,234,567.8


@dataclass(slots=True)
class TableWriter:
    """Writes the tables of one command. `last`: the column names of the previous table."""

    format: str
    last: tuple[str, ...] | None = None

    def text(
        self, names: Sequence[str], right: Sequence[bool], rows: Sequence[Sequence[str]], *, headings: bool
    ) -> str:
        """Return the table's lines, or "" if there are none. A table without headings that has the columns of the
        previous table continues it: only its rows are written. Any other table follows an empty line.
        """
        columns = tuple(names)
        continues = not headings and columns == self.last
        first, self.last = self.last is None, columns
        write = format_github if self.format == "github" else format_csv
        lines = write(names, right, rows)
        if continues:
            lines = lines[2 if self.format == "github" else any(names) :]
        return "\n".join(lines if first or continues else ["", *lines])


_WRITER: ContextVar[TableWriter | None] = ContextVar("zinc_rt_table_writer", default=None)


def find_table_writer() -> TableWriter | None:
    """Return the writer of the command that is running, or None for text."""
    return _WRITER.get()


@contextmanager
def use_table_format(name: str) -> Iterator[None]:
    """Write the tables of the `with` block in a format of FORMATS."""
    token = _WRITER.set(None if name == "text" else TableWriter(name))
    try:
        yield
    finally:
        _WRITER.reset(token)


def format_github(names: Sequence[str], right: Sequence[bool], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table; the first two are the heading."""
    from tabulate import tabulate

    text = tabulate(
        [[_escape_cell(cell) for cell in row] for row in [names, *rows]],
        headers="firstrow",
        tablefmt="github",
        disable_numparse=True,
        colalign=["right" if item else "left" for item in right] if rows else None,
    )
    return text.splitlines()


def format_csv(names: Sequence[str], right: Sequence[bool], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the records of a CSV table, without a heading if no column has a name. Numbers of right-aligned
    columns have no thousands separators."""
    records = []
    cells = [
        [_ungroup_number(cell) if number else cell for cell, number in zip(row, right, strict=True)]
        for row in rows
    ]
    for row in [*([list(names)] if any(names) else []), *cells]:
        out = io.StringIO()
        csv.writer(out, lineterminator="").writerow(row)
        records.append(out.getvalue())
    return records


def _ungroup_number(text: str) -> str:
    return text.replace(",", "") if _GROUPED.fullmatch(text) else text


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")
