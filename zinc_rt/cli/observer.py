"""Observe a command from outside: `zinc-rt trace` records the engines that another command opens."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zinc_rt.cli.report import Report
    from zinc_rt.engine.engine import Engine


class CommandObserver:
    """The base observer, which ignores all events. Each command has one, `arguments.observer`."""

    records_engines = False
    """Whether the observer needs an engine to be opened, so that cached results must not be used."""

    def around_engine(self, engine: Engine) -> AbstractContextManager[object]:
        """Return a context manager that is active while an engine of the command is open."""
        return nullcontext()

    def report_begun(self, report: Report) -> None:
        """Called when the command begins a report, before its device and results are known."""


def make_observer(arguments: argparse.Namespace) -> CommandObserver:
    """Return the observer of the command with these arguments."""
    observer: CommandObserver = arguments.observer
    return observer
