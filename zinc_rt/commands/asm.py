"""Assemble gfx12 kernels to .zrt files, or check that the committed ones are what their sources give."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from zinc_rt.arguments import Parser
from zinc_rt.cli import Command
from zinc_rt.errors import InputError, OutputError, UsageError, ZincError

EXAMPLES = """\
A source begins with .include "zrt.inc", which is found wherever the source is. docs/zrt.md describes it.

examples:
  zinc-rt asm kernel.s -o kernel.zrt
  zinc-rt asm --all
  zinc-rt asm --check

exit codes: 0, or 1 where a committed .zrt is stale, or 2 for a source that cannot be assembled, or 77 without the
assembler (extra "asm").
"""


def parser() -> argparse.ArgumentParser:
    made = Parser(
        description="Assemble gfx12 kernels to .zrt files.",
        epilog=EXAMPLES,
    )
    made.add_argument("source", nargs="?", metavar="FILE.s", help="the source of one kernel")
    made.add_argument("-o", "--output", metavar="FILE.zrt", help="default: the source's name with .zrt")
    made.add_argument("--all", action="store_true", help="assemble every kernel of this package in place")
    made.add_argument("--check", action="store_true", help="assemble every kernel and compare, write nothing")
    return made


def _asm(arguments: argparse.Namespace) -> int:
    from zinc_rt.kernels.assemble import assemble, sources

    if (arguments.source is not None) + arguments.all + arguments.check != 1:
        raise UsageError("wanted one of FILE.s, --all and --check", next="zinc-rt asm --help")
    if arguments.source is None:
        return _check(sources()) if arguments.check else _all(sources())
    path = Path(arguments.source)
    output = Path(arguments.output or path.with_suffix(".zrt"))
    data = assemble(path)
    _write(output, data)
    print(f"PASS  {output}: {len(data)} bytes")
    return 0


def _all(paths: list[Path]) -> int:
    made, refused = _assembled(paths)
    changed = [(path, data) for path, data in made if _stale(path, data)]
    for path, data in changed:
        _write(path.with_suffix(".zrt"), data)
    _say(refused)
    good = f"{len(made)} kernels, {len(changed)} changed"
    print(f"FAIL  {good}, {len(refused)} refused" if refused else f"PASS  {good}")
    return ZincError.exit_code if refused else 0


def _check(paths: list[Path]) -> int:
    made, refused = _assembled(paths)
    stale = [path for path, data in made if _stale(path, data)]
    sources = {path.stem for path in paths}
    orphans = [path for folder in {path.parent for path in paths} for path in sorted(folder.glob("*.zrt"))]
    orphans = [path for path in orphans if path.stem not in sources]
    for path in stale:
        print(f"stale   {path.stem}.zrt: not what {path.name} gives")
    for path in orphans:
        print(f"orphan  {path.name}: no source")
    _say(refused)
    bad = len(stale) + len(orphans) + len(refused)
    if stale:
        print("repro   zinc-rt asm --all && git diff --stat")
    print(f"{'FAIL' if bad else 'PASS'}  {len(made) - len(stale)} of {len(paths)} kernels are up to date")
    return 1 if bad else 0


def _say(refused: list[ZincError]) -> None:
    for error in refused:
        print(error, file=sys.stderr)


def _assembled(paths: list[Path]) -> tuple[list[tuple[Path, bytes]], list[ZincError]]:
    """What each source gives, and why some give nothing. Raises NothingRan without the assembler."""
    from zinc_rt.kernels.assemble import assemble

    def one(path: Path) -> bytes | ZincError:
        try:
            return assemble(path)
        except InputError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each waits for a process of its own
        done = list(zip(paths, pool.map(one, paths), strict=True))
    made = [(path, data) for path, data in done if isinstance(data, bytes)]
    return made, [error for _, error in done if isinstance(error, ZincError)]


def _stale(path: Path, data: bytes) -> bool:
    committed = path.with_suffix(".zrt")
    return not committed.is_file() or committed.read_bytes() != data


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}") from None


main = Command("asm", parser, _asm)


if __name__ == "__main__":
    sys.exit(main())
