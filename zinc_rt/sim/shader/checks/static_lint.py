"""Static checks of code before it runs: errors on any path, whether or not it is taken."""

from __future__ import annotations

import hashlib
import json

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.isa import Target
from zinc_rt.isa.lint import Limits, lint
from zinc_rt.sim.interfaces import CodePlace
from zinc_rt.sim.shader.checks.finding_text import WaveFinding, disassemble_at
from zinc_rt.sim.shader.launch_setup import LaunchSetup
from zinc_rt.sim.shader.sources import digest_sources

_DYNAMIC = ("unwritten", "illegal", "end", "header")  # reported when executed, by wave


def find_static_findings(
    code: bytes, target: Target, name: str, launch: LaunchSetup, cache: ObjectCache | None = None, entry: int = 0
) -> tuple[WaveFinding, ...]:
    """Return the findings by pc, with the rules of docs/isa.md. Only the declarations of `launch` are used.
    `entry` is the byte offset of the first instruction, to which pcs are relative.

    `cache` stores the results on disk: checking a kernel takes as long as running it hundreds of times.
    """
    limits = Limits(vgprs=launch.vgprs, lds_bytes=launch.lds_bytes, scratch_bytes=launch.scratch_bytes)
    if cache is None:
        document = _lint_findings(code, entry, target, limits)
    else:
        about = json.dumps(
            ["static", entry, target.name, target.wave, target.true16, repr(limits), digest_sources()]
        ).encode()
        key = hashlib.sha256(about + b"\0" + code).hexdigest()
        kept = cache.load(key)
        document = _lint_findings(code, entry, target, limits) if kept is None else json.loads(kept)
        if kept is None:
            cache.store(key, json.dumps(document).encode())
    return tuple(
        WaveFinding(
            rule,
            f"{name}: {rule} at pc {pc:#x} `{disassemble_at(code, pc + entry, target, entry)}`: {detail}",
            CodePlace(name, pc, disassemble_at(code, pc + entry, target, entry), detail=detail),
        )
        for rule, detail, pc in document
    )


def _lint_findings(code: bytes, entry: int, target: Target, limits: Limits) -> list[tuple[str, str, int]]:
    """Return a list of (rule, what is wrong, pc relative to the entry)."""
    result = []
    for item in lint(code, target, limits, entry=entry):
        if item.rule not in _DYNAMIC:
            other = (
                f" [{item.producer_pc - entry:#x} `{item.producer_text}`]" if item.producer_pc is not None else ""
            )
            result.append((item.rule, f"{item.message}{other}", item.pc - entry))
    return result
