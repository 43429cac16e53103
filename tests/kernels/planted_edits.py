"""Mistakes of one token each in kernels' sources: an immediate, a register, the order of two operands."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from zinc_rt.kernels.assemble import INCLUDE, Source, assemble, list_sources


@dataclass(frozen=True)
class Edit:
    """`old` becomes `new` in `file`, the kernel's own unless named; `nth` of its places, from 0. `least`: sizes
    below which nothing can go wrong, and which the smallest failing case must have. `family`: where its cases are,
    for a shorter run."""

    kernel: str
    old: str
    new: str
    nth: int = 0
    file: str = ""
    least: dict[str, int] = field(default_factory=dict)
    family: str = ""


EDITS = (
    Edit("verify_k", "s_cmp_lg_u32 s18, s19", "s_cmp_gt_u32 s18, s19", least={"S": 1, "K": 1}, family="sampling"),
    # of whole tiles only: the smallest case is one tile
    Edit("add", "v[24:27], v2, s[6:7] offset:512", "v[24:27], v2, s[6:7] offset:528", 0, "elementwise.inc",
         {"T": 1, "N": 256}),
    Edit("swiglu", "v_mul_f32 \\y, v22, \\b", "v_mul_f32 \\y, v22, \\a", least={"T": 1}),
    Edit("scale", "s_mov_b32 s16, 1.0", "s_mov_b32 s16, 2.0", least={"T": 1, "N": 1}),
    Edit("rope", "v_sub_f32 v9, v9, v10", "v_sub_f32 v9, v10, v9", least={"T": 1, "R": 1}),
    Edit("slice", "v_add_nc_u32 v0, 32, v0", "v_add_nc_u32 v0, 33, v0", least={"T": 1}),
    Edit("argmax", "s_addk_co_i32 s9, 0x400", "s_addk_co_i32 s9, 0x401", least={"L": 1, "V": 1025}),
    Edit("expert_sum", "v_add_f32 v1, v3, v1", "v_add_f32 v1, v3, v3", 0, "expert_sum.inc", {"T": 1, "D": 1}),
    Edit("kv_write", "s_bfm_b32 s31, s22, 0", "s_bfm_b32 s31, s22, 1", least={"T": 1}),
    Edit("matvec_q4_k", "matvec_group_row \\type, 3", "matvec_group_row \\type, 2", least={"T": 1}),
    Edit("matmul_q8_0", "matmul_pair \\type, 2", "matmul_pair \\type, 1", least={"T": 1, "N": 1, "K": 1024}),
    Edit("moe_topk", "v_add_nc_u32 v4, 0x200, v4", "v_add_nc_u32 v4, 0x240, v4", least={"T": 1, "E": 129}),
    Edit("delta_gates", "v_add_f32 v4, v4, v5", "v_add_f32 v4, v4, v4", least={"T": 1}),
    Edit("delta_unit", "v_mul_f32 v7, v7, v12", "v_mul_f32 v7, v6, v12", least={"T": 1}),
    Edit("conv1d", "s_mul_i32 s34, s31, 3", "s_mul_i32 s34, s31, 2"),
    Edit("row_scale", "s_lshl_b32 s2, s2, 2", "s_lshl_b32 s2, s2, 1", 1, least={"T": 1, "N": 1}),
    Edit("softcap", "v_mul_f32 \\y, s13, v16", "v_mul_f32 \\y, v16, v16", least={"T": 1, "N": 1}),
    Edit("gelu", "f32_gelu \\y, \\a", "f32_silu \\y, \\a", least={"T": 1, "N": 1}),
    Edit("layer_norm", "v_sub_f32 v8, v8, v2", "v_add_f32 v8, v8, v2", least={"T": 1}),
    Edit("stream_out", "s_cselect_b32 s21, 0, s21", "s_cselect_b32 s21, 1, s21"),
    Edit("table_store", "v_add_nc_u32 v0, 32, v0", "v_add_nc_u32 v0, 64, v0", least={"E": 33}),
    Edit("logits_adjust", "v_subrev_f32 v4, s45, v4", "v_sub_f32 v4, s45, v4", least={"V": 1}, family="sampling"),
    Edit("slot_operands", "v_mov_b32 v8, s30", "v_mov_b32 v8, s29", family="sampling"),
    Edit("count_tokens", "v_mov_b32 v1, 1", "v_mov_b32 v1, 2", least={"V": 1}, family="sampling"),
    Edit("log_sum", "v_add_nc_u32 v2, 0x80, v2", "v_add_nc_u32 v2, 0x81, v2", least={"L": 1}, family="sampling"),
    Edit("logprobs", "s_addk_co_i32 s31, 0x400", "s_addk_co_i32 s31, 0x401", least={"L": 1}, family="sampling"),
    Edit("embed_f16", "v_lshlrev_b32 v1, \\type\\()_SHIFT, v0", "v_lshlrev_b32 v1, 2, v0", least={"T": 1}),
    Edit("expert_gate", "v_mul_f32 v1, v1, v2", "v_mul_f32 v1, v1, v3", least={"T": 1}),
    Edit("residual_rms_norm", "s_mul_i32 s2, s2, s12", "s_mul_i32 s2, s2, s13"),
)  # fmt: skip


def assemble_edited(edit: Edit, folder: Path) -> Path:
    """Return the kernel with the planted mistake, as a container."""
    made_of = next(source for source in list_sources() if source.name == edit.kernel)
    path = INCLUDE / edit.file if edit.file else made_of.path
    text = path.read_text()
    places = text.split(edit.old)
    assert len(places) > edit.nth + 1, f"{path.name} has no {edit.old}"
    before, after = edit.old.join(places[: edit.nth + 1]), edit.old.join(places[edit.nth + 1 :])
    source = Source(folder / made_of.path.name, made_of.dtype, made_of.family)
    shutil.copy(made_of.path, source.path)
    (folder / path.name).write_text(before + edit.new + after)
    source.container.write_bytes(assemble(source))
    return source.container
