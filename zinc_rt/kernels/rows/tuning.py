"""Tuning parameters of a kernel set: the part of a node that a workgroup computes, and the kernels' limits."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.kernels.rows.expand import Expansions

# Optional kernels of a set that replace several launches:
# gated_norm: rms_norm and swiglu. delta_step: delta_unit, delta_gates and delta_net. matvec_glu: two matvecs and
# swiglu. expert_gate_dot: the shared expert's score and expert_gate. matvec_norm: rms_norm and matvecs, with
# residuals, and matvec_glu_norm and expert_sum_residual with it. matvec_gated: gated_norm and a matvec.
# matvec_glu_routed: moe_topk, and matvec_glu_norm of the selected experts. matvec_expert_sum: the experts' down
# projections and expert_sum. rms_norm_sum: rms_norm and add. And for what its other kernels do not take:
# flash_attn_any, of heads, latents and small pages; delta_unit_any, of heads. matmul_q8_32: matvec_q8_32 of 16
# tokens and more, on matrix units. matmul_wmma: the opcodes in wmma-f16.
OWN_KERNELS = frozenset(
    {
        "gated_norm",
        "delta_step",
        "matvec_glu",
        "expert_gate_dot",
        "matvec_expert_sum",
        "matvec_norm",
        "matvec_gated",
        "matvec_glu_routed",
        "rms_norm_sum",
        "flash_attn_any",
        "delta_unit_any",
        "matmul_q8_32",
        "matmul_wmma",
    }
)


@dataclass(frozen=True, slots=True)
class Tuning:
    """The parameters. `columns` and similar fields: the part of a row per workgroup."""

    orderings: frozenset[str]
    weight_dtypes: tuple[str, ...]  # weight types that projections and embeddings read
    expansions: Expansions  # conversion of other types on upload: expand.py

    columns: int  # of the elementwise kernels
    slice_columns: int
    embed_columns: int  # of a table that is not packed
    copy_columns: int  # of keys and values into the cache
    expert_columns: int  # of expert_sum and expert_gate

    matvec_rows: int  # of a weight to a workgroup
    matmul_rows: int
    matmul_tokens: int
    matmul_capacity: int  # from this many tokens on, matmul is faster than matvec
    grid_rows: int  # maximum number of workgroups along y or z

    flash_widths: tuple[int, ...]  # longest head of each flash_attn kernel, ascending
    latent_widths: tuple[int, ...]  # most latents of each mla_flash_attn kernel, ascending
    flash_multiple: int  # of which a head's dims are one
    flash_batch: int  # neighbouring keys that it reads from one page

    experts_maximum: int
    choices_maximum: int

    conv_taps: int  # of conv1d; conv1d_any takes others
    state_columns: int  # of a row of conv1d, load_rows, store_rows
    gate_heads: int  # of a token to a workgroup of delta_gates
    delta_values: int  # of a head to a workgroup of delta_net
    delta_head_maximum: int  # of delta_net; delta_net_any takes others
    scan_channels: int  # to a workgroup of ssm_scan
    scan_states_maximum: int  # of ssm_scan; ssm_scan_any takes more

    vocabulary_maximum: int  # of the sort
    sample_block: int  # weights that sample_draw loads at a time; rows are padded to it
    sample_columns: int  # of sample_weights

    flash_workgroups: int = 0  # of one step that share out its queries' chunks; 0: flash_attn_parts is not there
    flash_whole_chunks: int = 0  # fewer chunks per query are not worth it

    wmma_tokens: int = 0  # to a workgroup of matmul_wmma
    wmma_rows: int = 0  # of a weight to a workgroup of matmul_wmma and matmul_wmma_experts

    own_kernels: frozenset[str] = frozenset()  # of OWN_KERNELS, those that the set has
    fused_tokens: int = 0  # delta_step is used for steps of at most this many tokens

    skips_columns: bool = False  # norm_rope_kv reads heads with other columns behind them
    any_vectors: bool = False  # the embed kernels also work without row numbers, and so dequantise small weights

    def stored_dtype(self, dtype: str) -> str:
        """Return the type on the device of a weight with type `dtype` in the file."""
        return self.expansions.get(dtype, dtype)
