"""What the compiled kernels may not contain: fused multiply-add where it changes a result, calls of libraries.

canonical-1 rounds every product. A fused multiply-add rounds once for two operations, so it is allowed only where
the product or the result is provably exact: a header says so in a comment `EXACT_FMA function function: why`, with
the functions as the assembly calls them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernels.native.libraries import (
    compile_to_assembly,
    disassemble_library,
    faulty_library,
    find_compiler,
    library_bytes,
    write_faulty_source,
)

from zinc_rt.kernels.native import build
from zinc_rt.kernels.native.levels import LEVELS

FUSED = re.compile(r"\tvfn?m(?:add|sub)|\tfn?m(?:add|sub)\b|\tfml[as]\b|\tbfml")
FUNCTION = re.compile(r"(?:[0-9a-f]+ <)?_?([A-Za-z]\w*)(?:>)?:")  # as a compiler and as objdump write it
EXACT = re.compile(r"EXACT_FMA ((?:\w+[, ]*)+):")
CALLABLE = {"memcpy", "memset", "memmove"}  # a compiler emits calls to them itself; Python's C library has them


def list_exact_functions() -> set[str]:
    headers = sorted([*build.HEADERS.glob("*.h"), *build.SOURCES.glob("*.c")])
    lists = (match for path in headers for match in EXACT.findall(path.read_text(encoding="utf-8")))
    return {name for result in lists for name in re.split(r"[, ]+", result.strip())}


def fused_instructions(text: str) -> Iterator[str]:
    """`function: instruction` of each fused multiply-add."""
    function = ""
    for line in text.splitlines():
        if label := FUNCTION.match(line):
            function = label[1]
        elif instruction := FUSED.search(line):
            yield f"{function}: {instruction[0].strip()}"


def undefined_symbols(library: bytes) -> set[str]:
    """Return the undefined names in .dynsym of an ELF64 library."""
    (sections,) = struct.unpack_from("<Q", library, 0x28)
    size, count = struct.unpack_from("<HH", library, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", library, sections + i * size) for i in range(count)]
    (symbols,) = (header for header in headers if header[1] == 11)  # SHT_DYNSYM
    names = headers[symbols[6]][4]
    result = set()
    for index in range(symbols[4], symbols[4] + symbols[5], 24):
        name, _, _, section = struct.unpack_from("<IBBH", library, index)
        if name and section == 0:
            result.add(library[names + name : library.index(b"\0", names + name)].decode())
    return result


def assert_fused_only_where_allowed(text: str) -> None:
    allowed = list_exact_functions()
    functions = {label[1] for line in text.splitlines() if (label := FUNCTION.match(line))}
    assert {"zrt_run", "zrt_add", "zrt_embed"} <= functions, "this is not the kernels' assembly"
    assert [result for result in fused_instructions(text) if result.partition(":")[0] not in allowed] == []


def test_no_multiply_add_is_fused_where_it_changes_a_result() -> None:
    assert_fused_only_where_allowed(disassemble_library(library_bytes("native")) or compile_to_assembly("native"))


@pytest.mark.slow
@pytest.mark.parametrize("level", ["x86_64_v3", "x86_64_v4"])
def test_no_multiply_add_is_fused_on_other_x86(level: str) -> None:
    assert_fused_only_where_allowed(compile_to_assembly(level, ("-target", "x86_64-linux")))


@pytest.mark.rest
def test_no_multiply_add_is_fused_on_arm() -> None:
    if "zig" not in find_compiler().version:
        pytest.skip("only zig compiles for other systems")
    assert_fused_only_where_allowed(compile_to_assembly("generic", ("-target", "aarch64-linux")))


@pytest.mark.rest
def test_fused_multiply_add_is_detected(tmp_path: Path) -> None:
    if "zig" not in find_compiler().version:
        pytest.skip("only zig compiles for other systems")
    has_fma = ("-mfma",) if build.list_levels()[-1].startswith("x86_64") else ()
    if text := disassemble_library(faulty_library("fused", *has_fma)):
        assert [result.partition(":")[0] for result in fused_instructions(text)] == ["zrt_add"]
    source = write_faulty_source(tmp_path, "fused")
    for target, level in (("x86_64-linux", "x86_64_v3"), ("aarch64-linux", "generic")):
        (result,) = fused_instructions(compile_to_assembly(level, ("-target", target), (source,)))
        assert result.startswith("zrt_add: ")


def test_kernels_call_no_library() -> None:
    assert undefined_symbols(library_bytes("native")) <= CALLABLE


@pytest.mark.slow
@pytest.mark.parametrize("level", [level for level in LEVELS["x86_64"] if level != "native"])
def test_no_level_calls_a_library(level: str) -> None:
    if level not in build.list_levels():
        pytest.skip("the levels of x86-64")
    assert undefined_symbols(library_bytes(level)) <= CALLABLE


def test_call_to_another_library_is_detected() -> None:
    assert undefined_symbols(faulty_library("another library")) - CALLABLE == {"expf"}


@pytest.mark.slow
def test_functions_allowed_to_fuse_are_defined() -> None:
    targets = {"x86_64-linux": ("x86_64_v3", "x86_64_v4"), "aarch64-linux": ("generic",)}
    text = compile_to_assembly("native") + "".join(
        compile_to_assembly(level, ("-target", target)) for target, levels in targets.items() for level in levels
    )
    assert [name for name in list_exact_functions() if f"{name}:" not in text] == []
