"""A debugger that a test drives: scripts of `zinc-rt debug` on one compiled kernel."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.cli.debug import main


@dataclass(frozen=True)
class Debugged:
    """`records`: the JSON objects of the stops and values; `error`: what was written to stderr."""

    code: int
    records: list[dict[str, Any]]
    error: str

    @property
    def stop_records(self) -> list[dict[str, Any]]:
        return [record for record in self.records if record["record"] == "stop"]

    @property
    def printed_values(self) -> list[list[Any]]:
        return [record["values"] for record in self.records if record["record"] == "value"]

    def stop_lines(self) -> list[int]:
        """Return the line of each stop, 0 after the end."""
        return [int(stop.get("line", "0").rpartition(":")[2] or 0) for stop in self.stop_records]


class Script:
    """Runs scripts on one kernel with these arguments."""

    def __init__(self, capsys: pytest.CaptureFixture[str], code: Path, *arguments: str) -> None:
        self._capsys, self._words = capsys, [str(code), *arguments]

    def __call__(self, *commands: str, options: Sequence[str] = ()) -> Debugged:
        words = [word for command in commands for word in ("--command", command)]
        code = main([*self._words, *options, "--json", *words])
        seen = self._capsys.readouterr()
        return Debugged(code, [json.loads(line) for line in seen.out.splitlines()], seen.err)

    def text(self, *commands: str, options: Sequence[str] = ()) -> str:
        words = [word for command in commands for word in ("--command", command)]
        main([*self._words, *options, *words])
        return self._capsys.readouterr().out
