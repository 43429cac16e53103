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
    from zinc_rt.isa.lint import LintFinding
    from zinc_rt.kernels.zrt import Zrt


@dataclass(frozen=True, slots=True)
class RadvKernel:
    """A module and the path of its container."""

    name: str
    spirv: bytes
    output: Path


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--radv", metavar="CHIP", help=f"compile .zrt containers with RADV for this chip: {DEFAULT_ARCH}"
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
    from zinc_rt.host.files import write_atomically
    from zinc_rt.kernels.zrt import write_zrt

    requested, orphans = _find_requested_kernels(arguments)
    for path in orphans:
        terminal.show(f"orphan  {path.name}: no module {path.stem}.spv")
    if not requested:
        terminal.show(f"{'FAIL' if orphans else 'PASS'}  every container belongs to a module")
        return int(bool(orphans))
    compiled = compile_modules(
        {item.name: item.spirv for item in requested}, arguments.radv, driver=arguments.driver
    )
    terminal.show(f"RADV of Mesa {compiled.mesa}: {compiled.driver}")
    rows, bad = [], set()
    for kernel in requested:
        try:
            zrt, findings, remarks = _build_container(kernel, compiled.caches, compiled.mesa)
        except ZincError as error:
            print(error, file=sys.stderr)
            bad.add(kernel.name)
            continue
        rows.append(_make_row(zrt, len(findings), len(remarks)))
        for finding in findings:
            terminal.show(f"{kernel.name} {finding.sentence()}")
        if findings or (arguments.check and not _is_unchanged(kernel.output, zrt)):
            bad.add(kernel.name)
        elif not arguments.check:
            write_atomically(kernel.output, partial(_write_file, write_zrt(zrt)))
    figures = ("VGPRs", "LDS", "waves", "bytes", "findings", "remarks")
    terminal.show(Table(["kernel", *(Column(figure, right=True) for figure in figures)], rows))
    state = "up to date" if arguments.check else "compiled"
    good = f"{len(requested) - len(bad)} of {len(requested)} kernels are {state}"
    terminal.show(f"{'FAIL' if bad or orphans else 'PASS'}  {good}")
    return int(bool(bad or orphans))


def _is_unchanged(path: Path, zrt: Zrt) -> bool:
    """Return whether a committed container equals this one; print it otherwise."""
    from zinc_rt.kernels.zrt import write_zrt

    same = path.is_file() and path.read_bytes() == write_zrt(zrt)
    if not same:
        terminal.show(f"stale   {path.name}: differs from the output of {zrt.compiler}")
    return same


def _find_requested_kernels(arguments: argparse.Namespace) -> tuple[list[RadvKernel], list[Path]]:
    """Return the modules to compile and, if none is named, the containers without a module."""
    from zinc_rt.kernels.radv.container import hash_module
    from zinc_rt.kernels.radv.table import BUILT
    from zinc_rt.kernels.sources import read_source
    from zinc_rt.kernels.spirv.compile import BUILT as MODULES
    from zinc_rt.kernels.zrt import read_zrt

    folder = Path(arguments.output or BUILT)
    if not folder.is_dir():
        raise InputError(f"-o {folder}: no such folder")
    every = {path.stem: path for path in sorted(MODULES.glob("*.spv"))}
    modules = []
    for name in arguments.name or every:
        path = Path(name) if name.endswith(".spv") else every.get(name)
        if path is None:
            raise UsageError(f"no module {name}", next="zinc-rt vulkan compile makes those that have a source")
        modules.append(RadvKernel(path.stem, read_source(path), folder / f"{path.stem}.zrt"))
    if arguments.name or arguments.output:
        return modules, []
    orphans = [path for path in sorted(folder.glob("*.zrt")) if path.stem not in every]
    if arguments.check:
        return modules, orphans

    def is_current(kernel: RadvKernel) -> bool:
        if not kernel.output.is_file():
            return False
        zrt = read_zrt(kernel.output.read_bytes(), kernel.output.name)
        return zrt.source_hash == hash_module(kernel.spirv)

    return [module for module in modules if not is_current(module)], orphans


def _build_container(
    kernel: RadvKernel, caches: Mapping[str, bytes], mesa: str
) -> tuple[Zrt, list[LintFinding], list[LintFinding]]:
    """Return the container, the static sanitizer's findings in it, and the remarks."""
    from zinc_rt.isa import target_of
    from zinc_rt.isa.lint import Limits, lint
    from zinc_rt.kernels.radv.container import build_container
    from zinc_rt.kernels.remarks import is_remark

    zrt = build_container(kernel.name, kernel.spirv, caches[kernel.name], mesa)
    limits = Limits(zrt.vgprs, zrt.sgprs, zrt.lds_bytes, zrt.scratch_bytes, 2, zrt.kernarg_bytes)
    findings = lint(zrt.code, target_of(zrt.target, zrt.wave), limits)
    remarks = [finding for finding in findings if is_remark(finding.rule, zrt.compiler)]
    return zrt, [finding for finding in findings if finding not in remarks], remarks


def _write_file(data: bytes, file: BinaryIO) -> object:
    return file.write(data)


def _make_row(zrt: Zrt, findings: int, remarks: int) -> list[Any]:
    return [zrt.name, zrt.vgprs, zrt.lds_bytes or "", zrt.occupancy, len(zrt.code), findings or "", remarks or ""]
