"""The report of `zinc-rt doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.cli.report import Report
from zinc_rt.doctor.diagnose import Diagnosis


@dataclass(slots=True)
class DoctorReport(Report):
    """A report of one machine, one result per finding. The exit code is that of the diagnosis: 77 without a GPU,
    or if relevant values are unknown.
    """

    diagnosis: Diagnosis | None = None

    def exit_code(self, *, strict: bool | None = None) -> int:
        if self.diagnosis is None:
            return Report.exit_code(self, strict=strict)
        return self.diagnosis.exit_code()
