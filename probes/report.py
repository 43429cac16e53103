"""The report of `zinc-rt pm4-test` and `mem-test`."""

from __future__ import annotations

from dataclasses import dataclass, field

from zinc_rt.backends.amd.hang import HangReport
from zinc_rt.cli.report import Report


@dataclass(slots=True)
class ProbeReport(Report):
    """A report of probes, one result per probe and tier."""

    hangs: dict[str, HangReport] = field(default_factory=dict)  # by the result's id
