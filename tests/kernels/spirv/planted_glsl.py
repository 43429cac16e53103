"""Mistakes of a token or two in GLSL, compiled as the build compiles, but for the lint's veto."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from zinc_rt.kernels.sets import SpirvKernels, SpirvKernelSet
from zinc_rt.kernels.spirv import compile as compiler
from zinc_rt.kernels.spirv.table import KERNELS


@dataclass(frozen=True, slots=True)
class GlslEdit:
    """`old` becomes `new` in `file`, the kernel's own unless named; there exactly once."""

    kernel: str
    old: str
    new: str
    file: str = ""


def compile_edited(edit: GlslEdit, folder: Path, *others: GlslEdit) -> bytes:
    """Build the kernel of `edit` with all mistakes, decorated, in an empty folder."""
    source = next(source for source in compiler.list_sources() if source.name == edit.kernel)
    planted = folder / source.path.name
    shutil.copy(source.path, planted)
    for path in compiler.INCLUDE.glob("*.glsl"):  # beside it: an include looks there first
        shutil.copy(path, folder / path.name)
    for item in (edit, *others):
        file = folder / (item.file or source.path.name)
        text = file.read_text()
        assert text.count(item.old) == 1, f"{file.name}: {item.old}: there {text.count(item.old)} times"
        file.write_text(text.replace(item.old, item.new))
    return compiler.build(replace(source, path=planted))


def with_modules(modules: Mapping[str, bytes]) -> SpirvKernelSet:
    """The kernel set, but for some kernels."""
    return SpirvKernels(
        KERNELS.target,
        KERNELS.entries,
        KERNELS.pack,
        KERNELS.packed_bytes,
        KERNELS.names,
        lambda name: modules[name] if name in modules else KERNELS.module(name),
    )
