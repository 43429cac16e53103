"""The static sanitizer: checks one kernel's machine code along all paths and returns findings.

findings = lint(code, target_of("gfx1201", wave=32), Limits(vgprs=24, sgprs=40, lds_bytes=0, scratch_bytes=0))
"""

from zinc_rt.isa.lint.check import RULES, lint
from zinc_rt.isa.lint.finding import LintFinding
from zinc_rt.isa.lint.operands import Limits

__all__ = ["RULES", "Limits", "LintFinding", "lint"]
