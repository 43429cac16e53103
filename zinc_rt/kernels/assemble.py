"""GAS source to .zrt: zig's clang assembles, what the macros of gfx1201/zrt.inc left behind becomes the header.

data = assemble(Path("rms_norm.s"))        # InputError with the assembler's words where it refuses
"""

from __future__ import annotations

import hashlib
import re
import struct
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from zinc_rt.errors import InputError, NothingRan
from zinc_rt.isa.elf import section_contents, symbol_values
from zinc_rt.kernels.line_program import line_rows
from zinc_rt.kernels.zrt import Line, Slot, Zrt, write_zrt

KERNELS = Path(__file__).parent / "gfx1201"
_DECLARED = struct.Struct("<9I")
_USED = struct.Struct("<2I")
_SYMBOL = re.compile(r"zrt_const\.(.+)\.\d+")
_INCLUDE = re.compile(r'^\s*\.include\s+"([^"]+)"', re.MULTILINE)
_MACRO = re.compile(r"^\s*\.macro\b.*?^\s*\.endm\b", re.MULTILINE | re.DOTALL)
_INSTRUCTION = re.compile(
    r"^\s*(?:\w+:\s*)?((?:s|v|ds|global|flat|scratch|buffer)_[a-z0-9_]+)(?:\s|$)", re.MULTILINE
)


def available() -> bool:
    """Whether the assembler is installed."""
    return find_spec("ziglang") is not None


def assemble(path: Path) -> bytes:
    """The .zrt of one source file. Raises NothingRan without the assembler, InputError for a source it refuses."""
    code_object = _clang(path)
    return write_zrt(_kernel(path, code_object))


def sources(folder: Path = KERNELS) -> list[Path]:
    """The kernel sources of a folder."""
    return sorted(folder.glob("*.s"))


def source_hash(path: Path) -> bytes:
    """SHA-256 over the names and bytes of a source and of everything it includes, in order of first mention."""
    digest = hashlib.sha256()
    for file in _files(path):
        data = _read(file)
        digest.update(f"{file.name} {len(data)}\n".encode() + data)
    return digest.digest()


def _files(path: Path) -> list[Path]:
    found = [path]
    for file in found:
        for name in _INCLUDE.findall(_read(file).decode("utf-8", "replace")):
            where = [folder / name for folder in (path.parent, KERNELS) if (folder / name).is_file()]
            if not where:
                raise InputError(f"{file}: includes {name}, which is neither beside it nor in {KERNELS}")
            if where[0] not in found:
                found.append(where[0])
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None


def _clang(path: Path) -> bytes:
    """The relocatable object. -g gives each instruction its line."""
    for file in _files(path)[1:]:
        outside = _MACRO.sub("", _read(file).decode("utf-8", "replace"))
        if instruction := _INSTRUCTION.search(outside):
            raise InputError(
                f"{file}: {instruction[1]} outside of a macro: it would have no source line",
                next="put it into a macro that the kernel names",
            )
    if not available():
        raise NothingRan("no assembler: the package ziglang is missing", next="pip install 'zinc-rt[asm]'")
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "kernel.o"
        command = [sys.executable, "-m", "ziglang", "clang", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201", "-g"]
        command += ["-I", str(path.parent), "-I", str(KERNELS), "-c", str(path), "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not built.exists():
            raise InputError(f"{path}: the assembler refused it\n{done.stderr.strip()}")
        return built.read_bytes()


def _kernel(path: Path, code_object: bytes) -> Zrt:
    source = str(path)
    sections = section_contents(code_object, source)
    declared, used = sections.get(".zrt", b""), sections.get(".zrt.used", b"")
    if len(declared) < _DECLARED.size or declared.count(b"\0", _DECLARED.size) != 1:
        raise InputError(f"{source}: wanted one zrt_kernel", next='.include "zrt.inc" and one kernel a source')
    if len(used) != _USED.size:
        raise InputError(f"{source}: wanted one zrt_end", next="make it the last line")
    buffers, constants, x, y, z, vgprs, sgprs, lds, scratch = _DECLARED.unpack_from(declared)
    for what, count, limit in zip(("vgprs", "sgprs"), _USED.unpack(used), (vgprs, sgprs), strict=True):
        if count > limit:
            raise InputError(
                f"{source}: declares {what}={limit}, but uses {count}", next=f"declare {what}={count}"
            )
    code = sections[".text"]
    slots = []
    for section, name, value in symbol_values(code_object, source):
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
        lds_bytes=lds,
        scratch_bytes=scratch,
        slots=tuple(slots),
        lines=_lines(sections.get(".debug_line", b""), source, len(code)),
        files=(path.name,),
        source_hash=source_hash(path),
    )


def _lines(section: bytes, source: str, code_bytes: int) -> tuple[Line, ...]:
    """One Line where the source line changes. The last row of an address counts."""
    at = {offset: line for offset, line in line_rows(section, source) if offset < code_bytes}
    found: list[Line] = []
    for offset, line in sorted(at.items()):
        if not found or found[-1].line != line:
            found.append(Line(offset, 0, line))
    return tuple(found)
