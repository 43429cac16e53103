"""The static report: numbers worked out by hand for small kernels."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from compiled import is_compiler_available

from zinc_rt.cli.isa import main
from zinc_rt.isa import target_of
from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.elf import read_elf
from zinc_rt.isa.loops import find_loops
from zinc_rt.isa.occupancy import count_waves_by_lds, count_waves_per_simd
from zinc_rt.isa.report import make_kernel_report
from zinc_rt.isa.target import CHIPS
from zinc_rt.kernels.zrt import Zrt, write_zrt

TARGET = target_of("gfx1201", 32)
needs_assembler = pytest.mark.skipif(
    not is_compiler_available(), reason='no assembler: extra "asm" is not installed'
)

NESTED = """
  s_mov_b32 s4, 0
1: s_mov_b32 s5, 0
2: s_load_b128 s[8:11], s[0:1], 0
  global_load_b128 v[4:7], v0, s[0:1]
  global_load_u16 v8, v0, s[0:1] offset:64
  ds_load_2addr_b64 v[12:15], v0 offset1:1
  s_wait_loadcnt_dscnt 0
  v_dual_add_f32 v1, v2, v3 :: v_dual_mul_f32 v4, v5, v6
  v_add_f32 v1, v1, v1
  v_exp_f32 v1, v1
  s_add_co_i32 s5, s5, 1
  s_cmp_lt_u32 s5, 10
  s_cbranch_scc1 2b
  global_store_b32 v0, v1, s[0:1]
  s_add_co_i32 s4, s4, 1
  s_cmp_lt_u32 s4, 10
  s_cbranch_scc1 1b
3: s_sub_co_i32 s4, s4, 1
  s_cmp_eq_u32 s4, 0
  s_cbranch_scc0 3b
  s_endpgm
"""


def assemble_text(text: str, folder: Path) -> bytes:
    source, built = folder / "k.s", folder / "k.o"
    source.write_text(text)
    command = [sys.executable, "-m", "ziglang", "clang", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201"]
    subprocess.run([*command, "-c", str(source), "-o", str(built)], check=True)
    return read_elf(built.read_bytes(), "k").sections[0].code


@needs_assembler
def test_loops_are_classified_by_nesting(tmp_path: Path) -> None:
    flow = find_control_flow(assemble_text(NESTED, tmp_path), TARGET)
    result = [(loop.depth, loop.innermost, len(loop.blocks)) for loop in find_loops(flow)]
    assert result == [(1, False, 3), (2, True, 1), (1, True, 1)]


@needs_assembler
def test_inner_loop_matches_hand_count(tmp_path: Path) -> None:
    result = make_kernel_report(assemble_text(NESTED, tmp_path), TARGET, vgprs=64, sgprs=16)
    inner, last = result.loops
    assert (inner.depth, inner.instructions, last.depth, last.instructions) == (2, 11, 1, 3)
    assert inner.load_bytes == 32 * (16 + 2) and inner.scalar_bytes == 16 and inner.lds_bytes == 32 * 16
    assert inner.count_bytes_per_instruction == (576 + 16) / 11
    counted = {unit: count for unit, count in inner.mix.items() if count}
    assert counted == {
        "valu": 1,
        "vopd": 1,
        "trans": 1,
        "salu": 2,
        "smem": 1,
        "load": 2,
        "lds": 1,
        "wait": 1,
        "branch": 1,
    }
    assert last.mix["salu"] == 2 and last.load_bytes == 0


@needs_assembler
def test_kernel_report_matches_hand_count(tmp_path: Path) -> None:
    code = assemble_text(NESTED, tmp_path)
    result = make_kernel_report(code, TARGET, vgprs=64, sgprs=16)
    assert (result.vgprs, result.vgprs_used, result.sgprs, result.sgprs_used) == (64, 16, 16, 12)
    assert (result.instructions, result.code_bytes, result.mix["store"]) == (21, len(code), 1)
    assert result.vopd_rate == 2 / 3
    assert result.waves == count_waves_per_simd(64) == 16
    assert make_kernel_report(code, TARGET).vgprs == 16


@pytest.mark.parametrize(
    ("vgprs", "wave", "waves"),
    [(1, 32, 16), (96, 32, 16), (97, 32, 12), (120, 32, 12), (128, 32, 10), (144, 32, 10), (192, 32, 8),
     (193, 32, 7), (256, 32, 5), (48, 64, 16), (49, 64, 12), (128, 64, 5), (256, 64, 2)],
)  # fmt: skip
def test_occupancy_is_limited_by_registers(vgprs: int, wave: int, waves: int) -> None:
    assert count_waves_per_simd(vgprs, wave) == waves


@pytest.mark.parametrize("chip", [row.name for row in CHIPS])
def test_occupancy_follows_the_register_file_of_the_chip(chip: str) -> None:
    """LLVM's values for 100 VGPRs."""
    large = chip in ("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201")
    simd_vgprs = target_of(chip).simd_vgprs
    waves = tuple(count_waves_per_simd(100, wave, simd_vgprs=simd_vgprs) for wave in (32, 64))
    assert waves == ((12, 7) if large else (9, 4))


@pytest.mark.parametrize(
    ("lds_bytes", "threads", "waves"),
    [(0, 32, 16), (65536, 1024, 16), (65536, 256, 4), (16384, 64, 4), (65536, 32, 1)],
)
def test_occupancy_is_limited_by_lds(lds_bytes: int, threads: int, waves: int) -> None:
    assert count_waves_by_lds(lds_bytes, threads) == waves


@needs_assembler
def test_command_shows_kernels_and_inner_loops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nested.zrt"
    kernel = Zrt("nested", assemble_text(NESTED, tmp_path), 1, 0, (64, 1, 1), vgprs=20, sgprs=16, lds_bytes=32768)
    path.write_bytes(write_zrt(kernel))
    assert main(["report", str(path), "--json", str(tmp_path / "report.json")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].split()[:8] == ["nested", "16/20", "12/16", "32768", "2", str(len(kernel.code)), "21", "67"]
    assert sum(line.startswith("nested ") for line in shown) == 3 and shown[-1] == "PASS  1 kernel"
    (result,) = json.loads((tmp_path / "report.json").read_text())["results"]
    assert result["measure"]["waves"] == 2
    assert result["measure"]["loops"][0]["bytes_per_instruction"] == pytest.approx(592 / 11)


def test_kernels_of_two_sets_are_compared_side_by_side(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert main(["report", "--beside", "radv", "matvec_q8_0", "add", "--json", str(report)]) == 0
    lines = [
        line.split()[:2] for line in capsys.readouterr().out.splitlines() if line.startswith(("add", "matvec"))
    ]
    assert lines == [[name, of] for name in ("matvec_q8_0", "add") for of in ("gfx1201", "radv")]
    measured = {result["id"]: result["measure"] for result in json.loads(report.read_text())["results"]}
    assert measured["radv:matvec_q8_0"]["waves"] < measured["gfx1201:matvec_q8_0"]["waves"] == 16


def test_incomparable_inputs_are_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    for words, says in {
        ("--beside", "spirv"): "not another kernel set of this chip",
        ("--beside", "gfx1201"): "next: --beside radv",
        ("--beside", "radv", "nosuch"): "unknown kernel nosuch",
    }.items():
        assert main(["report", *words]) == 2
        assert says in capsys.readouterr().err


PENDING = """
  global_load_b32 v1, v0, s[0:1]
1: global_load_b128 v[4:7], v0, s[0:1]
  global_load_b64 v[8:9], v0, s[0:1]
  s_wait_loadcnt 1
  global_load_u16 v10, v0, s[0:1]
  v_add_f32 v1, v1, v4
  s_add_co_i32 s5, s5, 1
  s_cmp_lt_u32 s5, 10
  s_cbranch_scc1 1b
  s_wait_loadcnt 0
  global_load_b96 v[4:6], v0, s[0:1]
  s_endpgm
"""


@needs_assembler
def test_loads_in_flight_exclude_waited_loads(tmp_path: Path) -> None:
    """Of a turn of the loop 8 and 2 bytes a lane are left over: with the next one's 16 and 8 there are four."""
    result = make_kernel_report(assemble_text(PENDING, tmp_path), TARGET)
    (loop,) = result.loops
    assert (loop.in_flight.loads, loop.in_flight.bytes) == (4, 32 * (8 + 2 + 16 + 8))
    assert result.in_flight == loop.in_flight, "the first turn alone has three: 4, 16 and 8 bytes"
    assert result.streaming is loop


@needs_assembler
def test_wave_that_waits_for_each_load_has_one_load_in_flight(tmp_path: Path) -> None:
    result = make_kernel_report(assemble_text(PENDING.replace("loadcnt 1", "loadcnt 0"), tmp_path), TARGET)
    assert result.loops[0].in_flight.bytes == 32 * (2 + 16 + 8)
    text = PENDING.replace("global_load_u16 v10, v0, s[0:1]\n", "").replace("loadcnt 1", "loadcnt 0")
    alone = text.replace("v[8:9], v0, s[0:1]", "v[8:9], v0, s[0:1]\n s_wait_loadcnt 0")
    assert make_kernel_report(assemble_text(alone, tmp_path), TARGET).loops[0].in_flight.loads == 2
    assert make_kernel_report(assemble_text("s_endpgm", tmp_path), TARGET).streaming is None
