"""Compile Vulkan kernels to SPIR-V, or check committed ones."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from zinc_rt.cli import vulkan_radv
from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_format
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import InputError, UsageError, ZincError

if TYPE_CHECKING:
    from zinc_rt.kernels.spirv.compile import GlslSource

EXAMPLES = """\
Without a NAME, every kernel whose committed file is missing or outdated is compiled, linted and written.
docs/spirv.md describes how to write a kernel and what lint rejects.

examples:
  zinc-rt vulkan compile
  zinc-rt vulkan compile add matvec_q8_0
  zinc-rt vulkan compile --check
  zinc-rt vulkan compile --radv gfx1201
  zinc-rt vulkan compile --radv gfx1201 -o /tmp kernel.spv

With --radv the committed modules, or files named .spv, become .zrt containers: Mesa's RADV compiles them for that
chip without a card, lint and figures follow (docs/radv.md).

exit codes: 0, or 1 where a committed file is stale or lint rejects it, or 2 for a source that cannot be
compiled, or 77 without the compiler (extra "glsl"; RADV); --check without it compares the hashes of sources alone.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        "zinc-rt vulkan", description="Compile the Vulkan kernels to SPIR-V, or check the committed ones."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    compile = actions.add_parser(
        "compile",
        help="compile GLSL to the committed SPIR-V",
        description="Compile kernels to SPIR-V in place.",
        epilog=EXAMPLES,
    )
    compile.add_argument("name", nargs="*", metavar="NAME", help="kernels to compile (default: outdated ones)")
    compile.add_argument("--check", action="store_true", help="lint and compare; write nothing")
    vulkan_radv.add_options(compile)
    add_format(compile)
    compile.set_defaults(body=_run_command)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    if arguments.radv:
        return vulkan_radv.compile_radv(arguments)
    if arguments.output or arguments.driver:
        raise UsageError("-o and --driver need --radv CHIP", next="zinc-rt vulkan compile --help")
    from zinc_rt.kernels.spirv.compile import PROBES, is_stale, list_sources

    every = {source.name: source for source in (*list_sources(), *list_sources(PROBES))}
    for name in arguments.name:
        if name not in every:
            raise UsageError(f"no kernel {name}", next=f"one of {', '.join(every)}")
    named = [every[name] for name in arguments.name]
    if arguments.check:
        return _check(named or list(every.values()), orphans=not named)
    return _write(named or [source for source in every.values() if is_stale(source)])


def _write(sources: list[GlslSource]) -> int:
    from zinc_rt.host.files import write_atomically
    from zinc_rt.kernels.spirv.compile import compile_source

    compiled, refused = _compile_each(sources, compile_source)
    for source, data in compiled:
        write_atomically(source.built, partial(_write_file, data))
        terminal.show(f"wrote  {source.built.name}: {len(data)} bytes")
    _print_errors(refused)
    good = f"{len(compiled)} of {len(sources)} kernels compiled"
    terminal.show(f"FAIL  {good}" if refused else f"PASS  {good}")
    return ZincError.exit_code if refused else 0


def _write_file(data: bytes, file: BinaryIO) -> None:
    file.write(data)


def _check(sources: list[GlslSource], *, orphans: bool) -> int:
    from zinc_rt.kernels.spirv.compile import BUILT, PROBES, build, is_available, is_stale
    from zinc_rt.spirv.lint import lint_module
    from zinc_rt.spirv.module import read_module

    bad = 0
    there = [source for source in sources if source.built.is_file()]
    for source in (item for item in there if item.linted):
        for remark in lint_module(read_module(source.built.read_bytes(), source.built.name)):
            bad += 1
            terminal.show(f"{source.built.name}: {remark}")
    old = [source for source in sources if is_stale(source)]
    if is_available():
        compiled, refused = _compile_each([source for source in there if source not in old], build)
        _print_errors(refused)
        old += [source for source, data in compiled if source.built.read_bytes() != data]
        bad += len(refused)
    for source in old:
        terminal.show(f"stale   {source.built.name}: differs from the output of {source.path.name}")
    if old:
        terminal.show(
            f"repro   zinc-rt vulkan compile {' '.join(source.name for source in old)} && git diff --stat"
        )
    if orphans:
        for path in sorted(
            {*BUILT.glob("*.spv"), *PROBES.glob("built/*.spv")} - {source.built for source in sources}
        ):
            bad += 1
            terminal.show(f"orphan  {path.name}: no source")
    bad += len(old)
    how = "" if is_available() else ', by the hashes of their sources: no compiler (extra "glsl")'
    terminal.show(
        f"{'FAIL' if bad else 'PASS'}  {len(sources) - len(old)} of {len(sources)} kernels are up to date{how}"
    )
    return 1 if bad else 0


def _print_errors(refused: list[ZincError]) -> None:
    for error in refused:
        print(error, file=sys.stderr)


def _compile_each(
    sources: list[GlslSource], how: Callable[[GlslSource], bytes]
) -> tuple[list[tuple[GlslSource, bytes]], list[ZincError]]:
    """Compile each source; return the modules and the errors. Raise NothingRan without the compiler."""

    def compile_one(source: GlslSource) -> bytes | ZincError:
        try:
            return how(source)
        except InputError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each waits for processes of its own
        result = list(zip(sources, pool.map(compile_one, sources), strict=True))
    compiled = [(source, data) for source, data in result if isinstance(data, bytes)]
    return compiled, [error for _, error in result if isinstance(error, ZincError)]


main = Command("vulkan", parser, lambda arguments: arguments.body(arguments))


if __name__ == "__main__":
    sys.exit(main())
