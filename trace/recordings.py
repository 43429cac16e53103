"""Create one recording for each engine that a command opens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from zinc_rt.cli.observer import CommandObserver
from zinc_rt.cli.output import format_size
from zinc_rt.cli.report import Report, Result
from zinc_rt.engine.engine import Engine
from zinc_rt.host.errors import OutputError, error_first_line
from zinc_rt.host.version import __version__
from zinc_rt.trace.recorder import Recorder, record
from zinc_rt.trace.records import EventRecord, Level
from zinc_rt.trace.writer import LogWriter


class Recordings(CommandObserver):
    """Records every engine of the observed command. The log of the first engine has the given name."""

    records_engines = True

    def __init__(
        self,
        path: str | Path,
        level: Level,
        *,
        embed_weights: bool = False,
        times: bool = False,
        argv: Sequence[str] = (),
        say: Callable[[str], None],
    ) -> None:
        self._path = Path(path)
        self._level: Level = level
        self._embed = embed_weights
        self._times = times
        self._argv = tuple(argv)
        self._say = say
        self.recorders: list[Recorder] = []
        self._reports: list[Report] = []
        self._results = 0
        self._failed = ""  # of a log of results

    @contextmanager
    def around_engine(self, engine: Engine) -> Iterator[Recorder]:
        number = len(self.recorders) + 1
        path = self._path if number == 1 else self._path.with_suffix(f".{number}{self._path.suffix}")
        with record(
            engine,
            path,
            self._level,
            embed_weights=self._embed,
            times=self._times,
            argv=self._argv,
            warn=self._say,
        ) as recorder:
            self.recorders.append(recorder)
            yield recorder

    def report_begun(self, report: Report) -> None:
        self._reports.append(report)

    def finish(self) -> None:
        """Record the results of a command that opened no engine, such as the probes, as events."""
        if self.recorders or not any(report.results for report in self._reports):
            return
        first = self._reports[0]
        meta = {
            "version": __version__,
            "started": first.started,
            "level": self._level,
            "argv": list(self._argv),
            "tier": "",
            "device": first.device,
        }
        try:
            with LogWriter(self._path, meta, warn=self._say) as log:
                for result in (result for report in self._reports for result in report.results):
                    log.write(_make_event(result))
                    self._results += not log.failed
        except OutputError as error:  # the command has run: what it ended with still counts
            self._say(str(error))
            self._failed = error_first_line(error)
            return
        self._failed = log.failed

    @property
    def complete(self) -> bool:
        """Return whether every log contains everything that was to be recorded."""
        return not self._failed and not any(recorder.failed for recorder in self.recorders)

    def summary(self) -> Iterator[str]:
        if self._failed:
            yield f"trace     {self._path}: {self._results} results, not all: {self._failed}"
        elif self._results:
            yield f"trace     {self._path}: {self._results} results, no engine was opened"
        elif not self.recorders:
            yield "trace     no engine was opened, nothing was recorded"
        for recorder in self.recorders:
            text = "" if self._level == "digest" or not recorder.kept else f"; {recorder.replay_command}"
            steps = f"{recorder.steps} steps"
            if recorder.failed:
                steps = f"{recorder.kept} of {steps}, the rest was lost: {recorder.failed}"
            yield f"trace     {recorder.path}: {steps}, {format_size(recorder.size_bytes)}{text}"


def _make_event(result: Result) -> EventRecord:
    detail = {
        "status": result.status,
        "reason": result.reason,
        "measure": result.measure,
        "limit": result.limit,
        "first_bad": result.first_bad,
        "cause": result.cause,
        "artifacts": result.artifacts,
    }
    text = json.dumps({name: value for name, value in detail.items() if value}, default=str)
    return EventRecord(f"{result.kind} {result.id}", text, 0.0)
