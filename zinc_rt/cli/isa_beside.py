"""`zinc-rt isa report --beside SET`: compare the kernels of a chip with another set, row by row."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.output import choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.terminal import Column, Table

if TYPE_CHECKING:
    from zinc_rt.isa.report import KernelReport, LoopReport
    from zinc_rt.kernels.sets import BinaryKernelSet

_HEAD = ("VGPRs", "waves", "LDS", "bytes", "instr.", "vopd %", "loops", "loop", "loaded B", "B/load", "B/instr.")


def compare_reports(arguments: argparse.Namespace) -> int:
    """Print the comparison. Return 0: figures are not a verdict."""
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.host.files import check_writable

    check_writable(report=arguments.json)
    out = choose_output_stream(arguments)
    report = start_report(Report("isa"), arguments)
    rows = []
    sets = _find_sets(arguments.beside)
    for name in _select_names(arguments.files, list(sets.values())):
        for title, kernels in sets.items():
            if name in kernels.names():
                built = _make_report(kernels, name)
                rows.append([name, title, *_format_figures(built)])
                report.results.append(Result(f"{title}:{name}", "isa-report", "pass", measure=asdict(built)))
    terminal.show(Table(["kernel", "set", *(Column(item, right=True) for item in _HEAD)], rows), out=out)
    terminal.show(
        "\nloop: instructions of the innermost loop that loads most; its bytes are of all lanes", out=out
    )
    terminal.show(f"PASS  {len(rows)} kernels of sets {' and '.join(sets)}", out=out)
    return finish_report(report, arguments)


def _find_sets(beside: str) -> dict[str, BinaryKernelSet]:
    """Return the chip's own set and the set of that name. Raise UsageError for an unknown name."""
    from zinc_rt.host.errors import UsageError
    from zinc_rt.kernels.sets import SETS, BinaryKernelSet, find_kernel_set

    known = {name: find_kernel_set(name) for name in SETS}
    others = {name: item for name, item in known.items() if isinstance(item, BinaryKernelSet)}
    other = others.get(beside)
    if other is None or beside == other.target:
        fit = ", ".join(name for name, item in others.items() if name != item.target)
        raise UsageError(f"--beside {beside}: not another kernel set of this chip", next=f"--beside {fit}")
    return {other.target: others[other.target], beside: other}


def _select_names(asked: Sequence[str], sets: Sequence[BinaryKernelSet]) -> list[str]:
    """Return the kernels in both sets, and requested kernels (by name or pattern) that are in one set only. Raise
    UsageError for a name in neither."""
    from fnmatch import filter as matching

    from zinc_rt.host.errors import UsageError

    either = sorted({name for item in sets for name in item.names()})
    names = []
    for pattern in asked:
        some = matching(either, pattern)
        if not some:
            raise UsageError(f"unknown kernel {pattern}", next=f"--beside takes names: {', '.join(either[:6])}")
        names += some
    return names or [name for name in either if all(name in item.names() for item in sets)]


def _make_report(kernels: BinaryKernelSet, name: str) -> KernelReport:
    from zinc_rt.isa.report import make_kernel_report
    from zinc_rt.isa.target import target_of

    zrt = kernels.load(name)
    x, y, z = zrt.workgroup
    return make_kernel_report(
        zrt.code,
        target_of(zrt.target, zrt.wave),
        entry=zrt.entry_offset,
        vgprs=zrt.vgprs,
        sgprs=zrt.sgprs,
        lds_bytes=zrt.lds_bytes,
        scratch_bytes=zrt.scratch_bytes,
        threads=x * y * z,
    )


def _format_figures(report: KernelReport) -> list[Any]:
    whole = [report.vgprs, report.waves, report.lds_bytes or "", report.code_bytes, report.instructions]
    whole += [f"{100 * report.vopd_rate:.0f}", len(report.loops) or ""]
    loop = max(report.loops, key=_count_loaded_bytes, default=None)
    if loop is None or not _count_loaded_bytes(loop):
        return [*whole, "", "", "", ""]
    loads = loop.mix["load"] + loop.mix["smem"]
    rates = [f"{_count_loaded_bytes(loop) / loads:.0f}", f"{loop.count_bytes_per_instruction:.1f}"]
    return [*whole, loop.instructions, _count_loaded_bytes(loop), *rates]


def _count_loaded_bytes(loop: LoopReport) -> int:
    return loop.load_bytes + loop.scalar_bytes
