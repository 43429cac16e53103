"""A code object for loading: the image of its segments, and the metadata of each kernel.

LLVM AMDGPUUsage, "Code Object": ELF64 with PT_LOAD segments, a descriptor NAME.kd for each kernel, and a note of
type NT_AMDGPU_METADATA whose content is MessagePack.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.host.errors import InputError
from zinc_rt.isa.elf import read_elf, read_section_contents, read_symbol_values
from zinc_rt.kernels.remarks import UNMARKED
from zinc_rt.launching.msgpack import unpack

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_RELA = struct.Struct("<QQq")
_DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_DT_RELA, _DT_RELASZ = 7, 8
_NT_METADATA = 32
_R_RELATIVE64 = 13
_MAX_IMAGE_BYTES = 1 << 28
_COERCED = ".coerce"  # as clang calls a HIP kernel's pointer after moving it to global memory


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """An entry of a kernel's `.args`. `kind`: "global_buffer", "by_value", "hidden_block_count_x", ..."""

    name: str
    kind: str
    offset: int
    size_bytes: int

    @property
    def hidden(self) -> bool:
        return self.kind.startswith("hidden_")

    def __str__(self) -> str:
        return f"{self.name or '(unnamed)'}: {self.kind}, {self.size_bytes} bytes at {self.offset}"


@dataclass(frozen=True, slots=True)
class CodeKernel:
    """A kernel: its metadata, and its descriptor's fields."""

    name: str
    arguments: tuple[KernelArgument, ...]
    kernarg_bytes: int
    group_bytes: int
    private_bytes: int
    dynamic_stack: bool
    descriptor_at: int  # in the image
    entry_at: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    preload: int
    max_threads: int = 1024  # of a workgroup
    threads: tuple[int, ...] = ()  # the workgroup that the kernel requires, or was compiled for
    dynamic_lds_bytes: int = 0  # that it needs after `group_bytes`, as its compiler says
    scratch_pointers: tuple[int, ...] = ()  # Triton: bytes per workgroup of the buffers after the arguments

    @property
    def wave(self) -> int:
        return 32 if self.properties & 1 << 10 else 64

    @property
    def shown(self) -> tuple[KernelArgument, ...]:
        """The arguments that the caller passes."""
        return tuple(argument for argument in self.arguments if not argument.hidden)


def _find_no_line(offset: int) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class CodeImage:
    """The loadable image of a code object.

    `image` is the content from address 0, without relocations; `relative` are (offset, addend) of 64-bit addresses
    in it, to which the load address must be added.
    """

    arch: str
    image: bytes
    relative: tuple[tuple[int, int], ...]
    kernels: dict[str, CodeKernel] = field(repr=False)
    compiler: str = ""  # as the object's comments name it; "" for assembly
    source: str = ""  # the file's name, for messages
    has_descriptors: bool = True  # False: a .zrt container
    line_at: Callable[[int], str] = field(
        default=_find_no_line, repr=False
    )  # FILE:LINE of an offset in `image`, or ""
    lines_missing: str = ""  # why there are no lines although the file has a line table


def read_code_object(data: bytes, source: str) -> CodeImage:
    """Read a code object. Raise InputError if it is no AMDGPU code object, not linked, truncated, or without
    metadata."""
    arch = read_elf(data, source).arch
    if arch is None:
        raise InputError(f"{source}: contains code for a chip that this version does not support")
    programs = list(_read_programs(data, source))
    image = _make_image(data, programs, source)
    metadata = _read_metadata(data, programs, source)
    symbols = {name: value for _, name, value in read_symbol_values(data, source)}
    kernels = {}
    for item in metadata.get("amdhsa.kernels", ()):
        kernel = _make_kernel(item, symbols, image, source)
        kernels[kernel.name] = kernel
    relocations = tuple(_check_relocations(data, programs, image, source))
    return CodeImage(arch, image, relocations, kernels, find_compiler(data, source), source)


def find_compiler(data: bytes, source: str) -> str:
    """Return the compiler's name from the comments, or UNMARKED if only the linker's name is present or the
    sections, which are not needed to run, were stripped.
    """
    try:
        comments = read_section_contents(data, source).get(".comment", b"").decode("utf-8", "replace").split("\0")
    except InputError:
        return UNMARKED
    return ", ".join(comment for comment in comments if comment and not comment.startswith("Linker:")) or UNMARKED


def _read_programs(data: bytes, source: str) -> Iterator[tuple[int, ...]]:
    _, kind, _, _, _, position, _, _, _, entry_bytes, count, *_ = _HEADER.unpack_from(data)
    if kind != 3 or not count:
        raise InputError(f"{source}: the object is not linked", next="ld.lld -shared kernel.o -o kernel.co")
    if entry_bytes != _PROGRAM.size or position + count * entry_bytes > len(data):
        raise InputError(f"{source}: the program headers are truncated")
    for index in range(count):
        program = _PROGRAM.unpack_from(data, position + index * entry_bytes)
        if program[2] + program[5] > len(data):
            lacking = program[2] + program[5] - len(data)
            raise InputError(f"{source}: truncated: a segment extends {lacking} bytes beyond the end")
        yield program


def _make_image(data: bytes, programs: list[tuple[int, ...]], source: str) -> bytes:
    loads = [program for program in programs if program[0] == _PT_LOAD]
    end = max((load[3] + load[6] for load in loads), default=0)
    if not 0 < end <= _MAX_IMAGE_BYTES:
        raise InputError(f"{source}: segments have {end} bytes, expected 1 to {_MAX_IMAGE_BYTES}")
    image = bytearray(end)
    for _, _, offset, address, _, in_file, _, _ in loads:
        image[address : address + in_file] = data[offset : offset + in_file]
    return bytes(image)


def _read_metadata(data: bytes, programs: list[tuple[int, ...]], source: str) -> dict[str, Any]:
    for kind, _, offset, _, _, size, _, _ in programs:
        index, end = offset, offset + size
        while kind == _PT_NOTE and index + 12 <= end:
            name_bytes, body_bytes, note = struct.unpack_from("<III", data, index)
            body = index + 12 + (name_bytes + 3 & ~3)
            if note == _NT_METADATA and data[index + 12 : index + 18] == b"AMDGPU":
                metadata = unpack(data[body : body + body_bytes], source)
                if isinstance(metadata, dict):
                    return metadata
            index = body + (body_bytes + 3 & ~3)
    raise InputError(f"{source}: contains no kernel metadata (a note in code object version 3 and later)")


def _make_kernel(about: dict[str, Any], symbols: dict[str, int], image: bytes, source: str) -> CodeKernel:
    try:
        name, symbol = about[".name"], about[".symbol"]
        arguments = tuple(
            KernelArgument(
                item.get(".name", "").removesuffix(_COERCED), item[".value_kind"], item[".offset"], item[".size"]
            )
            for item in about.get(".args", ())
        )
        kernarg, group, private = (
            about[f".{key}_segment{tail}_size"]
            for key, tail in (("kernarg", ""), ("group", "_fixed"), ("private", "_fixed"))
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"{source}: the metadata of a kernel does not contain {error}") from None
    index = symbols.get(symbol, -1)
    if not 0 <= index <= len(image) - _DESCRIPTOR.size:
        raise InputError(f"{source}: {symbol} is outside all segments")
    _, _, described, entry, rsrc3, rsrc1, rsrc2, properties, preload = _DESCRIPTOR.unpack_from(image, index)
    if not 0 <= index + entry < len(image):
        raise InputError(f"{source}: the entry of {name} is outside all segments")
    kernarg = described or kernarg  # what the hardware gets; version 2 descriptors leave it 0
    stack = bool(about.get(".uses_dynamic_stack"))
    registers = rsrc1, rsrc2, rsrc3, properties, preload
    maximum = about.get(".max_flat_workgroup_size", 1024)
    required = tuple(about.get(".reqd_workgroup_size", ()))
    return CodeKernel(
        name, arguments, kernarg, group, private, stack, index, index + entry, *registers, maximum, required
    )


def _check_relocations(
    data: bytes, programs: list[tuple[int, ...]], image: bytes, source: str
) -> Iterator[tuple[int, int]]:
    tags: dict[int, int] = {}
    for kind, _, offset, _, _, size, _, _ in programs:
        if kind == _PT_DYNAMIC:
            tags = dict(_DYNAMIC.iter_unpack(data[offset : offset + size // _DYNAMIC.size * _DYNAMIC.size]))
    start = tags.get(_DT_RELA, 0)
    table = image[start : start + tags.get(_DT_RELASZ, 0)]
    for where, info, addend in _RELA.iter_unpack(table[: len(table) // _RELA.size * _RELA.size]):
        if info != _R_RELATIVE64:
            raise InputError(
                f"{source}: unsupported relocation type {info & 0xFFFFFFFF}; only relocations within the file "
                "(13) are supported"
            )
        if where + 8 > len(image):
            raise InputError(f"{source}: contains a relocation outside the segments")
        yield where, addend
