"""Who follows a command from outside: `zinc-rt trace` records the engines that another command opens, for one."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zinc_rt.cli.report import Report
    from zinc_rt.engine.engine import Engine


class CommandObserver:
    """Ignores everything: override what you need. Each command has one, `arguments.observer`."""

    records_engines = False
    """Whether a result that was kept from an earlier run will not do, since no engine is opened for it."""

    def around_engine(self, engine: Engine) -> AbstractContextManager[object]:
        """The context that an engine of the command lives in, entered once it is open."""
        return nullcontext()

    def report_begun(self, report: Report) -> None:
        """The command begins a report: its device and results are still to come."""


def observer_of(arguments: argparse.Namespace) -> CommandObserver:
    """The observer of the command that has these arguments."""
    observer: CommandObserver = arguments.observer
    return observer
