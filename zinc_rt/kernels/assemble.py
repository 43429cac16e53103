"""Assemble GAS source to .zrt: zig's clang assembles, and the data emitted by the macros of include/zrt.inc
becomes the header."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from zinc_rt.host.errors import InputError, NothingRan
from zinc_rt.ir.dtypes import CACHE_TYPES, count_row_bytes
from zinc_rt.isa.elf import read_section_contents, read_symbol_values
from zinc_rt.isa.target import CHIPS, DEFAULT_ARCH, DEFAULT_READING, TARGETS, make_default_target
from zinc_rt.kernels.archive import ARCHIVE
from zinc_rt.kernels.line_table import read_line_rows
from zinc_rt.kernels.retarget import retarget_line
from zinc_rt.kernels.rows import repack
from zinc_rt.kernels.rows.caches import name_kernel
from zinc_rt.kernels.sources import hash_sources, read_source, with_includes
from zinc_rt.kernels.true16 import FAKE, REAL, has_halves
from zinc_rt.kernels.zrt import Line, Slot, Zrt, write_zrt

KERNELS = Path(__file__).parent / make_default_target().kernels
INCLUDE = KERNELS / "include"
BUILT = "built"  # the folder with a set's containers, next to its sources
HALVES = ("f16", "bf16")  # types that matrix cores multiply
_DECLARED = struct.Struct("<9I")
_USED = struct.Struct("<2I")
_SYMBOL = re.compile(r"zrt_const\.(.+)\.\d+")
_FAMILIES: dict[
    str, tuple[str, ...]
] = {  # whose members are the types of weights, of cached keys and values, of halves
    "kv": CACHE_TYPES,
    "weight": repack.WEIGHT_TYPES,
    "halves": HALVES,
    "halves_weight": tuple(f"{halves}_{dtype}" for halves in HALVES for dtype in repack.WEIGHT_TYPES),
    **{
        f"q8_{block}": tuple(dtype for dtype, own in repack.Q8_BLOCKS.items() if own == block)
        for block in sorted(set(repack.Q8_BLOCKS.values()))
    },
}
_FAMILY = re.compile(rf"^\.macro zrt_of_({'|'.join(_FAMILIES)})\b", re.MULTILINE)
_MATRIX = re.compile(r"^\s*v_s?wmma", re.MULTILINE)
_INCLUDE = re.compile(r'^\s*\.include\s+"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """The inputs of one kernel: its text, the element type and name of a family's member, and the target chip."""

    path: Path
    dtype: str = ""
    family: str = "weight"
    arch: str = DEFAULT_ARCH

    @property
    def name(self) -> str:
        if self.family == "kv":
            return name_kernel(self.path.stem, self.dtype)
        return f"{self.path.stem}_{self.dtype}" if self.dtype else self.path.stem

    @property
    def container(self) -> Path:
        """Return the path of its .zrt: next to the source, or in the container folder of a kernel set."""
        if self.arch != DEFAULT_ARCH:
            return self.path.with_name(f"{self.name}.{self.arch}.zrt")
        folder = self.path.parent / BUILT
        return (folder if folder.is_dir() else self.path.parent) / f"{self.name}.zrt"

    @property
    def archive(self) -> Path | None:
        """Return the path of the archive with its .zrt, if it is not in a file of its own: another chip's."""
        if self.arch == DEFAULT_ARCH or self.path.parent != KERNELS:
            return None
        return KERNELS.parent / self.arch / ARCHIVE

    @property
    def generation(self) -> int:
        return TARGETS[self.arch].generation

    @property
    def includes(self) -> tuple[Path, ...]:
        """Return the folders of included files, those of another generation than the sources' first."""
        own = INCLUDE / f"gfx{self.generation}"
        return (own, INCLUDE) if own.is_dir() else (INCLUDE,)

    @property
    def invocation(self) -> str:
        """Return the text appended for a family's member: the bytes of a group in each plane or of 128 cached
        elements, which halves, and the call of its macro."""
        if not self.dtype:
            return ""
        if self.family == "kv":
            sizes = {"KV": CACHE_TYPES.index(self.dtype), "KV_128": count_row_bytes(self.dtype, 128)}
            member = self.name.removeprefix(self.path.stem)
        else:
            halves, weight = "", self.dtype
            if self.family.startswith("halves"):
                halves, _, weight = self.dtype.partition("_")
            planes = (*repack.count_group_bytes(weight), 0, 0, 0) if weight else ()
            names = [f"{weight}_{plane}" for plane in ("QUANTS", "SCALES", "HIGH")]
            sizes = dict(zip(names, planes, strict=False))
            member = ", ".join(filter(None, (halves, weight)))
            if halves:
                sizes["BF16"] = int(halves == "bf16")
        lines = [f".set {name}, {size_bytes}" for name, size_bytes in sizes.items()]
        return "\n".join([*lines, f"zrt_of_{self.family} {member}".rstrip(), ""])


def is_available() -> bool:
    """Return whether the assembler is installed."""
    return find_spec("ziglang") is not None


def assemble(source: Source) -> bytes:
    """Assemble the .zrt of one kernel. Raise NothingRan without the assembler, InputError for a source that it
    rejects.
    """
    return write_zrt(_make_kernel(source, _assemble_with_clang(source)))


def list_sources(folder: Path = KERNELS, arch: str = DEFAULT_ARCH) -> list[Source]:
    """Return the kernels of a folder, by file and element type."""
    paths = [path for path in sorted(folder.glob("*.s")) if is_portable(Source(path, arch=arch))]
    return [source for path in paths for source in read_sources(path, arch)]


def is_portable(source: Source) -> bool:
    """Return whether a source can be assembled for its chip: matrix instructions have other layouts on other
    generations, so their sources need a branch for each."""
    if source.arch == DEFAULT_ARCH:
        return True
    texts = [read_source(path).decode("utf-8", "replace") for path in _list_files(source)]
    return f".ifdef ZRT_GFX{source.generation}" in texts[0] or not any(map(_MATRIX.search, texts))


def list_package_sources() -> list[Source]:
    """Return the kernels of this package, of every chip that has some."""
    chips = dict.fromkeys(chip.kernels for chip in CHIPS if chip.kernels)
    return [source for arch in chips for source in list_sources(arch=arch)]


def read_sources(path: Path, arch: str = DEFAULT_ARCH) -> list[Source]:
    """Return the kernels of one file: one, or one per element type of a family."""
    match = _FAMILY.search(read_source(path).decode("utf-8", "replace"))
    if not match:
        return [Source(path, arch=arch)]
    return [Source(path, dtype, match[1], arch) for dtype in _FAMILIES[match[1]]]


def hash_source(source: Source) -> bytes:
    """Return the SHA-256 over the names and bytes of a source and of everything it includes, in order of first
    mention, and over the text appended for a family's member."""
    return hash_sources(_list_files(source), source.invocation)


def _list_files(source: Source) -> list[Path]:
    return with_includes(source.path, _INCLUDE, source.includes)


def _assemble_with_clang(source: Source) -> bytes:
    """Assemble to a relocatable object with a line table for every file."""
    if not is_available():
        raise NothingRan("no assembler: the package ziglang is not installed", next="pip install 'zinc-rt[asm]'")
    path, files = source.path, _list_files(source)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        halves = False
        for number, file in enumerate(files, 1):
            text = read_source(file).decode("utf-8", "replace")
            halves |= has_halves(text)
            marked = _mark_source(text, number, source.generation)
            if number == 1:
                marked = "".join(f'.file {n} "{f.name}"\n' for n, f in enumerate(files, 1)) + marked
                marked += source.invocation
            (folder / file.name).write_text(marked, encoding="utf-8")
        flags = REAL if halves else FAKE if DEFAULT_READING[source.generation] == "real" else ()
        result, built = run_assembler(source.arch, folder / path.name, [folder], folder / "kernel.o", flags)
        if built is not None:
            return built
        if source.generation == make_default_target().generation:
            plain = folder / f"{source.name}.plain.s"  # for the offsets in its words
            plain.write_text(f'.include "{path.resolve()}"\n{source.invocation}', encoding="utf-8")
            result, _ = run_assembler(source.arch, plain, [path.parent, INCLUDE], folder / "kernel.o", flags)
        raise InputError(f"{path}: assembler error:\n{result.strip()}")


def run_assembler(
    arch: str, path: Path, includes: list[Path], output: Path, flags: Sequence[str] = ()
) -> tuple[str, bytes | None]:
    """Run the assembler. Return its messages, and the object unless it rejected the source."""
    command = [*find_zig_command(), "clang", "--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-g", *flags]
    for folder in includes:
        command += ["-I", str(folder)]
    command += ["-c", str(path), "-o", str(output)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stderr, output.read_bytes() if result.returncode == 0 and output.exists() else None


def find_zig_command() -> list[str]:
    """Return zig's executable itself if it can be located: starting it through Python takes as long as
    assembling.
    """
    spec = find_spec("ziglang")
    program = Path(spec.origin or "").parent / "zig" if spec is not None else Path()
    return [str(program)] if program.is_file() else [sys.executable, "-m", "ziglang"]


def _mark_source(text: str, number: int, generation: int) -> str:
    """Return the source with a .loc before every line that may become code, also in macros. Without it the
    assembler records only the line that called the outermost macro."""
    lines = []
    in_comment = False
    for line, words in enumerate(text.splitlines(), 1):
        start = words.strip()
        if not in_comment and start and not start.startswith((".", "//", ";", "#", "/*")):
            lines.append(f".loc {number} {line}")
        lines.append(words if in_comment else retarget_line(words, generation))
        bare = words.partition("//")[0]
        opened, closed = bare.rfind("/*"), bare.rfind("*/")
        in_comment = opened > closed if opened >= 0 or closed >= 0 else in_comment
    return "\n".join(lines) + "\n"


def _make_kernel(made_of: Source, code_object: bytes) -> Zrt:
    source = str(made_of.path)
    sections = read_section_contents(code_object, source)
    declared, used = sections.get(".zrt", b""), sections.get(".zrt.used", b"")
    if len(declared) < _DECLARED.size or declared.count(b"\0", _DECLARED.size) != 1:
        raise InputError(
            f"{source}: expected exactly one zrt_kernel", next='write .include "zrt.inc" and one kernel per source'
        )
    if len(used) != _USED.size:
        raise InputError(f"{source}: expected exactly one zrt_end", next="make it the last line")
    buffers, constants, x, y, z, vgprs, sgprs, lds, scratch = _DECLARED.unpack_from(declared)
    if made_of.generation != make_default_target().generation:  # macros use more registers than the source
        vgprs, sgprs = map(max, (vgprs, sgprs), _USED.unpack(used))
    for what, count, limit in zip(("vgprs", "sgprs"), _USED.unpack(used), (vgprs, sgprs), strict=True):
        if count > limit:
            raise InputError(
                f"{source}: declares {what}={limit}, but {count} are used", next=f"declare {what}={count}"
            )
    code = sections[".text"]
    slots = []
    for section, name, value in read_symbol_values(code_object, source):
        match = _SYMBOL.fullmatch(name)
        if match and section == ".text":
            slots.append(Slot(match[1], value, int.from_bytes(code[value : value + 4], "little")))
    return Zrt(
        name=declared[_DECLARED.size :].partition(b"\0")[0].decode("utf-8", "replace"),
        code=code,
        buffers=buffers,
        constant_bytes=4 * constants,
        workgroup=(x, y, z),
        vgprs=vgprs,
        sgprs=sgprs,
        target=made_of.arch,
        lds_bytes=lds,
        scratch_bytes=scratch,
        slots=tuple(slots),
        lines=_make_lines(sections.get(".debug_line", b""), source, len(code)),
        files=tuple(file.name for file in _list_files(made_of)),
        source_hash=hash_source(made_of),
    )


def _make_lines(section: bytes, source: str, code_bytes: int) -> tuple[Line, ...]:
    """Return one Line for each change of position. If an address has several rows, the last belongs to the
    innermost macro.
    """
    position: dict[int, Line] = {}
    caller = 1
    for offset, number, line in read_line_rows(section, source):
        if number == 1:
            caller = line
        if offset < code_bytes:
            position[offset] = Line(offset, number - 1, line, caller)
    lines: list[Line] = []
    for offset, line_here in sorted(position.items()):
        if not lines or replace(lines[-1], offset=offset) != line_here:
            lines.append(line_here)
    return tuple(lines)
