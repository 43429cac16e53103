"""`zinc-rt isa report`: registers, occupancy, instruction mix and inner loops of kernels."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.isa_beside import compare_reports
from zinc_rt.cli.kernel_input import KernelInput, add_files, read_kernels
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, printable, start_report
from zinc_rt.host import terminal
from zinc_rt.host.terminal import Column, Table

if TYPE_CHECKING:
    from zinc_rt.isa.in_flight import PendingLoads
    from zinc_rt.isa.report import KernelReport, LoopReport

EXAMPLES = """\
The code is not run. Columns: waves, the occupancy of a SIMD as limited by vector registers and LDS; vopd, the
share of plain vector operations that are dual-issued; pending, the maximum number of vector loads in flight before
a wave waits, and their bytes over all lanes. The innermost loops of each kernel follow with instructions per
iteration, bytes loaded per wave and iteration, their ratio and the instruction mix. All blocks of a loop count,
including those that a branch can skip. --beside SET compares each kernel that exists in the chip's own set and in
SET; it takes no files.

examples:
  zinc-rt isa report kernel.zrt
  zinc-rt isa report kernel.co --json report.json
  zinc-rt isa report --beside radv 'matvec_*'

exit codes: 0 done, 2 an unreadable file.
"""
_COLUMNS = ("valu", "vopd", "trans", "matrix", "salu", "smem", "load", "store", "lds", "wait", "branch")
_PENDING = ("pending", "pending B")


def add_command(actions: Any) -> None:
    parser = actions.add_parser(
        "report",
        help="show registers, occupancy, instruction mix and inner loops",
        description="Show registers, occupancy, instruction mix and inner loops of kernels.",
        epilog=EXAMPLES,
    )
    add_files(parser)
    parser.add_argument(
        "--beside", metavar="SET", help="compare kernels by NAME between the chip's own set and this set (radv)"
    )
    add_json(parser)
    parser.set_defaults(body=_run_command)


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.host.errors import InputError
    from zinc_rt.host.files import check_writable

    if arguments.beside:
        return compare_reports(arguments)
    check_writable(report=arguments.json)
    out = choose_output_stream(arguments)
    report = start_report(Report("isa"), arguments)
    rows: list[list[Any]] = []
    loops: list[list[Any]] = []
    for kernel in read_kernels(arguments):
        built = _make_report(kernel)
        name = printable(kernel.name)
        rows.append(_make_row(name, built))
        loops += [_make_loop_row(name, kernel, loop) for loop in built.loops]
        measure = asdict(built) | {"vopd_rate": built.vopd_rate}
        for row, loop in zip(measure["loops"], built.loops, strict=True):
            row["bytes_per_instruction"] = loop.count_bytes_per_instruction
        report.results.append(Result(f"{kernel.file}:{kernel.name}", "isa-report", "pass", measure=measure))
    if not rows:
        raise InputError(
            "these files contain no kernel", next="use a code object with symbols, or pass bare code with --hex"
        )
    head = ["kernel", "VGPRs", "SGPRs", "LDS", "waves", "bytes", "instr.", "vopd %", *_PENDING, *_COLUMNS]
    terminal.show(Table(_make_columns(head), rows), out=out)
    if loops:
        sizes = ["loaded B", "scalar B", "LDS B", "B/instr."]
        head = ["inner loop", "code", "depth", "instr.", *sizes, *_PENDING, *_COLUMNS]
        terminal.show("", Table(_make_columns(head), loops), out=out)
    terminal.show(f"PASS  {len(rows)} kernel{'' if len(rows) == 1 else 's'}", out=out)
    return finish_report(report, arguments)


def _make_columns(names: Sequence[str]) -> list[Column]:
    """Return the columns: the first for text, the others for numbers."""
    return [Column(name, right=index > 0) for index, name in enumerate(names)]


def _make_report(kernel: KernelInput) -> KernelReport:
    from zinc_rt.isa.report import make_kernel_report

    limits = kernel.limits
    return make_kernel_report(
        kernel.section.code,
        kernel.target,
        entry=kernel.entry,
        vgprs=limits.vgprs,
        sgprs=limits.sgprs,
        lds_bytes=limits.lds_bytes or 0,
        scratch_bytes=limits.scratch_bytes or 0,
        threads=kernel.workgroup_threads,
    )


def _make_row(name: str, report: KernelReport) -> list[Any]:
    registers = [
        _format_used(report.vgprs_used, report.vgprs),
        _format_used(report.sgprs_used, report.sgprs),
    ]
    sizes = [
        report.lds_bytes,
        report.waves,
        report.code_bytes,
        report.instructions,
        f"{100 * report.vopd_rate:.0f}",
    ]
    sizes += _format_pending(report.in_flight)
    return [name, *registers, *sizes, *(report.mix[unit] or "" for unit in _COLUMNS)]


def _format_pending(pending: PendingLoads) -> list[Any]:
    return [pending.loads or "", pending.bytes or ""]


def _format_used(used: int, declared: int) -> str:
    return str(used) if used == declared else f"{used}/{declared}"


def _make_loop_row(name: str, kernel: KernelInput, loop: LoopReport) -> list[Any]:
    location = kernel.section.place_at(loop.begin)
    where = f"{loop.begin - kernel.entry:#x}-{loop.end - kernel.entry:#x}"
    moved = [loop.load_bytes or "", loop.scalar_bytes or "", loop.lds_bytes or ""]
    title = f"{name} {printable(location)}".rstrip()
    counts = (loop.mix[unit] or "" for unit in _COLUMNS)
    rates = [f"{loop.count_bytes_per_instruction:.1f}", *_format_pending(loop.in_flight)]
    return [title, where, loop.depth, loop.instructions, *moved, *rates, *counts]
