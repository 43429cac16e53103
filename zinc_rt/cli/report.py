"""The report that every command writes with --json: schema zinc-rt-report/1."""

from __future__ import annotations

import html
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.host.files import write_atomically
from zinc_rt.host.version import __version__

if TYPE_CHECKING:
    import pandas

SCHEMA = "zinc-rt-report/1"
COLUMNS = ("id", "kind", "status", "tier", "reference", "reason", "cause", "advice", "repro")  # first in a frame
HTML_COLUMNS = ("id", "status", "tier", "reference", "reason")
HTML_ROWS = 50  # of a notebook's table; failures come first
Status = Literal["pass", "fail", "skip", "flake", "blocked"]


@dataclass(slots=True)
class Result:
    """The result of one check. `measure` contains the measured values, `limit` the allowed values."""

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
    """The results of one run of a command. In a notebook it renders as a table; `to_frame()` gives a DataFrame."""

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
    strict: bool = False  # a skipped check fails, unless a method is called with another value
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    _clock: float = field(default_factory=time.monotonic)

    @property
    def simulated(self) -> bool:
        """Return whether a simulated device contributed to it."""
        return bool(self.device.get("simulated")) or bool(self.simulated_tiers())

    def simulated_tiers(self) -> list[str]:
        """Return the tiers that ran on a simulated device, if the report distinguishes tiers."""
        devices = self.details.get("devices", {})
        tiers = [tier for tier, device in devices.items() if device.get("simulated")]
        tiers += [result.tier for result in self.results if result.measure.get("simulated") and result.tier]
        return list(dict.fromkeys(tiers))

    @property
    def simulated_by_default(self) -> list[str]:
        """Return the tiers that were simulated without --device sim, from the report's details."""
        return list(self.details.get("simulated_unasked", []))

    def counts(self) -> dict[str, int]:
        return dict(Counter(result.status for result in self.results))

    @property
    def passed(self) -> bool:
        """True if something ran and nothing failed: the exit code is 0."""
        return self.exit_code() == 0

    def exit_code(self, *, strict: bool | None = None) -> int:
        """Return the exit code: 0 if something ran and nothing failed, 1 for a failure, 77 if nothing ran
        (design §4.12). `strict` None: use the report's `strict`."""
        strict = self.strict if strict is None else strict
        counts = self.counts()
        if counts.get("fail") or (strict and (counts.get("skip") or self.simulated_by_default)):
            return 1
        return 0 if counts.get("pass") or counts.get("flake") else 77

    def verdict(self, *, strict: bool | None = None) -> dict[str, Any]:
        code = self.exit_code(strict=strict)
        return {"status": {0: "PASS", 1: "FAIL", 77: "NOTHING RAN"}[code], "exit": code, "counts": self.counts()}

    def as_dict(self, *, strict: bool | None = None) -> dict[str, Any]:
        """Return the object that --json writes (schema zinc-rt-report/1). NaN and infinity are strings."""
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
        cleaned: dict[str, Any] = _to_plain(body)
        return cleaned

    def to_json(self, *, strict: bool | None = None) -> str:
        """Return the text that --json writes."""
        return json.dumps(self.as_dict(strict=strict), indent=1, allow_nan=False)

    def to_frame(self) -> pandas.DataFrame:
        """Return a pandas.DataFrame with one row per result.

        The columns are those of `Result`; `measure`, `limit` and `first_bad` become columns such as
        `measure.rel_rms`. `frame.attrs` has the command and the verdict. Raises UnsupportedError if pandas (extra
        `report`) is not installed.
        """
        pandas = import_pandas()
        results = [_to_plain(asdict(result)) for result in self.results]
        frame = pandas.json_normalize(results) if results else pandas.DataFrame(columns=list(COLUMNS))
        others = [name for name in frame.columns if name not in COLUMNS]
        frame = frame[[*COLUMNS, *others]]
        frame.attrs.update(command=self.command, verdict=self.verdict())
        return frame

    def _repr_html_(self) -> str:
        """Return a table of the results for a notebook, failures first."""
        status = self.verdict()["status"]
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.counts().items()))
        simulated = ", on a simulated device" if self.simulated else ""
        shown = sorted(self.results, key=lambda result: result.status != "fail")[:HTML_ROWS]
        rows = [_format_html_row("td", [getattr(result, name) for name in HTML_COLUMNS]) for result in shown]
        more = len(self.results) - len(shown)
        return "\n".join(
            [
                f"<p><b>{html.escape(f'{self.command}: {status}')}</b> {html.escape(counts + simulated)}</p>",
                f"<table>{_format_html_row('th', HTML_COLUMNS)}",
                *rows,
                "</table>",
                *([f"<p>{more} more results: to_frame() has all</p>"] if more else []),
            ]
        )


def import_pandas() -> Any:
    """Import pandas. Raises UnsupportedError that names the extra if it is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise UnsupportedError("pandas is not installed", next="pip install 'zinc-rt[report]'") from error
    return pandas


def _format_html_row(cell: str, texts: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{cell}>{html.escape(text)}</{cell}>' for text in texts)}</tr>"


def merge_reports(reports: Sequence[Report]) -> Report:
    """Join the reports of several models: each result's id begins with its model's file name, and data of a single
    model is in `details["models"]`. A single report is returned unchanged."""
    first = reports[0]
    if len(reports) == 1:
        return first
    names = [Path(str(item.model.get("path", index))).name for index, item in enumerate(reports)]
    return replace(
        first,
        model={},
        shortcuts=list(dict.fromkeys(text for report in reports for text in report.shortcuts)),
        details={"models": [{"model": report.model, "ctx": report.ctx, **report.details} for report in reports]},
        results=[
            replace(result, id=f"{name}/{result.id}")
            for name, item in zip(names, reports, strict=True)
            for result in item.results
        ],
    )


def read_results(path: Path) -> list[Result]:
    """Return the results in a report file; empty if there is none."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        names = Result.__dataclass_fields__
        return [Result(**{name: row[name] for name in names if name in row}) for row in body["results"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def write_text(path: str | Path, text: str) -> None:
    """Write a result file atomically. Raise OutputError with the reason if it fails."""
    write_atomically(path, lambda file: file.write(text.encode()))


def _to_plain(value: Any) -> Any:
    """Convert values that JSON lacks: NumPy scalars to numbers, NaN and infinity to strings."""
    if isinstance(value, dict):
        return {str(key): _to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return _to_plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
