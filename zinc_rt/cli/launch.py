"""Run one kernel of a code object on a card or a simulated GPU."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TextIO

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import UsageError
from zinc_rt.host.sanitizer_rules import MODES
from zinc_rt.host.table_format import find_table_writer
from zinc_rt.host.terminal import Table
from zinc_rt.isa.target import DEFAULT_ARCH

if TYPE_CHECKING:
    from zinc_rt.cli.report import Result, Status
    from zinc_rt.launching.expect import ExpectedOutput
    from zinc_rt.launching.finding_groups import FindingGroup
    from zinc_rt.launching.launch import Launched
    from zinc_rt.launching.suppressions import Suppressed, Suppression
    from zinc_rt.launching.values import Value

ARG_HELP = (
    "a kernel argument: a number, TYPE:VALUE (n=i32:1024); a buffer, in|out|inout:TYPE[SHAPE] with optional :FILL "
    "(x=in:f32[4,256]:random:7), FILL random:SEED, range, zeros, ones, fill:VALUE or file:F.npy, TYPE f16 f32 f64 "
    "bf16 f8e4m3 f8e5m2 i8 to i64 u8 to u64; a __local pointer, lds:BYTES; a null pointer, null"
)
EXAMPLES = """\
Output buffers are initialised to bytes 0xff. If the metadata has no argument
names, arguments are matched by position.

examples:
  zinc-rt launch k.co --list
  zinc-rt launch saxpy.cl --grid 4 --block 256 --arg y=inout:f32[1024] \\
      --arg x=in:f32[1024]:random:7 --arg a=f32:2
  zinc-rt launch saxpy.co --kernel saxpy --grid 4 --block 256 \\
      --arg y=inout:f32[1024]:ones --arg x=in:f32[1024]:random:7 \\
      --arg a=f32:2 --arg n=i32:1024
  zinc-rt launch k.co --kernel k --grid 8,8 --block 16,16 \\
      --arg out=out:f32[128,128] --expect want.npz --ulps 1

exit codes: 0 the kernel ended without findings and matches --expect; 1
findings, a mismatch or a time-out; 2 an unusable file or argument, or no GPU
with --device hw.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="zinc-rt launch",
        description="Run one kernel of a code object or a source file on a card or a simulated GPU.",
        epilog=EXAMPLES,
    )
    add_inputs(parser)
    parser.add_argument("--expect", metavar="F.npz", help="file with the expected outputs, by argument name")
    parser.add_argument(
        "--ulps", type=int, default=0, metavar="N", help="tolerance for floats in ULPs (default 0)"
    )
    parser.add_argument("--npz", metavar="OUT", help="write the outputs")
    parser.add_argument("--time", type=int, default=0, metavar="N", help="launch N more times and report the time")
    parser.add_argument(
        "--device",
        choices=("auto", "hw", "sim"),
        default="auto",
        help="auto (default): this machine's AMD GPU, or a simulated one if there is none",
    )
    parser.add_argument(
        "--queue",
        choices=("pm4", "aql"),
        default="pm4",
        help="pm4: PM4 packets (default); aql: one AQL dispatch packet with a completion signal",
    )
    add_judged_checks(parser)
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="time limit of one launch in seconds (default 60)",
    )
    parser.add_argument("--junit", metavar="F", help="write JUnit XML for CI")
    add_json(parser)
    return parser


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the kernel, its arguments, and the size of the launch."""
    parser.add_argument(
        "code",
        metavar="KERNEL",
        help="a linked code object (.co, .hsaco), a .zrt kernel, or a source: OpenCL C (.cl), HIP (.hip), "
        "assembly (.s)",
    )
    parser.add_argument("--kernel", metavar="NAME", help="kernel to run (default: the only one)")
    parser.add_argument("--list", action="store_true", help="list the kernels and their arguments, and exit")
    parser.add_argument("--grid", type=_parse_axes, default=(1,), metavar="X[,Y[,Z]]", help="number of workgroups")
    parser.add_argument(
        "--block",
        type=_parse_axes,
        metavar="X[,Y[,Z]]",
        help="work-items per workgroup (default: the size that the kernel was compiled for, else 64)",
    )
    parser.add_argument(
        "--lds",
        type=int,
        metavar="BYTES",
        help="dynamic LDS per workgroup (default: from Triton's JSON file next to the code object, else 0)",
    )
    parser.add_argument(
        "--arch",
        default=DEFAULT_ARCH,
        metavar="NAME",
        help=f"chip to compile a source for (default {DEFAULT_ARCH})",
    )
    parser.add_argument(
        "--cflags", default="", metavar="FLAGS", help="compiler flags for a source, like '-O1 -DN=4'"
    )
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=...", help=ARG_HELP)


def add_checks(checks: argparse._ArgumentGroup) -> None:
    """Add the tools of the sanitizer, the memory model, and suppressions."""
    chosen = checks.add_mutually_exclusive_group()
    chosen.add_argument(
        "--sanitizer",
        choices=tuple(MODES),
        default="full",
        help="set of tools: off, fast (memcheck, initcheck), full (all; default)",
    )
    chosen.add_argument(
        "--tool", type=_parse_tools, metavar="NAME[,NAME]", help=f"tools: {', '.join(MODES['full'])}"
    )
    checks.add_argument(
        "--coherence",
        choices=("bar", "direct", "caches"),
        help="memory model; caches: loads can return stale lines (default: bar; caches with --tool cachecheck)",
    )
    checks.add_argument("--reorder", type=int, metavar="SEED", help="run workgroups and waves in a random order")
    checks.add_argument(
        "--perturb",
        type=int,
        default=0,
        metavar="SEED",
        help="move results of approximate instructions (exp, log, rcp, sqrt, sin, ...) by up to one ULP",
    )
    checks.add_argument(
        "--suppress",
        action="append",
        default=[],
        metavar="F.yaml",
        help="accept the findings listed in this file (docs/launch.md); may be repeated",
    )


def add_judged_checks(parser: argparse.ArgumentParser) -> None:
    """Add the checks of a simulated GPU, and how their findings affect output and exit code."""
    checks = parser.add_argument_group("checks of the simulated GPU")
    add_checks(checks)
    checks.add_argument("--strict", action="store_true", help="treat an unused suppression as an error")
    checks.add_argument(
        "--error-exitcode",
        type=_parse_exit_code,
        default=1,
        metavar="N",
        help="exit code for findings, 0 to 255 (default 1)",
    )
    checks.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="list remarks, and show packets and the full messages of the device",
    )


def parse_kernel_arguments(texts: Sequence[str]) -> dict[str, Value]:
    """Return the kernel's arguments of --arg. Raise UsageError for an invalid argument and for a repeated name."""
    from zinc_rt.launching.values import parse

    pairs = [parse(text) for text in texts]
    if len(dict(pairs)) < len(pairs):
        raise UsageError("--arg: a name was given twice")
    return dict(pairs)


def _parse_tools(text: str) -> tuple[str, ...]:
    from zinc_rt.launching.launch_findings import choose_tools

    names = tuple(text.split(","))
    try:
        choose_tools("full", names)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return names


def _parse_exit_code(text: str) -> int:
    if not text.isdecimal() or int(text) > 255:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 0 to 255")
    return int(text)


def _parse_axes(text: str) -> tuple[int, ...]:
    try:
        axes = tuple(int(part, 0) for part in text.split(","))
    except ValueError:
        axes = ()
    if not 1 <= len(axes) <= 3 or min(axes) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected one to three positive numbers, like 8 or 8,4")
    return axes


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.junit import to_junit
    from zinc_rt.cli.progress import show_stages
    from zinc_rt.cli.report import Report, write_text
    from zinc_rt.engine.devices import require_gpu
    from zinc_rt.host.files import check_writable
    from zinc_rt.launching.code_files import read_image
    from zinc_rt.launching.expect import compare, read_expected
    from zinc_rt.launching.launch import Launched, LaunchStopped, choose_kernel, launch
    from zinc_rt.launching.located import format_finding, strip_parameter_types
    from zinc_rt.launching.suppressions import apply_suppressions, read_suppressions

    check_writable(arguments.npz, arguments.junit, report=arguments.json)
    require_gpu(arguments.device)
    entries = read_suppressions(arguments.suppress)
    image = read_image(arguments.code, arch=arguments.arch, flags=shlex.split(arguments.cflags))
    if arguments.list:
        for item in image.kernels.values():
            terminal.show(f"{item.name}  wave{item.wave}", *[f"  {argument}" for argument in item.shown])
        return 0
    kernel = choose_kernel(image, arguments.kernel)
    values = parse_kernel_arguments(arguments.arg)
    expected = read_expected(arguments.expect) if arguments.expect else {}
    report = start_report(Report("launch"), arguments)
    out = choose_output_stream(arguments)
    stopped = ""
    try:
        with show_stages(plain=True) as stage:
            stage.say(f"launch {strip_parameter_types(kernel.name)}, time-out {arguments.timeout:g} s")
            done = launch(
                image,
                kernel.name,
                grid=arguments.grid,
                block=arguments.block,
                args=values,
                device=arguments.device,
                sanitizer=arguments.sanitizer,
                tools=arguments.tool,
                coherence=arguments.coherence,
                reorder=arguments.reorder,
                perturb=arguments.perturb,
                timeout_seconds=arguments.timeout,
                times=1 + arguments.time,
                queue=arguments.queue,
                lds_bytes=arguments.lds,
            )
    except LaunchStopped as stop:
        stopped, done = str(stop), Launched({}, stop.findings, device=stop.device)
    report.device = done.device
    compared = [] if stopped else compare(done.outputs, expected, arguments.ulps)
    if arguments.npz and not stopped:
        import numpy as np

        np.savez(arguments.npz, allow_pickle=False, **done.outputs)
    findings = apply_suppressions(done.findings, entries)
    verdict = _LaunchVerdict(
        strip_parameter_types(kernel.name), done, findings, compared, stopped, arguments.strict
    )
    result = _make_result(verdict, arguments.ulps)
    result.cause = "\n".join(line for item in findings.left for line in format_finding(item, kernel.wave))
    result.repro = arguments.line
    report.results.append(result)
    _show(verdict, image.lines_missing, kernel.wave, out, verbose=arguments.verbose)
    if arguments.junit:
        write_text(arguments.junit, to_junit(report))
    code = finish_report(report, arguments)
    only_findings = verdict.sorted.left and not (stopped or verdict.list_mismatches or verdict.list_unused)
    return arguments.error_exitcode if only_findings else code


@dataclass(frozen=True, slots=True)
class _LaunchVerdict:
    """The results that determine the verdict of a launch. `stopped`: the reason if it did not end, else ""."""

    kernel: str
    done: Launched
    sorted: Suppressed
    compared: list[ExpectedOutput]
    stopped: str
    strict: bool

    @property
    def list_mismatches(self) -> list[ExpectedOutput]:
        return [item for item in self.compared if item.mismatches]

    @property
    def list_unused(self) -> tuple[Suppression, ...]:
        return self.sorted.unused if self.strict else ()

    @property
    def list_reasons(self) -> list[str]:
        """The reason if the launch failed; empty if it passed."""
        from zinc_rt.launching.finding_groups import count_rules

        return [
            *([self.stopped] if self.stopped else []),
            *[f"{count} x {rule}" for rule, count in count_rules(self.sorted.left).items()],
            *[
                f"{mismatch.name}: {mismatch.mismatches} of {mismatch.count} differ"
                for mismatch in self.list_mismatches
            ],
            *[f"unused suppression: {item}" for item in self.list_unused],
        ]


def _make_result(verdict: _LaunchVerdict, ulps: int) -> Result:
    from zinc_rt.cli.report import Result

    result, findings = verdict.done, verdict.sorted
    measure = {
        "findings": [asdict(item) for item in findings.left],
        "remarks": [asdict(remark) for remark in result.remarks],
        "suppressed": [{**asdict(item), "reason": entry.reason} for item, entry in findings.suppressed],
        "unused_suppressions": [asdict(item) for item in findings.unused],
        "outputs": {key: _summarise_array(array) for key, array in result.outputs.items()},
        "expected": [asdict(item) for item in verdict.compared],
        "seconds": list(result.seconds),
        "executed": None if result.executed is None else asdict(result.executed),
    }
    reason = "; ".join(verdict.list_reasons)
    status: Status = "fail" if reason else "pass"
    return Result(verdict.kernel, "launch", status, reason=reason, measure=measure, limit={"ulps": ulps})


def _summarise_array(array: object) -> dict[str, object]:
    import numpy as np

    from zinc_rt.launching.values import is_float

    assert isinstance(array, np.ndarray)
    wide = array.astype(np.float32) if array.dtype.kind == "V" else array  # a type of ml_dtypes
    numbers = wide[np.isfinite(wide)] if is_float(array.dtype) else wide
    return {
        "type": f"{array.dtype}{list(array.shape)}",
        "first": [str(item) for item in array.reshape(-1)[:4]],
        "least": str(numbers.min()) if numbers.size else "",
        "most": str(numbers.max()) if numbers.size else "",
        "not_finite": int(array.size - numbers.size),
    }


def _show(verdict: _LaunchVerdict, lines_missing: str, wave: int, out: TextIO, *, verbose: bool) -> None:
    from zinc_rt.launching.located import format_remarks

    result, findings = verdict.done, verdict.sorted
    rows = []
    for key, array in result.outputs.items():
        summary = _summarise_array(array)
        first = ", ".join(summary["first"])  # type: ignore[arg-type]
        rows.append((key, summary["type"], first, summary["least"], summary["most"], summary["not_finite"]))
    if rows:
        terminal.show(Table(("output", "type", "first", "least", "most", "not finite"), rows), out=out)
    show_findings(findings.left, wave, out, verbose=verbose)
    if findings.left and lines_missing:
        terminal.show(lines_missing, out=out)
    if verbose:
        show_findings(result.remarks, wave, out, verbose=verbose, remark=True)
    elif result.remarks:
        terminal.show(format_remarks(result.remarks), out=out)
    if findings.suppressed:
        terminal.show(f"suppressed: {len(findings.suppressed)}; --json lists them with their reasons", out=out)
    for entry in findings.unused:
        terminal.show(f"unused suppression: {entry}", out=out)
    for line in verdict.compared:
        ulps = "" if line.most_ulps is None else f", at most {line.most_ulps} ULPs apart"
        where = (
            f"; first at {list(line.first)}: {line.got}, expected {line.wanted}" if line.first is not None else ""
        )
        terminal.show(f"{line.name}: {line.mismatches} of {line.count} differ{ulps}{where}", out=out)
    if result.executed is not None:
        terminal.show(*result.executed.lines, out=out)
    if len(result.seconds) > 1:
        ordered = sorted(result.seconds[1:])
        middle = ordered[len(ordered) // 2]
        terminal.show(
            f"time: {middle * 1e6:.1f} us in the middle of {len(ordered)}, {ordered[0] * 1e6:.1f} to "
            f"{ordered[-1] * 1e6:.1f}, doorbell to fence; the first took {result.seconds[0] * 1e3:.1f} ms",
            out=out,
        )
    if verdict.stopped:
        terminal.show(f"FAIL  {verdict.stopped}", out=out)
        return
    simulated = " on a SIMULATED device: says nothing about hardware" if result.device["simulated"] else ""
    mark = "FAIL" if verdict.list_reasons else "PASS"
    terminal.show(f"{mark}  {verdict.kernel} on {result.device['arch']}{simulated}", out=out)


def show_findings(
    findings: tuple[FindingGroup, ...], wave: int, out: TextIO, *, verbose: bool, remark: bool = False
) -> None:
    """Show findings as lines that begin with FILE:LINE, like a compiler's; with --format as a table."""
    from zinc_rt.launching.located import format_finding, strip_parameter_types

    if find_table_writer() is not None and findings:
        rows = [
            ("remark" if remark else "error" if finding.error else "finding", finding.rule, finding.tool,
             finding.line, strip_parameter_types(finding.kernel), finding.count,
             finding.access or finding.detail or finding.first)
            for finding in findings
        ]  # fmt: skip
        terminal.show(Table(("kind", "rule", "tool", "line", "kernel", "times", "what"), rows), out=out)
        return
    for finding in findings:
        for line in format_finding(finding, wave, verbose=verbose):
            terminal.show(f"remark: {line}" if remark and not line.startswith(" ") else line, out=out)


main = Command("launch", parser, _run_command)
