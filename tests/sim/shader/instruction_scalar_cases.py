"""Forms of SOP1, SOP2, SOPC, SOPK and SOPP."""

from __future__ import annotations

from instruction_kernels import KernelWriter
from instruction_lists import SOP1, SOP2, SOPC, split_mnemonics

_SOP2_ODD = {
    **dict.fromkeys(("s_lshl_b32", "s_lshr_b32", "s_ashr_i32"), ("s0", "s14")),
    **dict.fromkeys(("s_lshl_b64", "s_lshr_b64", "s_ashr_i64"), ("s[8:9]", "s14")),
    **dict.fromkeys(("s_bfe_u32", "s_bfe_i32"), ("s0", "s30")),
    **dict.fromkeys(("s_bfe_u64", "s_bfe_i64"), ("s[8:9]", "s30")),
    "s_bfm_b32": ("s14", "s15"),
}


def _scalar_types(name: str) -> tuple[str, str, bool]:
    """Return two source registers, and whether the result is a pair."""
    if name in _SOP2_ODD:
        a, b = _SOP2_ODD[name]
        return a, b, name.endswith("64")
    kind = name.split("_")[-1]
    if kind == "f32" and not name.startswith(("s_cvt_pk",)):
        return "s4", "s5", False
    if name == "s_cvt_pk_rtz_f16_f32":
        return "s4", "s5", False
    if kind == "f16":
        return "s12", "s13", False
    if kind in ("b64", "u64", "i64"):
        return "s[8:9]", "s[16:17]", True
    return "s0", "s1", False


def add_scalar_cases(writer: KernelWriter) -> None:
    for name in split_mnemonics(SOP1):
        parts = name.split("_")
        source, _, pair = _scalar_types(name)
        if name.startswith("s_cvt_hi"):
            source = "s12"
        if parts[1] in ("ctz", "clz", "bcnt1", "bcnt0", "cls"):
            pair = False
        if name == "s_bitreplicate_b64_b32":
            source, pair = "s0", True
        if "bitset" in name:
            source, pair = "s14", name.endswith("64")
        to = "s[40:41]" if pair else "s40"
        saved = ("s40", "s41", "scc") if pair else ("s40", "scc")
        compare = (
            "f32"
            if name.startswith(("s_cvt_f32", "s_cvt_hi", "s_ceil", "s_floor", "s_trunc", "s_rndne"))
            else "bits"
        )
        if name == "s_cvt_f16_f32":
            compare = "f16"
        wide = source.startswith("s[")
        for text in (
            source,
            "-1" if "f32" not in name.split("_")[-1] else "-2.0",
            "64",
            "0x80000003" if "f" not in parts[-1] else "0x7f7fffff",
        ):
            writer.scalar(name, f"{name} {to}, {text}", saved=saved, compare=compare)
        if not wide:
            writer.scalar(
                name,
                f"{name} {to}, exec_hi" if writer.wave == 64 else f"{name} {to}, vcc_hi",
                saved=saved,
                compare=compare,
                before=["s_mov_b32 vcc_hi, s1"],
            )
    for name in split_mnemonics(SOP2):
        a, b, pair = _scalar_types(name)
        if name == "s_bfm_b64":
            a, b = "s14", "s15"
        to = "s[40:41]" if pair or name == "s_bfm_b64" else "s40"
        pair = to != "s40"
        saved = ("s40", "s41", "scc") if pair else ("s40", "scc")
        compare = (
            "f32" if name.endswith("f32") and "cvt_pk" not in name else "f16x2" if "cvt_pk" in name else "bits"
        )
        literal = "0x3fa00001" if "f32" in name else "0x80010023"
        for left, right in (
            (a, b),
            (a, "-16" if "f32" not in name else "-4.0"),
            ("64" if "f32" not in name else "0.5", b),
            (a, literal),
        ):
            writer.scalar(name, f"{name} {to}, {left}, {right}", saved=saved, compare=compare)
    for name in split_mnemonics(SOPC):
        a, b, _ = _scalar_types(name)
        if "bitcmp" in name:
            b = "s14"
        for left, right in (
            (a, b),
            (a, "64" if "f32" not in name else "0.5"),
            ("-1" if "f32" not in name else "-2.0", b),
            (a, "s0" if "bitcmp" in name else a),
        ):
            writer.scalar(name, f"{name} {left}, {right}", saved=("scc",))
    for value in ("0x1234", "0x8001", "0"):
        for name in ("s_movk_i32", "s_addk_co_i32", "s_mulk_i32", "s_cmovk_i32"):
            writer.scalar(name, f"{name} s40, {value}")
    bits = writer.wave
    for name in ("and", "or", "and_not1", "xor", "nand", "or_not1", "and_not0"):
        to = "s40" if bits == 32 else "s[40:41]"
        source = "s0" if bits == 32 else "s[8:9]"
        mask = f"s_mov_b{bits} exec{writer.suffix}, {writer.mask(20)}"
        saved = ("s40", "exec_lo", "scc") if bits == 32 else ("s40", "s41", "exec_lo", "exec_hi", "scc")
        writer.scalar(
            f"s_{name}_saveexec_b{bits}", f"s_{name}_saveexec_b{bits} {to}, {source}", before=[mask], saved=saved
        )
    writer.scalar("s_movrels_b32", "s_movrels_b32 s40, s0", before=["s_and_b32 m0, s24, 15"])
    writer.scalar(
        "s_movrels_b64", "s_movrels_b64 s[40:41], s[0:1]", before=["s_and_b32 m0, s24, 14"], saved=("s40", "s41")
    )
    writer.scalar("s_movreld_b32", "s_movreld_b32 s40, s1", before=["s_and_b32 m0, s24, 1"], saved=("s40", "s41"))
    writer.scalar("s_getreg_b32", "s_getreg_b32 s40, hwreg(HW_REG_WAVE_MODE, 0, 8)")
    writer.scalar("s_setreg_b32", "s_setreg_b32 hwreg(HW_REG_WAVE_MODE, 4, 4), s40", before=["s_mov_b32 s40, 15"])
    writer.scalar("s_setreg_imm32_b32", "s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 4, 4), 15")
    writer.scalar("s_round_mode", "s_round_mode 0", saved=("s40",))
    writer.scalar("s_denorm_mode", "s_denorm_mode 15", saved=("s40",))
    add_control_cases(writer)


_QUIET = (
    "s_nop 3", "s_wait_loadcnt 0", "s_wait_storecnt 0", "s_wait_dscnt 0", "s_wait_kmcnt 0", "s_wait_expcnt 0",
    "s_wait_loadcnt_dscnt 0", "s_wait_storecnt_dscnt 0", "s_wait_alu 0xfffe", "s_wait_idle",
    "s_delay_alu instid0(VALU_DEP_1)", "s_sleep 1", "s_clause 0x0", "s_setprio 1", "s_icache_inv", "s_version 0",
    "s_sethalt 0", "s_dcache_inv", "s_barrier_signal -1\ns_barrier_wait -1",
    "s_barrier_signal_isfirst -1\ns_barrier_wait -1",
    "s_barrier_signal -1\ns_nop 0\ns_barrier_wait -1", "s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)",
    "s_prefetch_inst s[96:97], 0, null, 1", "s_prefetch_data s[96:97], 0, null, 1",
)  # fmt: skip


def add_control_cases(writer: KernelWriter) -> None:
    """Test each branch taken and not taken; s40 records which."""
    vcc = f"s_mov_b{writer.wave} vcc{writer.suffix}"
    execute = f"s_mov_b{writer.wave} exec{writer.suffix}"
    conditions = {
        "scc0": [f"s_cmp_eq_u32 s{25}, 1"], "scc1": [f"s_cmp_eq_u32 s{25}, 1"],
        "vccz": [f"{vcc}, {writer.mask(20)}"], "vccnz": [f"{vcc}, {writer.mask(20)}"],
        "execz": [f"{execute}, {writer.mask(20)}"], "execnz": [f"{execute}, {writer.mask(20)}"],
    }  # fmt: skip
    for number, (name, before) in enumerate(conditions.items()):
        label = f"L{number}"
        writer.scalar(
            f"s_cbranch_{name}",
            f"s_cbranch_{name} {label}\ns_add_co_i32 s40, s40, 5\n{label}:",
            before=before,
            saved=("s40", "exec_lo"),
        )
    writer.scalar("s_branch", "s_branch L20\ns_mov_b32 s40, 0\nL20:")
    writer.scalar(
        "s_getpc_b64",
        "s_getpc_b64 s[40:41]\nL21:\ns_getpc_b64 s[42:43]\nL22:\ns_sub_co_u32 s40, s42, s40",
        saved=("s40",),
    )
    call = "s_getpc_b64 s[40:41]\nL23:\ns_add_co_u32 s40, s40, L24-L23\ns_add_co_ci_u32 s41, s41, 0\n"
    after = "s_mov_b32 s42, 7\ns_branch L25\nL24:\ns_mov_b32 s43, 9\n"
    writer.scalar(
        "s_swappc_b64",
        f"{call}s_swappc_b64 s[44:45], s[40:41]\n{after}s_setpc_b64 s[44:45]\nL25:",
        saved=("s42", "s43"),
    )
    call = "s_getpc_b64 s[40:41]\nL26:\ns_add_co_u32 s40, s40, L27-L26\ns_add_co_ci_u32 s41, s41, 0\n"
    writer.scalar(
        "s_setpc_b64", f"{call}s_mov_b32 s42, 1\ns_setpc_b64 s[40:41]\ns_mov_b32 s42, 2\nL27:", saved=("s42",)
    )
    for text in _QUIET:
        writer.scalar(text.split()[0], text)
