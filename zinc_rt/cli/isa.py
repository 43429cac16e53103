"""Disassemble, lint and analyse gfx11 and gfx12 machine code."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from zinc_rt.cli import isa_lint, isa_report, isa_support
from zinc_rt.cli.code_input import add_true16, choose_target, parse_hex_line, read_code
from zinc_rt.cli.command import Command
from zinc_rt.cli.kernel_input import detect_format
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, printable, start_report
from zinc_rt.host.arguments import Parser
from zinc_rt.isa.target import DEFAULT_ARCH

if TYPE_CHECKING:
    from zinc_rt.isa.instruction import Instruction
    from zinc_rt.isa.target import Target

EXAMPLES = """\
FILE is an ELF code object or a .zrt kernel, which its first bytes tell apart. --hex reads lines of hex bytes in
memory order, with or without spaces; # starts a comment. The lines of a file form one stream, which is printed
with offsets. With --hex - each line of stdin is a separate instruction: the output is one line of text for it,
INVALID if it does not decode. Bytes after the first instruction of a line are ignored.

--true16 is LLVM's -mattr=+real-true16 or -real-true16. Without it, code is read with whole registers on gfx12, as
LLVM 22 does, unless a file contains an instruction that names a half; on gfx11 with halves.

examples:
  zinc-rt isa disasm kernel.co
  echo 050003d501050200 | zinc-rt isa disasm --hex - --arch gfx1201

exit codes: 0 done, 1 a file contains undecodable code, 2 unreadable input.
"""


_TEXT_COLUMNS = 96  # where a source line is put behind the text


def parser() -> argparse.ArgumentParser:
    parser = Parser("zinc-rt isa", description="Disassemble, lint and analyse gfx11 and gfx12 machine code.")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    disasm = actions.add_parser(
        "disasm",
        help="print instructions in LLVM's syntax",
        description="Print instructions in LLVM's syntax.",
        epilog=EXAMPLES,
    )
    group = disasm.add_mutually_exclusive_group(required=True)
    group.add_argument("file", nargs="?", metavar="FILE", help="an ELF code object or a .zrt kernel")
    group.add_argument("--hex", metavar="FILE", help="hex bytes; - is stdin, one instruction per line")
    group.add_argument("--elf", metavar="FILE", help="disassemble the executable sections of an ELF code object")
    group.add_argument(
        "--zrt", metavar="FILE", help="show a .zrt kernel: header, constant slots, code with source lines"
    )
    disasm.add_argument(
        "--arch", metavar="NAME", help=f"chip (default: from the code object, else {DEFAULT_ARCH})"
    )
    disasm.add_argument(
        "--wave", type=int, choices=(32, 64), help="wave size (default: from the .zrt file, else 32)"
    )
    add_true16(disasm)
    add_json(disasm, tables=False)
    disasm.set_defaults(body=_run_command)
    isa_lint.add_command(actions)
    isa_report.add_command(actions)
    isa_support.add_command(actions)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.host.files import check_writable
    from zinc_rt.isa.target import target_of

    check_writable(report=arguments.json)
    if arguments.file is not None:
        setattr(arguments, detect_format(arguments.file), arguments.file)
    if arguments.hex == "-":
        arch, wave = arguments.arch or DEFAULT_ARCH, arguments.wave or 32
        return _show_lines(arguments, target_of(arch, wave, true16=arguments.true16))
    return _make_listing(arguments)


def _show_lines(arguments: argparse.Namespace, target: Target) -> int:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.isa.decoder import decode
    from zinc_rt.isa.disassemble import INVALID

    out = choose_output_stream(arguments)
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        code = parse_hex_line(line.decode("utf-8", "replace"), f"stdin, line {number}")
        if not code:
            print(file=out)
            continue
        instruction = decode(code, 0, target)
        print(INVALID if instruction is None else instruction.text, file=out)
        if arguments.json:
            rows.append(_make_row(0, code, instruction))
    if arguments.json:
        report = start_report(Report("isa"), arguments)
        report.details = {"arch": target.name, "wave": target.wave, "instructions": rows}
        report.results.append(Result("disasm", "isa-disasm", "pass", measure={"lines": len(rows)}))
        finish_report(report, arguments)
    return 0


def _make_listing(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.isa.disassemble import disassemble_lines

    source = printable(arguments.hex or arguments.elf or arguments.zrt)
    code = read_code(arguments, source)
    target = choose_target(code, arguments.true16)
    out = choose_output_stream(arguments)
    rows: list[dict[str, Any]] = []
    first_bad: dict[str, Any] = {}
    for line in code.header:
        print(line, file=out)
    for section in code.sections:
        if section.name:
            print(f"section {printable(section.name)}", file=out)
        before = ""
        for item, text in disassemble_lines(section.code, target, address=section.address):
            here = section.address + item.at
            for name in (name for value, name in section.symbols if value == here):
                print(f"{printable(name)}:", file=out)
            location = section.line_at(item.at)
            words_of_place = section.place_at(item.at)
            notes = [printable(words_of_place)] if words_of_place not in ("", before) else []
            notes += [mark for index, mark in section.marks if item.at <= index < item.at + item.size_bytes]
            print(f"{text:<{_TEXT_COLUMNS}} // {', '.join(notes)}" if notes else text, file=out)
            before = words_of_place
            row = _make_row(here, section.code[item.at : item.at + item.size_bytes], item.instruction)
            rows.append(row if location is None else row | {"file": location[0], "line": location[1]})
            if item.instruction is None and not first_bad:
                first_bad = {"section": section.name, "address": here}
    bad = sum(row["text"] is None for row in rows)
    report = start_report(Report("isa"), arguments)
    report.details = {
        "arch": code.arch,
        "wave": code.wave,
        "true16": target.true16,
        **code.details,
        "instructions": rows,
    }
    second = f"zinc-rt isa disasm {code.source_names} --arch {code.arch} --wave {code.wave}"
    second += f" --true16 {arguments.true16}" if arguments.true16 else ""
    report.results.append(
        Result(
            "disasm",
            "isa-disasm",
            "fail" if bad else "pass",
            reason=f"{bad} offsets are not valid instructions" if bad else "",
            measure={"instructions": len(rows) - bad, "invalid": bad},
            first_bad=first_bad,
            repro=second if bad else "",
        )
    )
    code_ = finish_report(report, arguments)
    invalid = f", {bad} INVALID" if bad else ""
    print(f"{'FAIL' if bad else 'PASS':<5} {len(rows) - bad} instructions{invalid}, {code.arch}", file=out)
    return code_


def _make_row(address: int, code: bytes, instruction: Instruction | None) -> dict[str, Any]:
    row: dict[str, Any] = {"address": address, "bytes": code.hex()}
    if instruction is None:
        return row | {"text": None}
    return row | {
        "text": instruction.text,
        "encoding": instruction.encoding,
        "opcode": instruction.opcode,
        "mnemonic": instruction.mnemonic,
        "size_bytes": instruction.size_bytes,
        "operands": [_make_operand_row(operand) for operand in instruction.operands],
        "modifiers": {modifier.name: modifier.value for modifier in instruction.modifiers},
        "second": None if instruction.second is None else instruction.second.mnemonic,
    }


def _make_operand_row(operand: Any) -> dict[str, Any]:
    row = {"kind": str(operand.kind), "text": operand.text, "index": operand.index, "width": operand.width}
    return row if operand.value is None else row | {"value": operand.value}


main = Command("isa", parser, lambda arguments: arguments.body(arguments))
