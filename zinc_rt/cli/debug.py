"""Stop a kernel on a simulated GPU, step it, and show its state."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING

from zinc_rt.cli.command import Command
from zinc_rt.cli.launch import add_checks, add_inputs, parse_kernel_arguments
from zinc_rt.host.arguments import Parser

if TYPE_CHECKING:
    from zinc_rt.launching.debugging.session import DebugSession
    from zinc_rt.launching.finding_groups import FindingGroup

EXAMPLES = """\
The kernel stops before its first instruction. Commands come from --command,
else from standard input. A script ends at a wrong command.

commands: break, watch, delete, continue, step, next, finish, back, goto,
restart, print, registers, where, waves, wave, list, code, findings, quit;
help and help COMMAND explain them.

examples:
  zinc-rt debug saxpy.cl --grid 4 --block 256 --arg y=inout:f32[1000] \\
      --arg x=in:f32[1000]:range --arg a=f32:2
  zinc-rt debug saxpy.cl ... --break-on-error --command registers
  zinc-rt debug saxpy.cl ... --command 'break 3 group 3 wave 7' \\
      --command continue --command 'print v2:f32' --json

exit codes: 0 no findings; 1 findings at a stop or at the end of the launch;
2 an unusable file or argument, or a wrong command in a script.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="zinc-rt debug",
        description="Stop a kernel on a simulated GPU, step it and show its state.",
        epilog=EXAMPLES,
    )
    add_inputs(parser)
    parser.add_argument(
        "--command",
        action="append",
        default=[],
        metavar="COMMAND",
        help="run this command; may be repeated (default: read commands from standard input)",
    )
    parser.add_argument(
        "--break-on-error", action="store_true", help="run to the first finding and stop before its instruction"
    )
    add_checks(parser.add_argument_group("checks of the simulated GPU"))
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="stop a launch that runs for more seconds than this (default 60)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object for each stop and value")
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.debug_shell import DebugShell
    from zinc_rt.host import terminal
    from zinc_rt.launching.code_files import read_image
    from zinc_rt.launching.debugging.session import DebugSession
    from zinc_rt.launching.launch import choose_kernel, launch
    from zinc_rt.launching.suppressions import apply_suppressions, read_suppressions

    entries = read_suppressions(arguments.suppress)
    image = read_image(arguments.code, arch=arguments.arch, flags=shlex.split(arguments.cflags))
    if arguments.list:
        for item in image.kernels.values():
            terminal.show(f"{item.name}  wave{item.wave}", *[f"  {argument}" for argument in item.shown])
        return 0
    kernel = choose_kernel(image, arguments.kernel)
    values = parse_kernel_arguments(arguments.arg)

    def is_suppressed(finding: FindingGroup) -> bool:
        return bool(apply_suppressions([finding], entries).suppressed)

    def run_session(session: DebugSession) -> None:
        shell = DebugShell(session, sys.stdout, records=arguments.json)
        shell.begin()
        session.break_on_error = arguments.break_on_error
        shell.show_stop(session.go_on() if arguments.break_on_error else session.stop)
        if arguments.command or not sys.stdin.isatty():
            shell.run_script(arguments.command or sys.stdin)
        else:
            shell.run_terminal()

    session = DebugSession(run_session, suppressed=is_suppressed, seconds=arguments.timeout)
    launch(
        image,
        kernel.name,
        grid=arguments.grid,
        block=arguments.block,
        args=values,
        device="sim",
        sanitizer=arguments.sanitizer,
        tools=arguments.tool,
        coherence=arguments.coherence,
        reorder=arguments.reorder,
        lds_bytes=arguments.lds,
        debugger=session,
    )
    return 1 if session.findings else 0


main = Command("debug", parser, _run_command)
