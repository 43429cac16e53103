"""Read the machine code for the isa commands: hex text, a code object or a .zrt kernel."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.output import printable
from zinc_rt.host.errors import InputError, UnsupportedError
from zinc_rt.host.input_files import make_read_error
from zinc_rt.isa.target import DEFAULT_ARCH, READINGS

if TYPE_CHECKING:
    from zinc_rt.isa.target import Target

Place = tuple[str, int]


def _find_no_line(pc: int) -> Place | None:
    return None


def _find_no_text(pc: int) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class CodeSection:
    """`code` at `address`. `symbols` are (address, name); line_at takes a byte offset in `code`."""

    name: str
    address: int
    code: bytes
    symbols: tuple[tuple[int, str], ...] = ()
    line_at: Callable[[int], Place | None] = _find_no_line
    place_at: Callable[[int], str] = _find_no_text  # the line in words, with the one that called a macro
    marks: tuple[tuple[int, str], ...] = ()  # byte offset, what is there


@dataclass(frozen=True, slots=True)
class CodeInput:
    """`header` is shown first; `details` go into the report; `source_names` repeats the flag and the file."""

    arch: str
    wave: int
    sections: tuple[CodeSection, ...]
    source_names: str
    header: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


def add_true16(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--true16",
        choices=READINGS,
        help="interpret 16-bit operands as halves of registers or as whole registers (default: detected from "
        "the code)",
    )


def choose_target(code: CodeInput, true16: str | None) -> Target:
    """Return the target with the requested reading of 16-bit operands, else the reading that the code needs."""
    from zinc_rt.isa.target import target_of
    from zinc_rt.isa.true16 import find_reading_of_sections

    target = target_of(code.arch, code.wave, true16=true16)
    return find_reading_of_sections((section.code for section in code.sections), target)


def read_code(arguments: argparse.Namespace, source: str) -> CodeInput:
    """Read the code named by --hex, --elf or --zrt, with --arch and --wave applied. `source` is its name in
    messages."""
    if arguments.hex:
        return _read_hex(arguments, source)
    return _read_zrt(arguments, source) if arguments.zrt else _read_elf(arguments, source)


def _read_hex(arguments: argparse.Namespace, source: str) -> CodeInput:
    text = _read_input(arguments.hex, source).decode("utf-8", "replace").splitlines()
    code = b"".join(parse_hex_line(line, f"{source}, line {number}") for number, line in enumerate(text, 1))
    if not code:
        raise InputError(f"{source}: no code")
    section = CodeSection("", 0, code)
    return CodeInput(arguments.arch or DEFAULT_ARCH, arguments.wave or 32, (section,), f"--hex {arguments.hex}")


def _read_elf(arguments: argparse.Namespace, source: str) -> CodeInput:
    from zinc_rt.isa.elf import read_elf

    elf = read_elf(_read_input(arguments.elf, source), source)
    if not elf.sections:
        raise InputError(f"{source}: contains no executable section")
    arch = arguments.arch or elf.arch
    if arch is None:
        raise UnsupportedError(
            f"{source}: its chip is not supported by this version", next="set the chip with --arch NAME"
        )
    sections = tuple(CodeSection(s.name, s.address, s.code, s.symbols) for s in elf.sections)
    return CodeInput(arch, arguments.wave or 32, sections, f"--elf {arguments.elf}")


def _read_zrt(arguments: argparse.Namespace, source: str) -> CodeInput:
    from zinc_rt.kernels.zrt import read_zrt

    zrt = read_zrt(_read_input(arguments.zrt, source), source)
    marks = tuple((slot.offset, f"slot {slot.name}") for slot in zrt.slots)
    section = CodeSection("", 0, zrt.code, ((zrt.entry_offset, zrt.name),), zrt.find_line, zrt.find_place, marks)
    slots = ", ".join(f"{slot.name}={slot.default:#x}" for slot in zrt.slots) or "none"
    header = (
        f"kernel {zrt.name}, {zrt.target}, wave{zrt.wave}, {len(zrt.code)} bytes of code",
        f"buffers {zrt.buffers}, constants {zrt.constant_bytes // 4}, kernarg {zrt.kernarg_bytes} bytes",
        f"threads {'x'.join(map(str, zrt.workgroup))}, VGPRs {zrt.vgprs}, SGPRs {zrt.sgprs}, LDS {zrt.lds_bytes}, "
        f"scratch {zrt.scratch_bytes}, {zrt.occupancy} waves a SIMD",
        f"RSRC1 {zrt.rsrc1:#010x}, RSRC2 {zrt.rsrc2:#010x}, RSRC3 {zrt.rsrc3:#010x}",
        f"slots {slots}",
        f"source {', '.join(zrt.files) or 'unknown'}, hash {zrt.source_hash.hex()}",
        *([f"compiler {zrt.compiler}"] if zrt.compiler else []),
    )
    details = {
        "name": zrt.name,
        "buffers": zrt.buffers,
        "constant_bytes": zrt.constant_bytes,
        "kernarg_bytes": zrt.kernarg_bytes,
        "workgroup": list(zrt.workgroup),
        "vgprs": zrt.vgprs,
        "sgprs": zrt.sgprs,
        "lds_bytes": zrt.lds_bytes,
        "scratch_bytes": zrt.scratch_bytes,
        "occupancy": zrt.occupancy,
        "rsrc": [zrt.rsrc1, zrt.rsrc2, zrt.rsrc3],
        "slots": [{"name": slot.name, "offset": slot.offset, "default": slot.default} for slot in zrt.slots],
        "files": list(zrt.files),
        "source_hash": zrt.source_hash.hex(),
        "compiler": zrt.compiler,
    }
    arch, wave = arguments.arch or zrt.target, arguments.wave or zrt.wave
    return CodeInput(arch, wave, (section,), f"--zrt {arguments.zrt}", tuple(map(printable, header)), details)


def _read_input(name: str, source: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise make_read_error(source, error) from None


def parse_hex_line(line: str, source: str) -> bytes:
    """Return the bytes of a line of hex text; # starts a comment."""
    line = line.partition("#")[0].strip()
    try:
        return bytes.fromhex(line)
    except ValueError:
        raise InputError(
            f"{source}: {printable(line, 40)!r} is not hex bytes", next="expected hex like 050003d501050200"
        ) from None
