"""Assemble kernels to .zrt files, or check committed ones."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from zinc_rt.cli.command import Command
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import InputError, OutputError, UsageError, ZincError
from zinc_rt.isa.target import DEFAULT_ARCH
from zinc_rt.kernels.archive import pack_archive, read_archive
from zinc_rt.kernels.zrt import BUILT_TARGETS

if TYPE_CHECKING:
    from zinc_rt.kernels.assemble import Source

EXAMPLES = """\
A source begins with .include "zrt.inc", which is found wherever the source is. docs/zrt.md describes it. A family
(.macro zrt_of_weight) gives a kernel for each weight type.

examples:
  zinc-rt asm kernel.s -o kernel.zrt
  zinc-rt asm kernel.s --arch gfx1100
  zinc-rt asm --all
  zinc-rt asm --check

exit codes: 0 done, 1 a committed .zrt is stale, 2 a source cannot be assembled, 77 no assembler (extra "asm").
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        description="Assemble kernels to .zrt files.",
        epilog=EXAMPLES,
    )
    parser.add_argument("source", nargs="?", metavar="FILE.s", help="assembly source of one kernel")
    parser.add_argument(
        "-o", "--output", metavar="FILE.zrt", help="output file (default: the source's name with .zrt)"
    )
    parser.add_argument(
        "--arch",
        choices=BUILT_TARGETS,
        help="chip; a source is written for gfx12, and macros translate it for gfx11 (default gfx1201)",
    )
    parser.add_argument("--all", action="store_true", help="assemble every kernel of this package in place")
    parser.add_argument(
        "--check",
        action="store_true",
        help="assemble every kernel and compare with the committed file; write nothing",
    )
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.kernels.assemble import assemble, list_package_sources, read_sources

    if (arguments.source is not None) + arguments.all + arguments.check != 1:
        raise UsageError("expected FILE.s, --all or --check", next="zinc-rt asm --help")
    if arguments.source is None:
        if arguments.arch:
            raise UsageError("--all and --check assemble for every chip", next="omit --arch")
        return (_check if arguments.check else _assemble_all)(list_package_sources())
    path = Path(arguments.source)
    listed = read_sources(path, arguments.arch or DEFAULT_ARCH)
    if arguments.output and len(listed) > 1:
        raise UsageError(f"{path} produces {len(listed)} kernels, but -o names one file", next="omit -o")
    for source in listed:
        data = assemble(source)
        output = Path(arguments.output or source.container)
        _write(output, data)
        print(f"PASS  {output}: {len(data)} bytes")
    return 0


def _assemble_all(sources: list[Source]) -> int:
    assembled, refused = _assemble_each(sources)
    committed = _read_committed(sources)
    changed = [(source, data) for source, data in assembled if committed.get(_locate(source)) != data]
    archives: dict[Path, dict[str, bytes]] = {}
    for source, data in assembled:
        if source.archive:
            archives.setdefault(source.archive, {})[source.name] = data
    for source, data in changed:
        if not source.archive:
            _write(source.container, data)
    if not refused:
        for path, containers in archives.items():
            if containers != {name: data for (place, name), data in committed.items() if place == path}:
                _write(path, pack_archive(containers))
    _print_errors(refused)
    good = f"{len(assembled)} kernels, {len(changed)} changed"
    print(f"FAIL  {good}, {len(refused)} refused" if refused else f"PASS  {good}")
    return ZincError.exit_code if refused else 0


def _check(sources: list[Source]) -> int:
    assembled, refused = _assemble_each(sources)
    committed = _read_committed(sources)
    stale = [source for source, data in assembled if committed.get(_locate(source)) != data]
    orphans = sorted(committed.keys() - {_locate(source) for source in sources})
    for source in stale:
        print(f"stale   {source.name}.zrt of {source.arch}: differs from the output of {source.path.name}")
    for path, name in orphans:
        print(f"orphan  {name}.zrt in {path.name}: no source")
    _print_errors(refused)
    bad = len(stale) + len(orphans) + len(refused)
    if stale:
        print("repro   zinc-rt asm --all && git diff --stat")
    print(f"{'FAIL' if bad else 'PASS'}  {len(assembled) - len(stale)} of {len(sources)} kernels are up to date")
    return 1 if bad else 0


def _print_errors(refused: list[ZincError]) -> None:
    for error in refused:
        print(error, file=sys.stderr)


def _assemble_each(sources: list[Source]) -> tuple[list[tuple[Source, bytes]], list[ZincError]]:
    """Assemble each source; return the containers and the errors. Raise NothingRan without the assembler."""
    from zinc_rt.kernels.assemble import assemble

    def assemble_one(source: Source) -> bytes | ZincError:
        try:
            return assemble(source)
        except InputError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each thread waits for a process
        result = list(zip(sources, pool.map(assemble_one, sources), strict=True))
    assembled = [(source, data) for source, data in result if isinstance(data, bytes)]
    return assembled, [error for _, error in result if isinstance(error, ZincError)]


def _locate(source: Source) -> tuple[Path, str]:
    """Return the folder or archive of a source's container, and its name there."""
    return source.archive or source.container.parent, source.name


def _read_committed(sources: list[Source]) -> dict[tuple[Path, str], bytes]:
    """Return the containers in all folders and archives of the sources."""
    committed: dict[tuple[Path, str], bytes] = {}
    for place in {_locate(source)[0] for source in sources}:
        if place.is_dir():
            containers = {path.stem: path.read_bytes() for path in place.glob("*.zrt")}
        else:
            containers = read_archive(place) if place.is_file() else {}
        committed |= {(place, name): data for name, data in containers.items()}
    return committed


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}") from None


main = Command("asm", parser, _run_command)


if __name__ == "__main__":
    sys.exit(main())
