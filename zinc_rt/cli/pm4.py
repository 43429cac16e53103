"""Disassemble and lint PM4 dword streams."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, printable, start_report
from zinc_rt.cli.text_input import read_stdin
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import InputError
from zinc_rt.host.input_files import make_read_error
from zinc_rt.isa.target import DEFAULT_ARCH

if TYPE_CHECKING:
    from zinc_rt.pm4.generation import Generation
    from zinc_rt.pm4.lint import PacketFinding

EXAMPLES = """\
FILE contains little-endian dwords. With --hex it is text: hex dwords with or without 0x, separated by spaces,
commas or line breaks, with comments from # or // to the end of the line. - reads stdin.

examples:
  zinc-rt pm4 decode ring.bin --arch gfx1201
  echo c0004600 00000407 | zinc-rt pm4 decode - --hex
  zinc-rt pm4 decode ib.bin --lint --queue userq --ib
"""
_COMMENT = re.compile(r"(?:#|//).*")
_DWORD = re.compile(r"(?:0[xX])?[0-9a-fA-F]{1,8}")


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        "zinc-rt pm4",
        description=__doc__,
        epilog=f"{EXAMPLES}\n`zinc-rt pm4 decode --help` lists the options. Packets: docs/pm4.md",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    decode = actions.add_parser(
        "decode",
        help="print a stream packet by packet; with --lint, check it",
        description="Print a stream packet by packet. With --lint, check it.",
        epilog=EXAMPLES,
    )
    decode.add_argument("file", metavar="FILE", help="file with dwords; - is stdin")
    decode.add_argument("--hex", action="store_true", help="read FILE as hex text instead of binary")
    decode.add_argument("--arch", metavar="NAME", default=DEFAULT_ARCH, help=f"chip (default {DEFAULT_ARCH})")
    decode.add_argument(
        "--lint", action="store_true", help="check the stream; exit with 1 if it must not be submitted"
    )
    decode.add_argument(
        "--queue", choices=("kfd", "userq"), default="kfd", help="with --lint: the type of queue (default kfd)"
    )
    decode.add_argument("--ib", action="store_true", help="with --lint: treat the stream as an indirect buffer")
    add_json(decode, tables=False)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.host.files import check_writable
    from zinc_rt.pm4.disassemble import disassemble
    from zinc_rt.pm4.generation import generation_of
    from zinc_rt.pm4.lint import lint

    generation = generation_of(arguments.arch)
    check_writable(report=arguments.json)
    dwords = _read(arguments.file, hexadecimal=arguments.hex)
    out = choose_output_stream(arguments)
    print(disassemble(dwords, generation), file=out)
    report = start_report(Report("pm4"), arguments)
    report.details = {
        "arch": arguments.arch,
        "dwords": len(dwords),
        "packets": _make_packet_rows(dwords, generation),
    }
    report.results.append(Result("decode", "pm4-decode", "pass", measure={"dwords": len(dwords)}))
    if arguments.lint:
        findings = lint(dwords, generation, queue=arguments.queue, is_ib=arguments.ib)
        _print_findings(findings, arguments)
        report.results += [_make_result(finding, arguments) for finding in findings]
        report.details["queue"], report.details["is_ib"] = arguments.queue, arguments.ib
    code = finish_report(report, arguments)
    count = len(report.details["packets"])
    verdict = "PASS" if code == 0 else "FAIL"
    print(
        f"{verdict:<5} {count} packets in {len(dwords)} dwords, {arguments.arch}{_format_summary(report)}",
        file=out,
    )
    return code


def _read(name: str, *, hexadecimal: bool) -> Sequence[int]:
    """Read the dwords of FILE or stdin. Raise InputError with the position of the first invalid text."""
    source = "stdin" if name == "-" else name
    try:
        raw = read_stdin() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise make_read_error(printable(name) or repr(name), error, next="check the path; - is stdin") from None
    if hexadecimal:
        dwords = _read_hex(raw, printable(source))
    else:
        if len(raw) % 4:
            raise InputError(
                f"{printable(source)}: {len(raw)} bytes, expected a multiple of 4",
                next="add --hex if the file is text",
            )
        dwords = [int.from_bytes(raw[index : index + 4], "little") for index in range(0, len(raw), 4)]
    if not dwords:
        raise InputError(f"{printable(source)}: contains no dwords")
    return dwords


def _read_hex(raw: bytes, source: str) -> list[int]:
    dwords = []
    for number, line in enumerate(raw.decode("utf-8", "replace").splitlines(), 1):
        for token in _COMMENT.sub("", line).replace(",", " ").split():
            if not _DWORD.fullmatch(token):
                raise InputError(
                    f"{source}, line {number}: {printable(token, 40)!r} is not a dword",
                    next="expected hex like c0001000",
                )
            dwords.append(int(token, 16))
    return dwords


def _make_packet_rows(dwords: Sequence[int], generation: Generation) -> list[dict[str, Any]]:
    from zinc_rt.pm4.decode import BadPacket, decode_stream

    rows: list[dict[str, Any]] = []
    for item in decode_stream(dwords, generation, keep_going=True):
        row: dict[str, Any] = {"offset_dw": item.offset, "length_dw": item.length, "reached": item.reached}
        if isinstance(item.packet, BadPacket):
            rows.append({**row, "bad": item.packet.why, "text": item.packet.text})
        else:
            fields = {field.label(generation): getattr(item.packet, field.name) for field in item.packet.FIELDS}
            rows.append({**row, "packet": item.packet.NAME, "fields": fields, "reserved": item.packet.reserved})
    return rows


def _print_findings(findings: Sequence[PacketFinding], arguments: argparse.Namespace) -> None:
    out = choose_output_stream(arguments)
    for finding in findings:
        print(f"{finding.severity:<8} 0x{finding.offset:04x}  {finding.rule}: {finding.text}", file=out)
        print(f"{'':<8} {'':<6}  next: {finding.next}", file=out)


def _make_result(finding: PacketFinding, arguments: argparse.Namespace) -> Any:
    from zinc_rt.cli.report import Result

    failed = finding.severity == "error"
    text = f"zinc-rt pm4 decode {arguments.file} --arch {arguments.arch} --lint --queue {arguments.queue}"
    return Result(
        f"{finding.rule}@{finding.offset:#06x}",
        "pm4-lint",
        "fail" if failed else "pass",
        reason=finding.text,
        cause=finding.rule,
        advice=finding.next,
        first_bad={"offset_dw": finding.offset},
        measure={"severity": finding.severity},
        repro=f"{text}{' --hex' * arguments.hex}{' --ib' * arguments.ib}" if failed else "",
    )


def _format_summary(report: Any) -> str:
    lint = [result for result in report.results if result.kind == "pm4-lint"]
    if "queue" not in report.details:
        return ""
    wrong = sum(result.status == "fail" for result in lint)
    return f", {report.details['queue']} queue: {wrong} errors, {len(lint) - wrong} findings"


main = Command("pm4", parser, _run_command)
