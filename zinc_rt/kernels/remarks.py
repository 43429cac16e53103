"""The findings that count only as remarks, by the compiler that produced the kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol, TypeVar

REMARKS = {"RADV/": frozenset({"sgpr-read"})}  # by the prefix of a container's compiler
ALWAYS = frozenset({"lds-same-store"})  # whichever compiler, or none
UNMARKED = "unmarked"  # the compiler of a code object whose comments name none

_CLANG = re.compile(r"clang version (\d+)\.")
_KNOWN_FROM = {"sgpr-read": 20, "mask-write-valu": 20}  # LLVM's release whose GCNHazardRecognizer has the hazard


class _HasRule(Protocol):
    @property
    def rule(self) -> str: ...


_Finding = TypeVar("_Finding", bound=_HasRule)


def split_remarks(
    findings: Iterable[_Finding], compiler: str
) -> tuple[tuple[_Finding, ...], tuple[_Finding, ...]]:
    """Return (findings, remarks) of code of this compiler, each in the given order."""
    listed = tuple(findings)
    remarks = tuple(item for item in listed if is_remark(item.rule, compiler))
    return tuple(item for item in listed if not is_remark(item.rule, compiler)), remarks


def is_remark(rule: str, compiler: str) -> bool:
    """Return whether a finding of `rule` is only a remark in code of this compiler, as named by a container or a
    code object's comments ("": this project's assembler; UNMARKED: a code object without comments, from a compiler
    that may not know the hazard)."""
    if rule in ALWAYS or (rule in _KNOWN_FROM and compiler == UNMARKED):
        return True
    clang = _CLANG.search(compiler)
    if clang is not None and rule in _KNOWN_FROM:
        return int(clang[1]) < _KNOWN_FROM[rule]
    return any(compiler.startswith(prefix) and rule in rules for prefix, rules in REMARKS.items())
