"""Read the kernels for `isa lint` and `isa report` from files of any of the three formats."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.code_input import CodeSection, add_true16, choose_target, read_code
from zinc_rt.cli.output import printable
from zinc_rt.host.errors import UsageError
from zinc_rt.isa.target import DEFAULT_ARCH

if TYPE_CHECKING:
    from zinc_rt.isa.lint.operands import Limits
    from zinc_rt.isa.lint.origins import Pointers
    from zinc_rt.isa.target import Target

_MAGIC = {b"ZRT\0": "zrt", b"\x7fELF": "elf"}


@dataclass(frozen=True, slots=True)
class KernelInput:
    """`section.code` from byte `entry`. `kernel` False: a function that other code calls. `compiler`: from the
    container, or from the comments of a code object."""

    name: str
    section: CodeSection
    entry: int
    target: Target
    limits: Limits
    file: str
    kernel: bool = True
    workgroup_threads: int | None = None
    compiler: str = ""


def add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help=".zrt kernels and ELF code objects")
    parser.add_argument("--hex", metavar="FILE", help="read one kernel as hex bytes instead")
    parser.add_argument("--arch", metavar="NAME", help=f"chip (default: from the file, else {DEFAULT_ARCH})")
    parser.add_argument("--wave", type=int, choices=(32, 64), help="wave size (default: from the file, else 32)")
    add_true16(parser)
    parser.add_argument(
        "--vgprs", type=int, metavar="N", help="number of declared vector registers (default: from the file)"
    )
    parser.add_argument(
        "--sgprs", type=int, metavar="N", help="number of declared scalar registers (default: from the file)"
    )


def read_kernels(arguments: argparse.Namespace) -> Iterator[KernelInput]:
    """Return every kernel and function of the files. Raise UsageError if there is no kernel, InputError for
    damaged files.
    """
    if bool(arguments.files) == bool(arguments.hex):
        raise UsageError("expected files, or --hex FILE")
    if arguments.hex:
        yield from _read_file(arguments, "hex", arguments.hex)
    for name in arguments.files:
        yield from _read_file(arguments, detect_format(name), name)


def detect_format(name: str) -> str:
    """Return "elf" or "zrt", from the file's magic."""
    try:
        with Path(name).open("rb") as file:
            return _MAGIC.get(file.read(4), "zrt")
    except OSError:
        return "zrt"  # whose reader says what is wrong


def _read_file(arguments: argparse.Namespace, form: str, name: str) -> Iterator[KernelInput]:
    source = printable(name)
    namespace = argparse.Namespace(**{"hex": None, "elf": None, "zrt": None, form: name})
    namespace.arch, namespace.wave = arguments.arch, arguments.wave
    code = read_code(namespace, source)
    read_sections = _read_elf if form == "elf" else _read_whole_sections
    target = choose_target(code, getattr(arguments, "true16", None))
    for kernel in read_sections(code.sections, name, source, code.details, target):
        if arguments.wave is None or arguments.wave == kernel.target.wave:
            limits = kernel.limits
            limits = limits if arguments.vgprs is None else replace(limits, vgprs=arguments.vgprs)
            limits = limits if arguments.sgprs is None else replace(limits, sgprs=arguments.sgprs)
            yield replace(kernel, limits=limits)


def _read_whole_sections(
    sections: tuple[CodeSection, ...], name: str, source: str, details: dict[str, Any], target: Target
) -> Iterator[KernelInput]:
    """Read one kernel from a .zrt file or hex text."""
    from zinc_rt.isa.lint.operands import Limits

    (section,) = sections
    if not details:
        yield KernelInput(source, section, 0, target, Limits(), name)
        return
    limits = Limits(
        vgprs=details["vgprs"],
        sgprs=details["sgprs"],
        lds_bytes=details["lds_bytes"],
        scratch_bytes=details["scratch_bytes"],
        entry_sgprs=2,
        kernarg_bytes=details["kernarg_bytes"],
    )
    threads = details["workgroup"][0] * details["workgroup"][1] * details["workgroup"][2]
    yield KernelInput(
        details["name"],
        section,
        section.symbols[0][0],
        target,
        limits,
        name,
        workgroup_threads=threads,
        compiler=details["compiler"],
    )


def _read_elf(
    sections: tuple[CodeSection, ...], name: str, source: str, details: dict[str, Any], target: Target
) -> Iterator[KernelInput]:
    """Read the functions of a code object; those with a descriptor are kernels. The other functions have the wave
    size of the object's kernels, which call them.
    """
    from zinc_rt.isa.elf import read_descriptors
    from zinc_rt.isa.lint.operands import Limits
    from zinc_rt.launching.code_object import find_compiler

    data = Path(name).read_bytes()
    declared = read_descriptors(data, source)
    compiler = find_compiler(data, source)
    buffers = _find_pointers(data, source)
    waves = {item.wave for item in declared.values()}
    wave_target = target.with_wave(waves.pop()) if len(waves) == 1 else target
    for section in sections:
        for address, symbol in section.symbols:
            known = declared.get(symbol)
            entry = address - section.address
            if known is None:
                yield KernelInput(
                    symbol, section, entry, wave_target, Limits(), name, kernel=False, compiler=compiler
                )
                continue
            limits = Limits(
                vgprs=known.vgprs,
                lds_bytes=known.lds_bytes or None,  # none may mean that the launch says how much
                scratch_bytes=known.scratch_bytes or None,
                entry_sgprs=known.user_sgprs + known.workgroup_ids * (not target.rules.ids_in_ttmp),
                pointers=buffers.get(symbol),
            )
            wave = target.with_wave(known.wave)
            yield KernelInput(symbol, section, entry, wave, limits, name, compiler=compiler)


def _find_pointers(data: bytes, source: str) -> dict[str, Pointers]:
    """Return the offsets of buffer addresses in each kernel's arguments; empty for an object that is not
    linked."""
    from zinc_rt.host.errors import InputError
    from zinc_rt.isa.lint.origins import Pointers
    from zinc_rt.launching.code_object import read_code_object

    try:
        kernels = read_code_object(data, source).kernels
    except InputError:
        return {}
    result = {}
    for name, kernel in kernels.items():
        before = sum(size for bit, size in ((0, 4), (1, 2), (2, 2)) if kernel.properties >> bit & 1)
        offsets = frozenset(argument.offset for argument in kernel.arguments if argument.kind == "global_buffer")
        result[name] = Pointers(before, offsets)
    return result
