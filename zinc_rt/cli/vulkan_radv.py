"""`zinc-rt vulkan compile --radv CHIP`: convert the committed SPIR-V to .zrt containers with Mesa's RADV."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from zinc_rt.host import terminal
from zinc_rt.host.errors import InputError, UsageError, ZincError
from zinc_rt.host.terminal import Column, Table
from zinc_rt.isa.target import DEFAULT_ARCH

if TYPE_CHECKING:
    from zinc_rt.backends.vulkan.radv import RadvCompiled
    from zinc_rt.isa.lint import LintFinding
    from zinc_rt.kernels.zrt import Zrt


@dataclass(frozen=True, slots=True)
class RadvKernel:
    """A module."""

    name: str
    spirv: bytes


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--radv",
        metavar="CHIP",
        help=f"compile .zrt containers with RADV for this chip: {DEFAULT_ARCH} or gfx1100",
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="with --radv: output folder (default: kernel set radv)"
    )
    parser.add_argument(
        "--driver",
        metavar="FILE",
        default="",
        help="with --radv: libvulkan_radeon.so or its manifest (default: search)",
    )


def compile_radv(arguments: argparse.Namespace) -> int:
    """Return 0 if every container was written, or with --check is up to date; otherwise 1."""
    from zinc_rt.backends.vulkan.radv import compile_modules
    from zinc_rt.kernels.zrt import write_zrt

    committed = _read_committed(arguments)
    requested, orphans = _find_requested_kernels(arguments, committed)
    location = _find_location(arguments)
    drops = location.is_file() and not arguments.check  # nobody can remove a container from an archive by hand
    for name in orphans:
        terminal.show(f"{'removed' if drops else 'orphan '} {name}.zrt: no module {name}.spv")
    if orphans and drops:
        committed = {name: data for name, data in committed.items() if name not in orphans}
        _write_archive(location, committed)
        orphans = []
    if not requested:
        terminal.show(f"{'FAIL' if orphans else 'PASS'}  every container belongs to a module")
        return int(bool(orphans))
    compiled = compile_modules(
        {item.name: item.spirv for item in requested}, arguments.radv, driver=arguments.driver
    )
    terminal.show(f"RADV of Mesa {compiled.mesa}: {compiled.driver}")
    rows, bad, built = [], set(), dict[str, bytes]()
    for kernel in requested:
        try:
            zrt, findings, remarks = _build_container(kernel, compiled, arguments.radv)
        except ZincError as error:
            print(error, file=sys.stderr)
            bad.add(kernel.name)
            continue
        rows.append(_make_row(zrt, len(findings), len(remarks)))
        for finding in findings:
            terminal.show(f"{kernel.name} {finding.sentence()}")
        data = write_zrt(zrt)
        if findings:
            bad.add(kernel.name)
        elif not arguments.check:
            built[kernel.name] = data
        elif committed.get(kernel.name) != data:
            terminal.show(f"stale   {kernel.name}.zrt: differs from the output of {zrt.compiler}")
            bad.add(kernel.name)
    _write_containers(arguments, committed, built)
    figures = ("VGPRs", "LDS", "waves", "bytes", "findings", "remarks")
    terminal.show(Table(["kernel", *(Column(figure, right=True) for figure in figures)], rows))
    state = "up to date" if arguments.check else "compiled"
    good = f"{len(requested) - len(bad)} of {len(requested)} kernels are {state}"
    terminal.show(f"{'FAIL' if bad or orphans else 'PASS'}  {good}")
    return int(bool(bad or orphans))


def _find_location(arguments: argparse.Namespace) -> Path:
    """Return the folder or the archive of the containers."""
    from zinc_rt.kernels.radv import gfx1100
    from zinc_rt.kernels.radv.table import BUILT

    return Path(arguments.output or (BUILT if arguments.radv == DEFAULT_ARCH else gfx1100.ARCHIVE))


def _read_committed(arguments: argparse.Namespace) -> dict[str, bytes]:
    """Return the existing containers by kernel name."""
    from zinc_rt.kernels.archive import read_archive

    location = _find_location(arguments)
    if arguments.output and not location.is_dir():
        raise InputError(f"-o {location}: no such folder")
    if location.is_dir():
        return {path.stem: path.read_bytes() for path in sorted(location.glob("*.zrt"))}
    return read_archive(location) if location.is_file() else {}


def _write_containers(
    arguments: argparse.Namespace, committed: Mapping[str, bytes], built: Mapping[str, bytes]
) -> None:
    from zinc_rt.host.files import write_atomically

    location = _find_location(arguments)
    if location.is_dir():
        for name, data in built.items():
            write_atomically(location / f"{name}.zrt", partial(_write_file, data))
    elif built:
        _write_archive(location, {**committed, **built})


def _write_archive(location: Path, containers: Mapping[str, bytes]) -> None:
    from zinc_rt.host.files import write_atomically
    from zinc_rt.kernels.archive import pack_archive

    write_atomically(location, partial(_write_file, pack_archive(dict(containers))))


def _find_requested_kernels(
    arguments: argparse.Namespace, committed: Mapping[str, bytes]
) -> tuple[list[RadvKernel], list[str]]:
    """Return the modules to compile and, if none is named, the containers without a module."""
    from zinc_rt.kernels.radv.container import hash_module
    from zinc_rt.kernels.sources import read_source
    from zinc_rt.kernels.spirv.compile import BUILT as MODULES
    from zinc_rt.kernels.zrt import read_zrt

    every = {path.stem: path for path in sorted(MODULES.glob("*.spv"))}
    modules = []
    for name in arguments.name or every:
        path = Path(name) if name.endswith(".spv") else every.get(name)
        if path is None:
            raise UsageError(f"no module {name}", next="zinc-rt vulkan compile makes those that have a source")
        modules.append(RadvKernel(path.stem, read_source(path)))
    if arguments.name or arguments.output:
        return modules, []
    orphans = sorted(committed.keys() - every.keys())
    if arguments.check:
        return modules, orphans

    def is_current(kernel: RadvKernel) -> bool:
        if kernel.name not in committed:
            return False
        zrt = read_zrt(committed[kernel.name], f"{kernel.name}.zrt")
        return zrt.source_hash == hash_module(kernel.spirv)

    return [module for module in modules if not is_current(module)], orphans


def _build_container(
    kernel: RadvKernel, compiled: RadvCompiled, chip: str
) -> tuple[Zrt, list[LintFinding], list[LintFinding]]:
    """Return the container, the static sanitizer's findings in it, and the remarks."""
    from zinc_rt.isa import target_of
    from zinc_rt.isa.lint import Limits, lint
    from zinc_rt.kernels.radv.container import build_container
    from zinc_rt.kernels.remarks import is_remark
    from zinc_rt.kernels.rsrc import count_initial_sgprs

    zrt = build_container(kernel.name, kernel.spirv, compiled.caches[kernel.name], compiled.mesa, chip)
    sgprs = count_initial_sgprs(zrt.rules)
    limits = Limits(zrt.vgprs, zrt.sgprs, zrt.lds_bytes, zrt.scratch_bytes, sgprs, zrt.kernarg_bytes)
    findings = lint(zrt.code, target_of(zrt.target, zrt.wave), limits)
    remarks = [finding for finding in findings if is_remark(finding.rule, zrt.compiler)]
    return zrt, [finding for finding in findings if finding not in remarks], remarks


def _write_file(data: bytes, file: BinaryIO) -> object:
    return file.write(data)


def _make_row(zrt: Zrt, findings: int, remarks: int) -> list[Any]:
    return [zrt.name, zrt.vgprs, zrt.lds_bytes or "", zrt.occupancy, len(zrt.code), findings or "", remarks or ""]
