"""The one report every command writes with --json: schema zinc-rt-report/1."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from zinc_rt.host.files import write_whole
from zinc_rt.host.version import __version__

SCHEMA = "zinc-rt-report/1"
Status = Literal["pass", "fail", "skip", "flake", "blocked"]


@dataclass(slots=True)
class Result:
    """One thing that was checked. `measure` holds what was found, `limit` what was allowed."""

    id: str
    kind: str
    status: Status
    tier: str = ""
    reference: str = ""
    reason: str = ""
    measure: dict[str, Any] = field(default_factory=dict)
    limit: dict[str, Any] = field(default_factory=dict)
    first_bad: dict[str, Any] = field(default_factory=dict)
    cause: str = ""
    advice: str = ""
    repro: str = ""
    artifacts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    command: str
    device: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    ordering: str = ""
    ctx: int = 0
    shortcuts: list[str] = field(default_factory=list)
    # What did the model's arithmetic, and how much of it: the original asks for these beside every number.
    model_execution: str = ""
    direct_compute_ops: int = 0
    direct_compute_kind: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    _clock: float = field(default_factory=time.monotonic)

    @property
    def simulated(self) -> bool:
        """Whether a simulated device had a part in it."""
        return bool(self.device.get("simulated")) or bool(self.simulated_tiers())

    def simulated_tiers(self) -> list[str]:
        """The tiers that ran on one, as far as the report tells tiers apart."""
        devices = self.details.get("devices", {})
        found = [tier for tier, device in devices.items() if device.get("simulated")]
        found += [result.tier for result in self.results if result.measure.get("simulated") and result.tier]
        return list(dict.fromkeys(found))

    @property
    def simulated_unasked(self) -> list[str]:
        """Tiers that were simulated without --device sim, as the command noted them in its details."""
        return list(self.details.get("simulated_unasked", []))

    def counts(self) -> dict[str, int]:
        return dict(Counter(result.status for result in self.results))

    def exit_code(self, *, strict: bool = False) -> int:
        """The exit code: 0 everything that ran passed and something was compared; 1 a failure; 77 nothing ran
        (design §4.12)."""
        counts = self.counts()
        if counts.get("fail") or (strict and (counts.get("skip") or self.simulated_unasked)):
            return 1
        return 0 if counts.get("pass") or counts.get("flake") else 77

    def verdict(self, *, strict: bool = False) -> dict[str, Any]:
        code = self.exit_code(strict=strict)
        return {"status": {0: "PASS", 1: "FAIL", 77: "NOTHING RAN"}[code], "exit": code, "counts": self.counts()}

    def as_dict(self, *, strict: bool = False) -> dict[str, Any]:
        body = {
            "schema": SCHEMA,
            "command": self.command,
            "version": __version__,
            "started": self.started,
            "wall_seconds": round(time.monotonic() - self._clock, 3),
            "device": self.device,
            "model": self.model,
            "ordering": self.ordering,
            "ctx": self.ctx,
            "shortcuts": self.shortcuts,
            "model_execution": self.model_execution,
            "direct_compute_ops": self.direct_compute_ops,
            "direct_compute_kind": self.direct_compute_kind,
            "details": self.details,
            "results": [asdict(result) for result in self.results],
            "verdict": self.verdict(strict=strict),
        }
        cleaned: dict[str, Any] = _plain(body)
        return cleaned


def joined(reports: Sequence[Report]) -> Report:
    """One report of what a command did for several models, in turn: each result's id begins with its model's file
    name, and what is of one model alone is in `details["models"]`. A single report is itself."""
    first = reports[0]
    if len(reports) == 1:
        return first
    names = [Path(str(each.model.get("path", at))).name for at, each in enumerate(reports)]
    return replace(
        first,
        model={},
        shortcuts=list(dict.fromkeys(text for each in reports for text in each.shortcuts)),
        details={"models": [{"model": each.model, "ctx": each.ctx, **each.details} for each in reports]},
        results=[
            replace(result, id=f"{name}/{result.id}")
            for name, each in zip(names, reports, strict=True)
            for result in each.results
        ],
    )


def to_json(report: Report, *, strict: bool = False) -> str:
    return json.dumps(report.as_dict(strict=strict), indent=1, allow_nan=False)


def write_text(path: str | Path, text: str) -> None:
    """Write a result file whole or not at all. Raises OutputError saying why not."""
    write_whole(path, lambda file: file.write(text.encode()))


def _plain(value: Any) -> Any:
    """JSON has no NumPy scalars, NaN or infinity: the latter become words, never null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
