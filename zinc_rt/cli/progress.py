"""Progress on stderr, for work of more than two seconds.

A terminal shows one live display; nested work adds a line below it. A pipe or file gets plain lines from the
commands that ask for them.

    model 2 of 3: qwen3-q, t1  0:00:31
    prompt  ━━━━━━━━━╸━━━━━━━━━━  412/1024 token  0:00:12, 0:00:18 left
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from zinc_rt.backends.precompile import on_compile
from zinc_rt.host.terminal import PlainProgress, is_terminal

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

SHOWN_AFTER_SECONDS = 2.0
REFRESH_SECONDS = 0.5
BAR_CELLS = 20
LEAST_TEXT = 12  # cells, on a narrow terminal


@dataclass(slots=True)
class ProgressLine:
    """An activity in progress. `total` is None if unknown. `expected_seconds`: its duration in an earlier run."""

    text: str
    total: int | None = None
    unit: str = ""
    done: int = 0
    started: float = field(default_factory=time.monotonic)
    expected_seconds: float = 0.0

    def count(self) -> str:
        if self.total is None:
            return ""
        if self.unit == "B":
            from rich.filesize import decimal

            return f"{decimal(self.done)} of {decimal(self.total)}"
        return f"{self.done}/{self.total} {self.unit}"

    def clock(self) -> str:
        elapsed = str(timedelta(seconds=int(time.monotonic() - self.started)))
        return ", ".join(filter(None, (elapsed, self.left())))

    def left(self) -> str:
        """Return the estimated time left, or "" if it is unknown."""
        elapsed = time.monotonic() - self.started
        if self.total and 0 < self.done < self.total:
            seconds = elapsed * (self.total - self.done) / self.done
        elif self.expected_seconds > elapsed:
            seconds = self.expected_seconds - elapsed
        else:
            return ""
        return f"{timedelta(seconds=int(seconds))} left"


class Display:
    """Lines on stderr, drawn by a thread so that the clock advances during a long step. They appear after a
    delay, and are removed while the command prints."""

    def __init__(self) -> None:
        self.lines: list[ProgressLine] = []
        self.hidden = False
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._compiling = ProgressLine("")
        self._live: Live | None = None
        self._width = 80
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def show_compiling(self, done: int, total: int) -> None:
        """Show a separate line while a simulated device compiles kernels."""
        if not done:
            self._compiling = ProgressLine("")
            self.lines.append(self._compiling)
        self._compiling.text = f"compiling kernel {done + 1} of {total}"
        if done == total and self._compiling in self.lines:
            self.lines.remove(self._compiling)

    def hide(self) -> None:
        with self._lock:
            self.hidden = True
            self._stop()

    def end(self) -> None:
        self._finished.set()
        self._thread.join()
        self._stop()

    def _run(self) -> None:
        wait = SHOWN_AFTER_SECONDS
        while not self._finished.wait(wait):
            wait = REFRESH_SECONDS
            with self._lock:
                if not self.hidden:
                    self._draw()

    def _draw(self) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            both = sys.stdout.isatty()  # words of the command's own go above; a pipe keeps its own
            console = Console(file=sys.stderr, force_terminal=True)
            self._live = Live(
                console=console,
                auto_refresh=False,
                transient=True,
                get_renderable=self._render,
                redirect_stdout=both,
            )
            self._live.start()
        self._width = self._live.console.width
        self._live.refresh()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        shown = [line for line in self.lines if line.text]
        counted = [line for line in shown if line.total is not None]
        figures = max((len(line.count()) + len(line.clock()) for line in counted), default=0)
        bars = Table.grid(padding=(0, 2, 0, 0))
        bars.add_column(max_width=max(self._width - figures - BAR_CELLS - 7, LEAST_TEXT), no_wrap=True)
        for _ in range(3):
            bars.add_column(no_wrap=True)
        for line in counted:
            bar = ProgressBar(line.total, line.done, width=BAR_CELLS)
            bars.add_row(Text(line.text), bar, line.count(), Text(line.clock(), "dim"))
        parts = [
            Text.assemble(line.text, "  ", (line.clock(), "dim"), no_wrap=True, overflow="ellipsis")
            for line in shown
            if line.total is None
        ]
        return Group(*parts, *([bars] if counted else []))


_display: ContextVar[Display | None] = ContextVar("display", default=None)
_plain: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def show_progress(
    total: int, label: str, unit: str = "token", *, plain: bool = False
) -> Iterator[Callable[[int], None]]:
    """Yield `advance(count)`, which counts towards `total` while the body runs.

    Without a terminal nothing is shown, or with `plain` a line of text every few seconds.
    """
    line = ProgressLine(label, total, unit)

    def advance(count: int) -> None:
        line.done += count

    with _show_display(line, plain=plain):
        yield advance


@dataclass(frozen=True, slots=True)
class ProgressStage:
    """A stage whose text changes."""

    line: ProgressLine
    display: Display | None

    def say(self, text: str) -> None:
        """Set the text. If the stage is counted, the preceding piece of work is done."""
        if self.line.total is not None and self.line.text:
            self.line.done += 1
        self.line.text = text
        if self.display is not None:
            self.display.hidden = False

    def clear(self) -> None:
        """Remove the progress from the terminal before the command prints."""
        if self.display is not None:
            self.display.hide()


@contextmanager
def show_stages(total: int | None = None, unit: str = "", *, plain: bool = False) -> Iterator[ProgressStage]:
    """Yield a stage whose `say("model 2 of 3: ...")` sets the text while the body runs. `total`: the number of
    calls of `say`, if known.

    Without a terminal nothing is shown, or with `plain` a line of text every few seconds.
    """
    line = ProgressLine("", total, unit)
    with _show_display(line, plain=plain) as display:
        yield ProgressStage(line, display)


@contextmanager
def print_plain_lines(line: ProgressLine) -> Iterator[None]:
    """Print `line` on stderr every few seconds while the body runs, without escape codes.

    An enclosing call prints for nested calls.
    """
    if _plain.get():
        yield
        return
    shown, finished = PlainProgress(sys.stderr), threading.Event()

    def show_until_finished() -> None:
        while not finished.wait(REFRESH_SECONDS):
            shown.show("  ".join(filter(None, (line.text, line.count()))), line.left())

    thread = threading.Thread(target=show_until_finished, daemon=True)
    token = _plain.set(True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
        _plain.reset(token)


@contextmanager
def _show_display(line: ProgressLine, *, plain: bool) -> Iterator[Display | None]:
    if not is_terminal(sys.stderr):
        with print_plain_lines(line) if plain else nullcontext():
            yield None
        return
    outer = _display.get()
    display = outer or Display()
    display.lines.append(line)
    display.hidden = False
    token, compile_token = _display.set(display), on_compile.set(display.show_compiling)
    if outer is None:
        display.start()
    try:
        yield display
    finally:
        _display.reset(token)
        on_compile.reset(compile_token)
        display.lines.remove(line)
        if outer is None:
            display.end()
