"""Run one kernel of a code object on a card or a simulated GPU."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, begin, finish, output_stream
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.terminal import Table
from zinc_rt.isa.target import DEFAULT_ARCH

if TYPE_CHECKING:
    from zinc_rt.cli.report import Result
    from zinc_rt.launching.expect import ExpectedOutput
    from zinc_rt.launching.finding_groups import FindingGroup
    from zinc_rt.launching.launch import Launched

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
    made = Parser(
        prog="zinc-rt launch",
        description="Run one kernel of a code object or a source file on a card or a simulated GPU.",
        epilog=EXAMPLES,
    )
    made.add_argument(
        "code",
        metavar="KERNEL",
        help="a linked code object (.co, .hsaco), a .zrt kernel, or a source: OpenCL C (.cl), HIP (.hip), "
        "assembly (.s)",
    )
    made.add_argument("--kernel", metavar="NAME", help="kernel to run (default: the only one)")
    made.add_argument("--list", action="store_true", help="list the kernels and their arguments; runs nothing")
    made.add_argument("--grid", type=_axes, default=(1,), metavar="X[,Y[,Z]]", help="number of workgroups")
    made.add_argument(
        "--block",
        type=_axes,
        metavar="X[,Y[,Z]]",
        help="work-items in a workgroup (default: what the kernel was compiled for, else 64)",
    )
    made.add_argument(
        "--lds",
        type=int,
        metavar="BYTES",
        help="dynamic LDS of a workgroup (default: what Triton's JSON next to the code object says, else 0)",
    )
    made.add_argument(
        "--arch",
        default=DEFAULT_ARCH,
        metavar="NAME",
        help=f"chip to compile a source for (default {DEFAULT_ARCH})",
    )
    made.add_argument(
        "--cflags", default="", metavar="FLAGS", help="compiler flags for a source, like '-O1 -DN=4'"
    )
    made.add_argument("--arg", action="append", default=[], metavar="NAME=...", help=ARG_HELP)
    made.add_argument("--expect", metavar="F.npz", help="expected outputs, by argument name")
    made.add_argument("--ulps", type=int, default=0, metavar="N", help="tolerance for floats in ULPs (default 0)")
    made.add_argument("--npz", metavar="OUT", help="write the outputs")
    made.add_argument("--time", type=int, default=0, metavar="N", help="launch N more times and report the time")
    made.add_argument(
        "--device",
        choices=("auto", "hw", "sim"),
        default="auto",
        help="auto (default): this machine's AMD GPU, or a simulated one if there is none",
    )
    made.add_argument(
        "--queue",
        choices=("pm4", "aql"),
        default="pm4",
        help="pm4 packets (default), or one AQL dispatch packet with a completion signal",
    )
    made.add_argument(
        "--sanitizer",
        choices=("off", "fast", "full"),
        default="full",
        help="shader checks of the simulated GPU (default full)",
    )
    made.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="limit of one launch (default 60)"
    )
    add_json(made)
    return made


def _axes(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part, 0) for part in text.split(","))
    except ValueError:
        found = ()
    if not 1 <= len(found) <= 3 or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: one to three numbers from 1 on, like 8 or 8,4")
    return found


def _body(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.progress import stages
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.engine.devices import require_gpu
    from zinc_rt.host.errors import UsageError
    from zinc_rt.host.files import check_writable
    from zinc_rt.launching.code_files import read_image
    from zinc_rt.launching.expect import compare, read_expected
    from zinc_rt.launching.launch import LaunchStopped, choose_kernel, launch
    from zinc_rt.launching.values import parse

    check_writable(arguments.npz, report=arguments.json)
    require_gpu(arguments.device)
    image = read_image(arguments.code, arch=arguments.arch, flags=shlex.split(arguments.cflags))
    if arguments.list:
        for each in image.kernels.values():
            terminal.show(f"{each.name}  wave{each.wave}", *[f"  {argument}" for argument in each.shown])
        return 0
    name = choose_kernel(image, arguments.kernel).name
    given = [parse(text) for text in arguments.arg]
    if len(dict(given)) < len(given):
        raise UsageError("--arg: a name was given twice")
    expected = read_expected(arguments.expect) if arguments.expect else {}
    report = begin(Report("launch"), arguments)
    out = output_stream(arguments)
    try:
        with stages(plain=True) as stage:
            stage.say(f"launch {name}, time-out {arguments.timeout:g} s")
            done = launch(
                image,
                name,
                grid=arguments.grid,
                block=arguments.block,
                args=dict(given),
                device=arguments.device,
                sanitizer=arguments.sanitizer,
                timeout_seconds=arguments.timeout,
                times=1 + arguments.time,
                queue=arguments.queue,
                lds_bytes=arguments.lds,
            )
    except LaunchStopped as stop:
        _show_findings(stop.findings, out)
        told = {"findings": [asdict(each) for each in stop.findings]}
        report.results.append(Result(name, "launch", "fail", reason=str(stop), measure=told))
        terminal.show(f"FAIL  {stop}", out=out)
        return finish(report, arguments)
    report.device = done.device
    compared = compare(done.outputs, expected, arguments.ulps)
    if arguments.npz:
        import numpy as np

        np.savez(arguments.npz, allow_pickle=False, **done.outputs)
    report.results.append(_result(name, done, compared, arguments.ulps))
    _show(name, done, compared, out)
    return finish(report, arguments)


def _result(name: str, done: Launched, compared: list[ExpectedOutput], ulps: int) -> Result:
    from zinc_rt.cli.report import Result

    bad = [each for each in compared if each.mismatches]
    reason = "; ".join(
        [f"{each.count} x {each.rule}" for each in done.findings]
        + [f"{each.name}: {each.mismatches} of {each.count} differ" for each in bad]
    )
    measure = {
        "findings": [asdict(each) for each in done.findings],
        "remarks": [asdict(each) for each in done.remarks],
        "outputs": {key: _summary(array) for key, array in done.outputs.items()},
        "expected": [asdict(each) for each in compared],
        "seconds": list(done.seconds),
    }
    return Result(
        name, "launch", "fail" if reason else "pass", reason=reason, measure=measure, limit={"ulps": ulps}
    )


def _summary(array: object) -> dict[str, object]:
    import numpy as np

    from zinc_rt.launching.values import is_float

    assert isinstance(array, np.ndarray)
    wide = array.astype(np.float32) if array.dtype.kind == "V" else array  # a type of ml_dtypes
    numbers = wide[np.isfinite(wide)] if is_float(array.dtype) else wide
    return {
        "type": f"{array.dtype}{list(array.shape)}",
        "first": [str(each) for each in array.reshape(-1)[:4]],
        "least": str(numbers.min()) if numbers.size else "",
        "most": str(numbers.max()) if numbers.size else "",
        "not_finite": int(array.size - numbers.size),
    }


def _show(name: str, done: Launched, compared: list[ExpectedOutput], out: TextIO) -> None:
    rows = []
    for key, array in done.outputs.items():
        each = _summary(array)
        first = ", ".join(each["first"])  # type: ignore[arg-type]
        rows.append((key, each["type"], first, each["least"], each["most"], each["not_finite"]))
    if rows:
        terminal.show(Table(("output", "type", "first", "least", "most", "not finite"), rows), out=out)
    _show_findings(done.findings, out)
    _show_findings(done.remarks, out, "remark: its compiler knows no such wait")
    for line in compared:
        ulps = "" if line.most_ulps is None else f", at most {line.most_ulps} ULPs apart"
        where = (
            f"; first at {list(line.first)}: {line.got}, expected {line.wanted}" if line.first is not None else ""
        )
        terminal.show(f"{line.name}: {line.mismatches} of {line.count} differ{ulps}{where}", out=out)
    if len(done.seconds) > 1:
        ordered = sorted(done.seconds[1:])
        middle = ordered[len(ordered) // 2]
        terminal.show(
            f"time: {middle * 1e6:.1f} us in the middle of {len(ordered)}, {ordered[0] * 1e6:.1f} to "
            f"{ordered[-1] * 1e6:.1f}, doorbell to fence; the first took {done.seconds[0] * 1e3:.1f} ms",
            out=out,
        )
    failed = bool(done.findings) or any(line.mismatches for line in compared)
    simulated = " on a SIMULATED device: says nothing about hardware" if done.device["simulated"] else ""
    terminal.show(f"{'FAIL' if failed else 'PASS'}  {name} on {done.device['arch']}{simulated}", out=out)


def _show_findings(findings: tuple[FindingGroup, ...], out: TextIO, said: str = "") -> None:
    if findings:
        rows = [(each.rule, each.count, "error" if each.error else said, each.first) for each in findings]
        terminal.show(Table(("finding", "times", "", "the first"), rows), out=out)


main = Command("launch", parser, _body)
