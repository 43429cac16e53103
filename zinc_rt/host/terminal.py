"""Human-readable output: tables and lines, formatted for the output device.

On a terminal they have colour, headings in bold, and the terminal's width: long cells fold at words, and a table
that cannot be folded so far becomes a list of its rows. Everywhere else (a pipe, a file, TERM=dumb) they are plain
text in lines of full width, the same whoever reads them, without an escape code. NO_COLOR takes the colour away
and nothing else. With --format github or csv, tables are written in that format and lines go to stderr. What a
program reads is --json.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TextIO

from zinc_rt.host.table_format import find_table_writer, format_github

if TYPE_CHECKING:
    from rich.text import Text

GAP = 2  # cells between two columns
NARROWEST = 20  # a narrower terminal gets plain lines
LEAST_FOLDED = 28  # to less than this a column of words is folded only where it must, never below its longest word
GOOD, BAD, DIM, WARN, STRONG = "green", "bold red", "dim", "yellow", "bold"
# Styles of status words (a whole cell or a line's first word); words that guide the reader are bold.
STYLES = {
    **dict.fromkeys(("pass", "PASS", "usable", "ready"), GOOD),
    **dict.fromkeys(("fail", "FAIL", "FAILS", "HANGS", "BROKEN", "broken", "over", "error", "expired"), BAD),
    **dict.fromkeys(("skip", "skipped", "note", "hint", "ok"), DIM),
    **dict.fromkeys(
        ("flake", "warning", "shortcut", "blocked", "BLOCKED", "NOTHING", "SIMULATED", "waiting"), WARN
    ),
    **dict.fromkeys(
        ("cause", "advice", "repro", "next", "evidence", "suspect", "device", "tier", "known"), STRONG
    ),
}
COPIED = ("repro", "next", "next:", "run", "send", "zinc-rt", "python3")  # such lines are copied: never folded
_FIRST_WORDS = re.compile(r"( *)(\S+)(.*)", re.DOTALL)
_LABEL = re.compile(r" *\S+(?: \S+)?(?: {2,})|( +)")


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column. `right`: numbers. `width`: minimum width in cells, so that rows shown one at a time line
    up. `widest`: maximum width in cells, also in a pipe. `key`: its name with --format, if the text table has
    none.
    """

    name: str
    right: bool = False
    width: int = 0
    widest: int | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells by row, as text. `headings` False: for rows that continue a table, or need no headings."""

    columns: Sequence[str | Column]
    rows: Sequence[Sequence[object]]
    headings: bool = True

    def __str__(self) -> str:
        """The table in plain text of full width, as written to a pipe."""
        return _render_table(self, None, colour=False)


@dataclass(frozen=True, slots=True)
class Page:
    """A sequence of lines and tables that form one page."""

    parts: Sequence[str | Table]

    def __str__(self) -> str:
        """The page in plain text of full width."""
        return "\n".join(map(str, self.parts))


Part = str | Table | Page


def number_column(name: str) -> Column:
    """Return a right-aligned column for numbers."""
    return Column(name, right=True)


def show_table(
    columns: Sequence[str | Column], rows: Sequence[Sequence[object]], out: TextIO | None = None
) -> None:
    """Show a table on `out` (default: stdout)."""
    show(Table(columns, rows), out=out)


def show(*parts: Part, out: TextIO | None = None) -> None:
    """Show tables and lines on `out` (default: stdout), each part on separate lines, flushed. With --format github
    or csv only tables go to stdout, and lines to stderr."""
    stream = sys.stdout if out is None else out
    if find_table_writer() is not None:
        _show_formatted(parts, stream)
        return
    screen = Screen.of(stream)
    for part in parts:
        print(screen.render(part), file=stream, flush=True)


def _show_formatted(parts: Sequence[Part], stream: TextIO) -> None:
    """Write tables to `stream` in the format of --format, and lines to stderr if `stream` is stdout."""
    writer = find_table_writer()
    assert writer is not None
    for part in parts:
        if isinstance(part, Page):
            _show_formatted(part.parts, stream)
        elif isinstance(part, Table):
            print(writer.text(*_list_plain_cells(part), headings=part.headings), file=stream, flush=True)
        else:
            lines = sys.stderr if stream is sys.stdout else stream
            print(Screen.of(lines).render(part), file=lines, flush=True)


def _list_plain_cells(shown: Table) -> tuple[list[str], list[bool], list[list[str]]]:
    """Return the names of the columns, which of them are right-aligned, and the rows as printable text. A column
    without a name and without text, an indent, is left out."""
    columns = [_to_column(column) for column in shown.columns]
    rows = [[escape_controls(str(cell)) for cell in row] for row in shown.rows]
    names = [column.name or column.key for column in columns]
    kept = [index for index, name in enumerate(names) if name or any(row[index] for row in rows)]
    return (
        [names[at] for at in kept],
        [columns[at].right for at in kept],
        [[row[at] for at in kept] for row in rows],
    )


@dataclass(frozen=True, slots=True)
class Screen:
    """The output device: `width` in cells, None for unlimited lines."""

    width: int | None = None
    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str] = os.environ) -> Screen:
        asked = environ.get("COLUMNS", "")
        columns = int(asked) if asked.isdecimal() else 0
        if not is_terminal(stream, environ):
            return cls(columns if columns >= NARROWEST else None)
        try:
            width = os.get_terminal_size(stream.fileno()).columns
        except (OSError, ValueError):  # not a file, or a file without a terminal size
            width = 0
        width = columns or width or shutil.get_terminal_size().columns
        return cls(width if width >= NARROWEST else None, colour=not environ.get("NO_COLOR"))

    def render(self, part: Part) -> str:
        if isinstance(part, Page):
            return "\n".join(map(self.render, part.parts))
        if isinstance(part, Table):
            return _render_table(part, self.width, colour=self.colour)
        if self.width is None and not self.colour:
            return part
        return "\n".join(self._style_line(line) for line in part.split("\n"))

    def _style_line(self, line: str) -> str:
        if self.width is not None and len(line) > self.width and not _is_copied(line):
            line = "\n".join(
                textwrap.wrap(
                    line,
                    self.width,
                    subsequent_indent=" " * _measure_indent(line, self.width),
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
        return _render(style_line(line), None, colour=True) if self.colour and line.strip() else line


def is_terminal(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether `stream` is an interactive terminal with drawing support."""
    return stream.isatty() and environ.get("TERM", "") not in ("dumb", "unknown")


PLAIN_AFTER_SECONDS = 2.0
PLAIN_EVERY_SECONDS = 5.0


class PlainProgress:
    """Progress for a pipe or a file: plain lines, none in the first 2 s, then at most one every 5 s.

    `clock` gives seconds; tests pass their own.
    """

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out, self._clock = out, clock
        self._started = clock()
        self._next = self._started + PLAIN_AFTER_SECONDS

    def show(self, text: str, left: str = "") -> bool:
        """Print `text` with the elapsed time and the time left, unless it is too early. Return whether a line
        was printed."""
        now = self._clock()
        if not text or now < self._next:
            return False
        self._next = now + PLAIN_EVERY_SECONDS
        elapsed = timedelta(seconds=int(now - self._started))
        times = f"{elapsed}, {left}" if left else str(elapsed)
        print(f"progress  {escape_controls(text)}  {times}", file=self._out, flush=True)
        return True


def style_line(line: str) -> Text:
    """Return a line, or its wrapped form, with its first word in the colour of its meaning.

    Other words are labels only before a gap; PASS and FAIL are always verdicts.
    """
    from rich.text import Text

    text = Text(escape_controls(line))
    match = _FIRST_WORDS.match(line)
    if match is None:
        return text
    indent, word, rest = match.groups()
    known = word.rstrip(":")
    if known in STYLES and (rest.startswith("  ") or known.isupper() or word != known or not rest):
        text.stylize(
            f"bold {STYLES[known]}" if known.isupper() else STYLES[known], len(indent), len(indent + word)
        )
    return text


def escape_controls(text: str) -> str:
    """Escape control characters, which would affect the terminal; line ends are kept."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def format_markdown(shown: Table) -> str:
    """Return the table in Markdown."""
    return "\n".join(format_github(*_list_plain_cells(shown)))


def _is_copied(line: str) -> bool:
    words = line.split(maxsplit=1)
    return bool(words) and words[0] in COPIED


def _measure_indent(line: str, width: int) -> int:
    """Return the indentation of a wrapped line's continuation: the start of the text after its label."""
    match = _LABEL.match(line)
    indent = match.end() if match is not None else 0
    return indent if indent <= width // 3 else min(len(line) - len(line.lstrip()) + 2, width // 3)


def _to_column(column: str | Column) -> Column:
    return column if isinstance(column, Column) else Column(column)


def _render_table(shown: Table, width: int | None, *, colour: bool) -> str:
    columns = [_to_column(column) for column in shown.columns]
    cells = [[escape_controls(str(cell)) for cell in row] for row in shown.rows]
    heads = [column.name if shown.headings else "" for column in columns]
    natural = [
        max(column.width, *(_measure_cells(line) for text in texts for line in text.split("\n")))
        for column, texts in zip(columns, zip(heads, *cells, strict=True), strict=True)
    ]
    natural = [
        min(natural_width, column.widest or natural_width)
        for natural_width, column in zip(natural, columns, strict=True)
    ]
    if width is None:
        return _render(_make_rich_table(Table(columns, cells, shown.headings), None, natural), None, colour=colour)
    room = width - GAP * (len(columns) - 1)
    least_widths = [
        _find_least_width(column, natural_width, [row[index] for row in cells], last=index == len(columns) - 1)
        for index, (natural_width, column) in enumerate(zip(natural, columns, strict=True))
    ]
    if sum(least_widths) > room:
        return _render(_format_as_list(columns, cells, width), width, colour=colour)
    roomy = [
        max(narrow, min(natural_width, LEAST_FOLDED))
        for narrow, natural_width in zip(least_widths, natural, strict=True)
    ]
    least_widths = roomy if sum(roomy) <= room else least_widths
    while sum(natural) > room:  # the widest gives way first
        index = max(
            (index for index in range(len(natural)) if natural[index] > least_widths[index]),
            key=natural.__getitem__,
        )
        natural[index] -= 1
    return _render(_make_rich_table(Table(columns, cells, shown.headings), width, natural), width, colour=colour)


def _find_least_width(column: Column, natural: int, cells: Sequence[str], *, last: bool) -> int:
    """Return the minimum width of a column: its longest word, which may be broken only in the last column."""
    if column.right:
        return natural
    word = max(map(_measure_longest_word, cells), default=0)
    return min(natural, max(column.width, min(word, LEAST_FOLDED) if last else word))


def _make_rich_table(shown: Table, width: int | None, widths: Sequence[int]) -> Any:
    from rich.table import Table as RichTable

    table = RichTable(
        box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=shown.headings, header_style=STRONG
    )
    for item, cells in zip(shown.columns, widths, strict=True):
        column = _to_column(item)
        table.add_column(
            _make_text(column.name, ""),
            justify="right" if column.right else "left",
            width=cells or None,
            overflow="fold",
        )
    for row in shown.rows:
        table.add_row(*(_make_text(str(cell), _choose_style(str(cell))) for cell in row))
    return table


def _format_as_list(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> Any:
    """Return a list for terminals too narrow for the wrapped table: one labelled line per cell, rows separated."""
    from rich.padding import Padding
    from rich.table import Table as RichTable

    name_width = min(max(len(column.name) for column in columns), width // 3)  # 0: nothing has a name
    table = RichTable(box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=False)
    table.add_column(width=name_width, overflow="fold", style=DIM)
    table.add_column(width=width - name_width - GAP, overflow="fold")
    for index, row in enumerate(cells):
        if index and len(row) > 2:
            table.add_row("", "")
        for number, (column, cell) in enumerate(zip(columns, row, strict=True)):
            if cell:
                name = _make_text(column.name, "")
                table.add_row(
                    name,
                    Padding(_make_text(cell, _choose_style(cell)), (0, 0, 0, 2 * (number > 0 and not name_width))),
                )
    return table


def _choose_style(cell: str) -> str:
    """Return the style of a cell from its status word, alone or before a gap."""
    style = STYLES.get(cell.partition("  ")[0], "")
    return "" if style == STRONG else style


def _make_text(text: str, style: str) -> Text:
    from rich.text import Text

    styled = Text(text)
    styled.stylize(style)  # for the text only, not for the padding
    return styled


def _measure_cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _measure_longest_word(text: str) -> int:
    return max((_measure_cells(word) for word in text.split()), default=0)


def _render(drawn: Any, width: int | None, *, colour: bool) -> str:
    """Return rich's output as text, so that the caller handles a closed pipe or a full disk."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=width or 1_000_000,
        height=100,
        force_terminal=colour,
        color_system="standard" if colour else None,  # the sixteen that follow the terminal's theme
        no_color=False,
        force_jupyter=False,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    console.print(drawn, soft_wrap=width is None and hasattr(drawn, "plain"))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().removesuffix("\n").split("\n"))
