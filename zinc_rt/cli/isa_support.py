"""`zinc-rt isa support`: which instructions the shader engine executes, and the basis of their results."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.terminal import Column, Table
from zinc_rt.isa.target import DEFAULT_ARCH

if TYPE_CHECKING:
    from zinc_rt.isa.target import Target
    from zinc_rt.sim.shader.translate.evidence import InstructionSupport

EXAMPLES = """\
Classes of instructions: manual, ieee and captured are exact; of assumed ones at least one case is this project's
reading of the guide; approximate ones are rounded correctly here, while hardware may differ by 1 ULP. Refused ones
are decoded, and end a wave that reaches them.

examples:
  zinc-rt isa support                     numbers by encoding and class
  zinc-rt isa support -v                  also each refused and assumed instruction
  zinc-rt isa support v_exp_f32 'v_wmma*' these instructions, with the reason
  zinc-rt isa support --json support.json every instruction

exit codes: 0 done, 2 wrong usage.
"""


def add_command(actions: Any) -> None:
    parser = actions.add_parser(
        "support",
        help="show which instructions the shader engine executes",
        description="Show which instructions the shader engine executes, and the basis of their results.",
        epilog=EXAMPLES,
    )
    parser.add_argument("instructions", nargs="*", metavar="NAME", help="only these instructions; * is a wildcard")
    parser.add_argument("--arch", default=DEFAULT_ARCH, metavar="NAME", help=f"chip (default {DEFAULT_ARCH})")
    parser.add_argument("--page", metavar="FILE", help="write docs/support.md for this chip")
    parser.add_argument("-v", "--verbose", action="store_true", help="list refused and assumed instructions")
    add_json(parser)
    parser.set_defaults(body=_run_command)


def _run_command(arguments: argparse.Namespace) -> int:
    from fnmatch import fnmatchcase

    from zinc_rt.cli.report import Report, Result, write_text
    from zinc_rt.host.errors import UsageError
    from zinc_rt.host.files import check_writable
    from zinc_rt.isa.target import target_of
    from zinc_rt.sim.shader.translate.evidence import REFUSED, list_support

    check_writable(arguments.page, report=arguments.json)
    report = start_report(Report("isa support", details={"arch": arguments.arch}), arguments)
    rows = list_support(target_of(arguments.arch))
    if arguments.instructions:
        rows = [
            row
            for row in rows
            if any(fnmatchcase(row.mnemonic, instruction) for instruction in arguments.instructions)
        ]
        if not rows:
            raise UsageError(
                f"{arguments.arch} has no instruction {' or '.join(arguments.instructions)}",
                next="zinc-rt isa support --json FILE lists all; 'v_add*' selects several",
            )
    for row in rows:
        status: Any = "skip" if row.kind == REFUSED else "pass"
        measure = {"encoding": row.encoding, "class": row.kind}
        report.results.append(Result(row.mnemonic, "instruction", status, reason=row.why, measure=measure))
    out = choose_output_stream(arguments)
    if arguments.page:
        write_text(arguments.page, build_page(arguments.arch))
    if arguments.instructions:
        terminal.show(_make_support_list(rows), out=out)
    else:
        terminal.show(make_matrix(rows), out=out)
        if arguments.verbose:
            terminal.show(
                "", _make_support_list([row for row in rows if row.kind in (REFUSED, "assumed")]), out=out
            )
    finish_report(report, arguments)
    return 0


def make_matrix(rows: Sequence[InstructionSupport]) -> Table:
    """Return the numbers of instructions by encoding and class, with a total."""
    from zinc_rt.sim.shader.translate.evidence import CLASSES, REFUSED, count_by_class

    kinds = (*CLASSES, REFUSED)
    table = count_by_class(rows)
    lines = [[encoding, *(str(row[kind] or "") for kind in kinds)] for encoding, row in table.items()]
    lines.append(["all", *(str(sum(row[kind] for row in table.values())) for kind in kinds)])
    return Table([Column("encoding"), *(Column(kind, right=True) for kind in kinds)], lines)


def _make_support_list(rows: Sequence[InstructionSupport]) -> Table:
    lines = [[row.mnemonic, row.encoding, row.kind, row.why] for row in rows]
    return Table([Column("instruction"), Column("encoding"), Column("class"), Column("why")], lines)


def build_page(arch: str) -> str:
    """Return docs/support.md. A test compares it with the file."""
    from zinc_rt.host.table_format import format_github
    from zinc_rt.isa.target import target_of
    from zinc_rt.sim.shader.translate.evidence import MEANING, list_refusals, list_support

    rows = list_support(target_of(arch))
    table = make_matrix(rows)
    columns = [column.name if isinstance(column, Column) else column for column in table.columns]
    cells = [[str(cell) for cell in row] for row in table.rows]
    lines = [
        "# Instructions of the simulated device",
        "",
        "This page is written by `zinc-rt isa support --page docs/support.md` from the tables of the decoder and",
        f"the engine ({arch}). A pass on the simulated device only covers the instructions that ran:",
        "`zinc-rt launch` counts them by class ([launch.md](launch.md#what-a-pass-is-worth)),",
        "`zinc-rt isa support NAME` shows the basis of the results of one, `--json` lists all.",
        "",
        "| class | meaning |",
        "|---|---|",
        *(f"| {kind} | {text} |" for kind, text in MEANING.items()),
        "",
        *format_github(columns, [name != "encoding" for name in columns], cells),
        "",
        "## Refused instructions",
        "",
        "| encoding | reason | instructions |",
        "|---|---|---|",
    ]
    for (encoding, reason), names in list_refusals(rows).items():
        lines.append(f"| {encoding} | {reason} | {' '.join(f'`{name}`' for name in names)} |")
    lines += [
        "",
        "## RDNA3 and RDNA3.5",
        "",
        "gfx1100 to gfx1103 execute one set of instructions, gfx1150 to gfx1152 also scalar floats. No result was",
        "captured on these chips: what is captured on gfx1201 is assumed here.",
    ]
    for other in _list_other_chips():
        table = make_matrix(rows := list_support(other))
        cells = [[str(cell) for cell in row] for row in table.rows]
        lines += [
            "",
            f"### {other.name}",
            "",
            *format_github(columns, [name != "encoding" for name in columns], cells),
        ]
        lines += ["", "| encoding | refused because of | instructions |", "|---|---|---|"]
        for (encoding, reason), names in list_refusals(rows).items():
            lines.append(f"| {encoding} | {reason} | {' '.join(f'`{name}`' for name in names)} |")
    return "\n".join(lines) + "\n"


def _list_other_chips() -> list[Target]:
    """Return a chip that has containers for each instruction set other than the default chip's."""
    from zinc_rt.isa.target import CHIPS, make_default_target

    others = [chip for chip in CHIPS if chip.container and chip.isa != make_default_target().isa]
    return list({chip.isa: chip for chip in others}.values())
