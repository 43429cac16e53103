"""Which function runs which opcode on T-CPU. Every row computes in any ordering and takes any weight type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.reference.add import add
from zinc_rt.kernels.reference.argmax import argmax
from zinc_rt.kernels.reference.arithmetic import ORDERINGS
from zinc_rt.kernels.reference.embed import embed
from zinc_rt.kernels.reference.flash_attn import flash_attn
from zinc_rt.kernels.reference.flash_attn_batched import flash_attn_batched
from zinc_rt.kernels.reference.geglu import geglu
from zinc_rt.kernels.reference.kv_write_batched import kv_write_batched
from zinc_rt.kernels.reference.lm_head import lm_head
from zinc_rt.kernels.reference.matmul import matmul
from zinc_rt.kernels.reference.matmul_wmma import matmul_wmma
from zinc_rt.kernels.reference.mla import mla_absorb, mla_expand, mla_flash_attn
from zinc_rt.kernels.reference.moe_down_acc import moe_down_acc
from zinc_rt.kernels.reference.moe_gate_topk import moe_gate_topk
from zinc_rt.kernels.reference.moe_gate_up import moe_gate_up
from zinc_rt.kernels.reference.moe_swiglu import moe_swiglu
from zinc_rt.kernels.reference.request_state import load_request_state, store_request_state
from zinc_rt.kernels.reference.residual_rms_norm import residual_rms_norm
from zinc_rt.kernels.reference.rms_norm import rms_norm
from zinc_rt.kernels.reference.rms_norm_fused_mlp_gate_up import rms_norm_fused_mlp_gate_up
from zinc_rt.kernels.reference.rms_norm_fused_qkv import rms_norm_fused_qkv
from zinc_rt.kernels.reference.rms_norm_fused_rope_kv_write import rms_norm_fused_rope_kv_write
from zinc_rt.kernels.reference.rope import rope
from zinc_rt.kernels.reference.sample import sample
from zinc_rt.kernels.reference.scale import row_scale, scale
from zinc_rt.kernels.reference.shared_expert import shared_expert
from zinc_rt.kernels.reference.sigmoid_mul import sigmoid_mul
from zinc_rt.kernels.reference.slice import slice_columns
from zinc_rt.kernels.reference.softcap import softcap
from zinc_rt.kernels.reference.ssm_conv1d import ssm_conv1d, ssm_conv1d_update, ssm_conv1d_update_ids
from zinc_rt.kernels.reference.ssm_delta_net import (
    ssm_delta_net,
    ssm_delta_net_inplace,
    ssm_delta_net_inplace_ids,
)
from zinc_rt.kernels.reference.ssm_gated_norm import ssm_gated_norm
from zinc_rt.kernels.reference.ssm_scan import ssm_scan
from zinc_rt.kernels.reference.stream_out import stream_out
from zinc_rt.kernels.reference.swiglu import swiglu
from zinc_rt.kernels.reference.table_store import table_store
from zinc_rt.kernels.reference.verify_k import verify_k
from zinc_rt.kernels.sets import Kernels
from zinc_rt.kernels.weight import own_bytes

# code(math, *inputs, **attrs) -> the outputs that are not in place, one array or a tuple of them
Code = Callable[..., Any]

FUNCTIONS: dict[Op, Code] = {
    Op.EMBED: embed,
    Op.RMS_NORM: rms_norm,
    Op.RMS_NORM_FUSED_QKV: rms_norm_fused_qkv,
    Op.RMS_NORM_FUSED_MLP_GATE_UP: rms_norm_fused_mlp_gate_up,
    Op.ROPE: rope,
    Op.RMS_NORM_FUSED_ROPE_KV_WRITE: rms_norm_fused_rope_kv_write,
    Op.FLASH_ATTN: flash_attn,
    Op.FLASH_ATTN_BATCHED: flash_attn_batched,
    Op.MOE_GATE_TOPK: moe_gate_topk,
    Op.MOE_GATE_UP: moe_gate_up,
    Op.MOE_SWIGLU: moe_swiglu,
    Op.MOE_DOWN_ACC: moe_down_acc,
    Op.SHARED_EXPERT: shared_expert,
    Op.SSM_CONV1D: ssm_conv1d,
    Op.SSM_DELTA_NET: ssm_delta_net,
    Op.SSM_GATED_NORM: ssm_gated_norm,
    Op.RESIDUAL_RMS_NORM: residual_rms_norm,
    Op.LM_HEAD: lm_head,
    Op.ARGMAX: argmax,
    Op.SAMPLE: sample,
    Op.KV_WRITE_BATCHED: kv_write_batched,
    Op.MATMUL_WMMA_F16: matmul_wmma,
    Op.MATMUL_WMMA_Q4K: matmul_wmma,
    Op.STREAM_OUT: stream_out,
    Op.LOAD_REQUEST_STATE: load_request_state,
    Op.STORE_REQUEST_STATE: store_request_state,
    Op.VERIFY_K: verify_k,
    Op.MATMUL: matmul,
    Op.SWIGLU: swiglu,
    Op.GEGLU: geglu,
    Op.SIGMOID_MUL: sigmoid_mul,
    Op.ADD: add,
    Op.SCALE: scale,
    Op.ROW_SCALE: row_scale,
    Op.SLICE: slice_columns,
    Op.SOFTCAP: softcap,
    Op.MLA_ABSORB: mla_absorb,
    Op.MLA_EXPAND: mla_expand,
    Op.MLA_FLASH_ATTN: mla_flash_attn,
    Op.SSM_SCAN: ssm_scan,
    Op.SSM_CONV1D_UPDATE: ssm_conv1d_update,
    Op.SSM_CONV1D_UPDATE_IDS: ssm_conv1d_update_ids,
    Op.SSM_DELTA_NET_INPLACE: ssm_delta_net_inplace,
    Op.SSM_DELTA_NET_INPLACE_IDS: ssm_delta_net_inplace_ids,
    Op.TABLE_STORE: table_store,
}

ENTRIES: tuple[Entry, ...] = tuple(Entry(op, code, frozenset(ORDERINGS)) for op, code in FUNCTIONS.items())


def names() -> tuple[str, ...]:
    return tuple(sorted(op.name.lower() for op in FUNCTIONS))


KERNELS = Kernels("numpy-reference", ENTRIES, own_bytes, lambda weight: weight.nbytes, names)
