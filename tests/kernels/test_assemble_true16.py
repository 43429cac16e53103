"""Halves of registers in assembly: the assembler accepts and rejects them as LLVM does, with equal encodings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.decoder import decode
from zinc_rt.isa.elf import read_section_contents
from zinc_rt.isa.target import target_of
from zinc_rt.kernels.assemble import Source, assemble, is_available, run_assembler
from zinc_rt.kernels.true16 import REAL, has_halves
from zinc_rt.kernels.zrt import read_zrt
from zinc_rt.launching.source import compile_source

needs_assembler = pytest.mark.skipif(not is_available(), reason="needs the package ziglang")
CHIPS = {"gfx1201": "gfx12", "gfx1100": "gfx11", "gfx1151": "gfx11"}
# What LLVM's assembler refuses of its own disassembly (VCCZ, EXECZ and LDS_DIRECT as sources, op_sel beside .h),
# and encodings with op_sel bits that the text does not have.
REFUSED = {"gfx1201": 77, "gfx1100": 141, "gfx1151": 134}
OTHER_BITS = {"gfx1201": 16, "gfx1100": 23, "gfx1151": 21}
KERNEL = """\
.include "zrt.inc"
zrt_kernel name=k, buffers=1, constants=0, threads=32, vgprs=4, sgprs=8
  v_mov_b16 v1.h, v0.l
  v_add_f16 v2.l, v1.h, v0.l
  s_endpgm
zrt_end
"""


def read_rows(path: Path) -> list[tuple[bytes, str]]:
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [(bytes.fromhex(encoding), text) for encoding, text in rows]


@dataclass
class AssemblyResult:
    same: int = 0
    other: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def assemble_rows(
    arch: str, rows: list[tuple[bytes, str]], folder: Path, flags: tuple[str, ...]
) -> AssemblyResult:
    """Assemble all rows at once, except rejected ones, and compare with the encodings."""
    source, output, result = folder / "rows.s", folder / "rows.o", AssemblyResult()
    source.write_text("\n".join(text for _, text in rows) + "\n")
    messages, built = run_assembler(arch, source, [], output, flags)
    refused = {int(line) - 1 for line in re.findall(r"rows\.s:(\d+):\d+: error:", messages)}
    result.refused = [rows[number][1] for number in sorted(refused)]
    left = [row for number, row in enumerate(rows) if number not in refused]
    if refused:
        source.write_text("\n".join(text for _, text in left) + "\n")
        messages, built = run_assembler(arch, source, [], output, flags)
    assert built is not None, messages
    code, index = read_section_contents(built, "rows.o").get(".text", b""), 0
    target = target_of(arch, 32, true16="real")
    for encoding, text in left:
        if code[index : index + len(encoding)] == encoding:
            result.same += 1
            index += len(encoding)
        else:
            result.other.append(text)
            instruction = decode(code, index, target)
            assert instruction is not None
            index += instruction.size_bytes
    return result


@needs_assembler
@pytest.mark.rest
@pytest.mark.parametrize("arch", list(CHIPS))
def test_halves_assemble_to_the_encodings_of_llvm(arch: str, data_dir: Path, tmp_path: Path) -> None:
    rows = read_rows(data_dir / CHIPS[arch] / f"{arch}_w32_real16.tsv")
    assert len(rows) == 12013 and all(has_halves(text) for _, text in rows)
    result = assemble_rows(arch, rows, tmp_path, REAL)
    assert (len(result.refused), len(result.other)) == (REFUSED[arch], OTHER_BITS[arch])
    assert all("op_sel" in text or "src_" in text or "lds_direct" in text for text in result.refused)
    assert result.same == len(rows) - REFUSED[arch] - OTHER_BITS[arch]


@needs_assembler
@pytest.mark.rest
def test_fake_true16_rejects_halves_and_real_true16_accepts_text_without_them(
    data_dir: Path, tmp_path: Path
) -> None:
    rows = read_rows(data_dir / "gfx12" / "gfx1201_w32_fake16.tsv")
    assert not any(has_halves(text) for _, text in rows)
    halves = read_rows(data_dir / "gfx12" / "gfx1201_w32_real16.tsv")[:2000]
    assert len(assemble_rows("gfx1201", halves, tmp_path, ()).refused) > 1500, "LLVM's default is fake true16"
    plain = [row for row in rows if re.match(r"v_(add|mul|sub)_f16_e(32|64) v\d+, v\d+, v\d+$", row[1])]
    for flags in (REAL, ()):
        assert assemble_rows("gfx1201", plain, tmp_path, flags).same == len(plain) > 5


@needs_assembler
def test_source_with_halves_is_assembled_and_read_as_real_true16(tmp_path: Path) -> None:
    path = tmp_path / "k.s"
    path.write_text(KERNEL)
    code = read_zrt(assemble(Source(path)), "k.zrt").code
    assert compile_source(path).startswith(b"ZRT")
    texts = [item.text for _, item in find_control_flow(code, target_of("gfx1201", 32)).instructions()]
    assert texts[:2] == ["v_mov_b16_e32 v1.h, v0.l", "v_add_f16_e32 v2.l, v1.h, v0.l"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v_add_f16 v1.l, v2.h, v3.l", True),
        (r"v_add_f16 v\reg\().h, 1.0, v0.l", True),
        ("V_MOV_B16_e64 v1, v2", True),
        ("v_add_f16 v1, v2, v3  // not v1.l", False),
        ('.include "k.h"\n/* v1.h */ s_nop 0 ; v1.l', False),
        ("s_mov_b32 s0, 1.0", False),
    ],
)
def test_halves_are_found_in_text(text: str, expected: bool) -> None:
    assert has_halves(text) == expected
