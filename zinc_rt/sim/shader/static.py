"""The static sanitizer over code that is about to run: what is wrong on any path, whether or not it is taken."""

from __future__ import annotations

from zinc_rt.isa import target_of
from zinc_rt.isa.lint import Limits, lint
from zinc_rt.sim.shader.findings import Finding
from zinc_rt.sim.shader.launch import Launch

_DYNAMIC = ("unwritten", "illegal", "end", "header")  # told where it happens, by wave


def static_findings(code: bytes, name: str, launch: Launch) -> tuple[Finding, ...]:
    """By pc, with the rules of docs/isa.md. `launch` counts only for its wave and what it declares."""
    limits = Limits(vgprs=launch.vgprs, lds_bytes=launch.lds_bytes, scratch_bytes=launch.scratch_bytes)
    found = []
    for each in lint(code, target_of("gfx1201", wave=launch.wave), limits):
        if each.rule not in _DYNAMIC:
            other = f" [0x{each.producer_pc:x} `{each.producer_text}`]" if each.producer_pc is not None else ""
            sentence = f"{name}: {each.rule} at pc 0x{each.pc:x} `{each.text}`: {each.message}{other}"
            found.append(Finding(each.rule, sentence, each.pc))
    return tuple(found)
