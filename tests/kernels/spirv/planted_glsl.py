"""Mistakes of a token or two in GLSL, compiled as the build compiles, but for the lint's veto."""

from __future__ import annotations

import shutil
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


def compiled(edit: GlslEdit, folder: Path) -> bytes:
    """The kernel with the mistake in it, decorated."""
    source = next(each for each in compiler.sources() if each.name == edit.kernel)
    planted = folder / source.path.name
    shutil.copy(source.path, planted)
    for path in compiler.INCLUDE.glob("*.glsl"):  # beside it: an include looks there first
        shutil.copy(path, folder / path.name)
    file = folder / (edit.file or source.path.name)
    text = file.read_text()
    assert text.count(edit.old) == 1, f"{file.name}: {edit.old}: there {text.count(edit.old)} times"
    file.write_text(text.replace(edit.old, edit.new))
    return compiler.build(replace(source, path=planted))


def with_module(name: str, data: bytes) -> SpirvKernelSet:
    """The kernel set, but for one kernel."""
    return SpirvKernels(
        KERNELS.target,
        KERNELS.entries,
        KERNELS.pack,
        KERNELS.packed_bytes,
        KERNELS.names,
        lambda asked: data if asked == name else KERNELS.module(asked),
    )
