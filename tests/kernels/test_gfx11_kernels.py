"""The kernels of gfx11 from the sources of gfx12: their text, their code, and results on simulated chips."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels.test_zrt import decode_fields

from zinc_rt.cli.asm import main as asm
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import InputError
from zinc_rt.isa import target_of
from zinc_rt.isa.control_flow import Block, find_control_flow
from zinc_rt.isa.effects import SCC, effects
from zinc_rt.isa.lint import Limits, lint
from zinc_rt.isa.target import CHIPS
from zinc_rt.kernels import rsrc
from zinc_rt.kernels.assemble import (
    HALVES,
    INCLUDE,
    KERNELS,
    Source,
    assemble,
    hash_source,
    is_available,
    list_sources,
)
from zinc_rt.kernels.gfx1100.table import load, names
from zinc_rt.kernels.gfx1201 import table as gfx1201
from zinc_rt.kernels.retarget import retarget_line
from zinc_rt.kernels.rows.repack import WEIGHT_TYPES
from zinc_rt.kernels.zrt import Zrt, read_zrt, write_zrt
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.registers import PGM_RSRC1, PGM_RSRC2
from zinc_rt.validate.command import main as validate
from zinc_rt.validate.kernel_test.command import main as kernel_test

needs_assembler = pytest.mark.skipif(not is_available(), reason='no assembler: extra "asm" is not installed')
SOURCES = list_sources(arch="gfx1100")
SYSTEM_SGPRS = 4  # the ids and the group's info


@pytest.mark.parametrize(
    ("line", "translated"),
    [
        ("  s_mul_i32 s11, ttmp9, COLUMNS", ["  s_mul_i32 s11, s105, COLUMNS"]),
        (r"s_bfe_u32 s\r, ttmp8, 5 // ttmp8", [r"s_bfe_u32 s\r, s104, 5 // s104"]),
        (
            r"  s_add_nc_u64 s[\p:\p+1], s[4:5], s[A + 2:A + 3] // sum",
            [r"  s_add_u32 s[\p], s[4], s[A + 2]", r"  s_addc_u32 s[\p+1], s[4+1], s[A + 2+1]"],
        ),
        ("s_sub_nc_u64 s[4:5], s[6:7], 64", ["s_sub_u32 s[4], s[6], 64", "s_subb_u32 s[4+1], s[6+1], 0"]),
        (
            "s_load_b96 s[8:10], s[0:1], N + 16",
            ["s_load_b64 s[8:8+1], s[0:1], N + 16", "s_load_b32 s[8+2], s[0:1], N + 16+8"],
        ),
        ("global_load_b32 v1, v2, s[0:1] scope:SCOPE_DEV", ["global_load_b32 v1, v2, s[0:1] glc"]),
        ("global_atomic_add_u32 v1, v2, s[0:1] scope:SCOPE_DEV", ["global_atomic_add_u32 v1, v2, s[0:1]"]),
        (
            "global_atomic_add_u32 v6, v5, v7, s[2:3] th:TH_ATOMIC_RETURN scope:SCOPE_DEV",
            ["global_atomic_add_u32 v6, v5, v7, s[2:3] glc"],
        ),
        ("// s_add_nc_u64 in a comment", ["// s_add_nc_u64 in a comment"]),
    ],
)
def test_line_is_translated_for_gfx11_and_kept_for_gfx12(line: str, translated: list[str]) -> None:
    assert retarget_line(line, 11).splitlines() == translated
    assert retarget_line(line, 12) == line


@pytest.mark.parametrize("operand", [r"\base", "-4", "vcc"])
def test_pair_that_cannot_be_split_is_rejected(operand: str) -> None:
    with pytest.raises(InputError, match="cannot split"):
        retarget_line(f"s_add_nc_u64 s[0:1], {operand}, s[2:3]", 11)


def test_archive_has_every_source_that_runs_on_gfx11_up_to_date() -> None:
    assert names() == tuple(sorted(source.name for source in SOURCES))
    missing = {source.name for source in list_sources()} - set(names())
    families = [f"{name}_{halves}" for name in ("matmul_wmma", "matmul_wmma_experts") for halves in HALVES]
    products = {f"{family}_{dtype}" for family in families for dtype in WEIGHT_TYPES}
    rounding = {f"round_rows_{halves}" for halves in HALVES}
    assert missing == {"matmul_q8_32_q4_0", "matmul_q8_32_q8_0", *products, *rounding}
    for source in SOURCES:
        assert load(source.name).source_hash == hash_source(source), f"{source.name} is stale: zinc-rt asm --all"


def find_live_scc(zrt: Zrt) -> list[str]:
    """Return the 64-bit additions after which SCC of an earlier instruction is read."""
    target, bit = target_of(zrt.target), 1 << SCC
    blocks = find_control_flow(zrt.code, target).blocks
    live_at = dict.fromkeys(blocks, False)
    result: dict[int, str] = {}

    def scan(block: Block) -> bool:
        live = any(live_at.get(pc, False) for pc in block.successors)
        for pc, instruction in reversed(block.instructions):
            if live and instruction.mnemonic in ("s_add_nc_u64", "s_sub_nc_u64"):
                result[pc] = f"{zrt.name} {zrt.find_place(pc)}"
            used = effects(instruction, target)
            live = bool(used.reads & bit) or (live and not used.writes & bit)
        return live

    changed = True
    while changed:
        before = dict(live_at)
        for pc, block in sorted(blocks.items(), reverse=True):
            live_at[pc] = scan(block)
        changed = live_at != before
    return list(result.values())


@pytest.mark.parametrize("name", names())
@pytest.mark.rest(keep=5)
def test_no_scc_is_live_across_a_64_bit_addition(name: str) -> None:
    """On gfx11 the two halves of the addition overwrite SCC."""
    assert find_live_scc(gfx1201.load(name)) == []


def test_live_scc_is_found(tmp_path: Path) -> None:
    path = tmp_path / "k.s"
    path.write_text(
        '.include "zrt.inc"\nzrt_kernel name=k, buffers=1, vgprs=4, sgprs=8\n'
        "s_cmp_eq_u32 s0, 0\ns_add_nc_u64 s[2:3], s[0:1], 4\ns_cselect_b32 s4, 1, 0\ns_endpgm\nzrt_end\n"
    )
    assert find_live_scc(read_zrt(assemble(Source(path)))) == ["k k.s:4"]


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1151"])
@pytest.mark.parametrize("name", names())
@pytest.mark.rest(keep=6)
def test_static_sanitizer_reports_nothing(name: str, chip: str) -> None:
    zrt = load(name)
    sgprs = rsrc.count_initial_sgprs(zrt.rules)
    limits = Limits(zrt.vgprs, zrt.sgprs, zrt.lds_bytes, zrt.scratch_bytes, sgprs, zrt.kernarg_bytes)
    findings = lint(zrt.code, target_of(chip), limits)
    assert [f"{finding.sentence()}  {zrt.find_place(finding.pc)}" for finding in findings] == []


@needs_assembler
def test_code_is_the_same_for_every_chip_of_gfx11() -> None:
    names_assembled = {"add", "sample_draw", "matvec_norm_q8_0"}
    for source in (source for source in SOURCES if source.name in names_assembled):
        other = read_zrt(assemble(Source(source.path, source.dtype, source.family, "gfx1151")))
        assert (other.code, other.target) == (load(source.name).code, "gfx1151")
    assert {chip.kernels for chip in CHIPS if chip.generation == 11} == {"gfx1100"}


@needs_assembler
def test_asm_assembles_a_file_for_another_chip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "add.zrt"
    assert asm([str(KERNELS / "add.s"), "--arch", "gfx1100", "-o", str(output)]) == 0, capsys.readouterr()
    assert read_zrt(output.read_bytes()) == load("add")
    assert asm(["--all", "--arch", "gfx1100"]) == 2 and "omit --arch" in capsys.readouterr().err


def test_launch_registers_are_those_of_gfx11() -> None:
    zrt = load("flash_attn_any")
    one = decode_fields(PGM_RSRC1[Generation.GFX11], zrt.rsrc1)
    assert one["DX10_CLAMP"] and one["IEEE_MODE"] and one["VGPRS"] == -(-zrt.vgprs // 8) - 1
    two = decode_fields(PGM_RSRC2[Generation.GFX11], zrt.rsrc2)
    ids = [two[name] for name in ("TGID_X_EN", "TGID_Y_EN", "TGID_Z_EN", "TG_SIZE_EN")]
    assert ids == [1] * SYSTEM_SGPRS and two["USER_SGPR"] + sum(ids) == 16, "gfx1100 needs 16 in wave32"
    assert read_zrt(write_zrt(zrt)) == zrt


def test_macros_leave_the_registers_of_sources_alone() -> None:
    """s102 to s105 belong to the macros of include/gfx11/zrt.inc."""
    assert (INCLUDE / "gfx11" / "zrt.inc").is_file()
    assert max(gfx1201.load(name).sgprs for name in gfx1201.names()) <= 102


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1151"])
@pytest.mark.rest(keep=1)
def test_node_has_the_bits_of_t_cpu(chip: str) -> None:
    case = "ADD T=2 N=300 values=mixed"
    assert kernel_test(["--tier", "t1", "--device", f"sim:{chip}", "--case", case, "--sanitizer", "full"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        "--tiers t1,t2,t_cpu --device sim:gfx1100 --coherence caches --reorder 7",
        "--tiers t1,t_cpu --device sim:gfx1100 --ordering canonical-1-q8",
        "--tiers t1,t_cpu --device sim:gfx1151",  # Linux has no user queues there: no T2
    ],
)
@pytest.mark.parametrize("stem", ["qwen3-q", "gemma4-q", "gemma4moe-q", "qwen35moe-q"])
def test_embedded_model_has_the_bits_of_t_cpu(stem: str, options: str) -> None:
    words = ["--model", str(FOLDER / f"{stem}.gguf"), "--sanitizer", "full"]
    assert validate([*words, *options.split()]) == 0


def test_t2_is_refused_where_linux_has_no_user_queues(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", str(FOLDER / "qwen3-q.gguf"), "--tiers", "t2,t_cpu", "--device", "sim:gfx1151"]
    assert validate(words) == 2
    assert "leaves gfx1151 out of user queues" in capsys.readouterr().err
