"""Sources become .zrt files, and the committed ones are what their sources give."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from zinc_rt.cli.asm import main
from zinc_rt.host.errors import InputError, NothingRan
from zinc_rt.isa.elf import read_section_contents
from zinc_rt.isa.wave_rules import RULES
from zinc_rt.kernels import assemble as module
from zinc_rt.kernels import rsrc
from zinc_rt.kernels.assemble import Source, assemble, hash_source, is_available, read_sources
from zinc_rt.kernels.rows.repack import WEIGHT_TYPES
from zinc_rt.kernels.zrt import patch_literals, read_zrt

needs_assembler = pytest.mark.skipif(not is_available(), reason='no assembler: extra "asm" is not installed')

SOURCE = """\
.include "zrt.inc"
.macro twice register
  v_add_f32 \\register, \\register, \\register
  v_add_f32 \\register, \\register, \\register
.endm

zrt_kernel name=doubled, buffers=2, constants=3, threads=64, threads_y=2, vgprs=6, sgprs=12, lds=512, scratch=8
  s_load_b128 s[4:7], s[0:1], 0
  zrt_constant s8, ROWS
  v_mov_b32 v5, 0
  twice v5
  zrt_constant s9, ROWS
  zrt_constant s10, STEP, 1
  v_add_nc_u32 v0, lit(0x1234), v0
  zrt_slot BASE
  s_endpgm
zrt_end
"""


@pytest.fixture
def source_path(tmp_path: Path) -> Path:
    path = tmp_path / "doubled.s"
    path.write_text(SOURCE)
    return path


@needs_assembler
def test_declarations_become_the_header(source_path: Path) -> None:
    zrt = read_zrt(assemble(Source(source_path)))
    assert (zrt.name, zrt.buffers, zrt.constant_bytes, zrt.workgroup) == ("doubled", 2, 12, (64, 2, 1))
    assert (zrt.vgprs, zrt.sgprs, zrt.lds_bytes, zrt.scratch_bytes) == (6, 12, 512, 8)
    assert zrt.code.endswith(struct.pack("<I", 0xBFB00000))
    assert zrt.source_hash == hash_source(Source(source_path))


@needs_assembler
def test_constants_become_slots_even_with_small_defaults(source_path: Path) -> None:
    zrt = read_zrt(assemble(Source(source_path)))
    assert [(slot.name, slot.default) for slot in zrt.slots] == [
        ("ROWS", 0xCAFEBABE),
        ("ROWS", 0xCAFEBABE),
        ("STEP", 1),
        ("BASE", 0x1234),
    ]
    image = patch_literals(zrt, {"ROWS": 77, "BASE": 5})
    assert [struct.unpack_from("<I", image, slot.offset)[0] for slot in zrt.slots] == [77, 77, 1, 5]


@needs_assembler
def test_each_instruction_maps_to_its_source_line(source_path: Path) -> None:
    zrt = read_zrt(assemble(Source(source_path)))
    lines = SOURCE.splitlines()
    for text, pc in {"s_load_b128": 0, "v_mov_b32": 16, "v_add_f32": 20}.items():
        file, line = zrt.find_line(pc) or ("", 0)
        assert file == "doubled.s" and text in lines[line - 1]
    assert zrt.find_line(24) == (
        "doubled.s",
        (zrt.find_line(20) or ("", 0))[1] + 1,
    )  # the macro's other instruction
    caller = lines.index("  zrt_constant s8, ROWS") + 1
    assert zrt.find_place(8).startswith("zrt.inc:") and zrt.find_place(8).endswith(f" (doubled.s:{caller})")
    assert "s_endpgm" in lines[(zrt.find_line(len(zrt.code) - 4) or ("", 0))[1] - 1]


@needs_assembler
def test_assembling_again_or_elsewhere_gives_the_same_bytes(source_path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(source_path, other)
    assert (
        assemble(Source(source_path))
        == assemble(Source(source_path))
        == assemble(Source(other / source_path.name))
    )


@needs_assembler
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("vgprs=6", "vgprs=5"), "declares vgprs=5, but 6 are used"),
        (("sgprs=12", "sgprs=10"), "declares sgprs=10, but 11 are used"),
        (("threads=64", "threads=1024"), "workgroup size is 2048"),
        (("vgprs=6", "vgprs=600"), "VGPR count is 600"),
        (("zrt_end\n", ""), "expected exactly one zrt_end"),
        (("zrt_end\n", "zrt_kernel name=b, vgprs=1, sgprs=2\nzrt_end\n"), "expected exactly one zrt_kernel"),
        (("s_endpgm", "s_endprogram"), "assembler error:\n(?s:.*)s_endprogram"),
        (('"zrt.inc"', '"absent.inc"'), "includes absent.inc"),
    ],
)
def test_bad_source_is_rejected_with_a_reason(source_path: Path, change: tuple[str, str], message: str) -> None:
    source_path.write_text(SOURCE.replace(*change))
    with pytest.raises(InputError, match=message):
        assemble(Source(source_path))


@needs_assembler
def test_included_file_keeps_its_line_numbers(source_path: Path, tmp_path: Path) -> None:
    (tmp_path / "code.inc").write_text("/* not\n code */\n.macro inner\n\n  s_nop 7 // here\n.endm\n  s_nop 6\n")
    source_path.write_text(SOURCE.replace("  twice v5\n", '.include "code.inc"\n  inner\n'))
    zrt = read_zrt(assemble(Source(source_path)))
    nops = {
        zrt.code[index]: zrt.find_place(index)
        for index in range(0, len(zrt.code), 4)
        if zrt.code[index + 1 : index + 4] == b"\0\x80\xbf"
    }
    line = source_path.read_text().splitlines().index("  inner") + 1
    assert nops[7] == f"code.inc:5 (doubled.s:{line})"
    assert nops[6].startswith("code.inc:7")
    (tmp_path / "folder").mkdir()
    source_path.write_text('.include "folder/code.inc"\n' + SOURCE)
    with pytest.raises(InputError, match="a file name without folders"):
        assemble(Source(source_path))


@needs_assembler
def test_hash_covers_included_files(source_path: Path, tmp_path: Path) -> None:
    (tmp_path / "extra.inc").write_text(".set X, 1\n")
    source_path.write_text('.include "extra.inc"\n' + SOURCE)
    before = hash_source(Source(source_path))
    (tmp_path / "extra.inc").write_text(".set X, 2\n")
    assert hash_source(Source(source_path)) != before


@needs_assembler
def test_family_gives_a_kernel_for_each_weight_type(
    source_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, body = SOURCE.split("zrt_kernel name=doubled")
    body = body.replace("lit(0x1234)", "lit(\\type\\()_SCALES)")
    source_path.write_text(f"{head}.macro zrt_of_weight type\nzrt_kernel name=doubled_\\type{body}.endm\n")
    members = {member.dtype: member for member in read_sources(source_path)}
    assert tuple(members) == WEIGHT_TYPES
    zrt = read_zrt(assemble(members["q4_k"]))
    assert zrt.name == "doubled_q4_k" and [s.default for s in zrt.slots if s.name == "BASE"] == [80]
    file, line = zrt.find_line(0) or ("", 0)
    assert file == "doubled.s" and "s_load_b128" in source_path.read_text().splitlines()[line - 1]
    assert len({hash_source(member) for member in members.values()}) == len(members)
    assert main([str(source_path), "-o", str(tmp_path / "x.zrt")]) == 2
    assert "produces 9 kernels" in capsys.readouterr().err
    assert main([str(source_path)]) == 0
    assert (tmp_path / "doubled_f32.zrt").is_file()
    source_path.write_text(source_path.read_text().replace("s_endpgm", "s_endprogram"))
    with pytest.raises(InputError, match=r"doubled\.s: assembler error:\n(?s:.*)s_endprogram"):
        assemble(members["f16"])


def test_missing_assembler_exits_with_77(
    source_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "is_available", lambda: False)
    with pytest.raises(NothingRan, match=r"ziglang is not installed\n.*zinc-rt\[asm\]"):
        assemble(Source(source_path))
    assert main([str(source_path)]) == 77
    assert "ziglang is not installed" in capsys.readouterr().err


@needs_assembler
def test_command_writes_and_names_its_file(
    source_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(source_path)]) == 0
    assert capsys.readouterr().out.startswith(f"PASS  {tmp_path / 'doubled.zrt'}: ")
    assert main([str(source_path), "-o", str(tmp_path / "x.zrt")]) == 0
    assert (tmp_path / "x.zrt").read_bytes() == source_path.with_suffix(".zrt").read_bytes()
    assert main([]) == 2
    assert main([str(source_path), "--check"]) == 2


@needs_assembler
def test_check_lists_stale_kernels_and_all_rebuilds_them(
    source_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "list_package_sources", lambda: [Source(source_path)])
    assert main(["--check"]) == 1
    assert "stale   doubled.zrt" in capsys.readouterr().out
    assert main(["--all"]) == 0
    assert main(["--check"]) == 0
    (tmp_path / "gone.zrt").write_bytes(b"")
    assert main(["--check"]) == 1
    assert "orphan  gone.zrt" in capsys.readouterr().out


@needs_assembler
def test_one_rejected_source_does_not_block_the_others(
    source_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.s"
    broken.write_text(SOURCE.replace("s_endpgm", "s_endprogram"))
    monkeypatch.setattr(module, "list_package_sources", lambda: [Source(broken), Source(source_path)])
    assert main(["--all"]) == 2
    shown = capsys.readouterr()
    assert "s_endprogram" in shown.err and shown.out == "FAIL  1 kernels, 1 changed, 1 refused\n"
    assert read_zrt(source_path.with_suffix(".zrt").read_bytes()).name == "doubled"
    assert main(["--check"]) == 1


@needs_assembler
def test_resource_words_match_a_compiler(tmp_path: Path) -> None:
    source = tmp_path / "k.c"
    source.write_text(
        "__attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(1, 256)))\n"
        "void k(__attribute__((address_space(1))) float *a) {\n"
        "  a[__builtin_amdgcn_workitem_id_x() + __builtin_amdgcn_workgroup_id_x() +\n"
        "    __builtin_amdgcn_workgroup_id_y() + __builtin_amdgcn_workgroup_id_z()] *= 2; }\n"
    )
    built = tmp_path / "k.o"
    command = [sys.executable, "-m", "ziglang", "clang", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201"]
    subprocess.run([*command, "-nogpulib", "-O2", "-c", str(source), "-o", str(built)], check=True)
    sections = read_section_contents(built.read_bytes(), "k.o")
    rsrc3, rsrc1, rsrc2 = struct.unpack_from("<3I", sections[".rodata"], 44)
    assert rsrc1 == rsrc.encode_rsrc1(8, 32, RULES[12])
    assert rsrc2 == rsrc.encode_rsrc2((256, 1, 1), 0, 0, RULES[12])
    assert rsrc3 == rsrc.encode_rsrc3(128, RULES[12])
    tail = struct.unpack("<96I", sections[".text"][-384:])
    assert set(tail) == {0xBF9F0000}, "the padding that the container copies"
