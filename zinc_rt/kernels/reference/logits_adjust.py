"""LOGITS_ADJUST: apply a request's penalties and biases to its logits before sampling."""

from __future__ import annotations

import numpy as np

from zinc_rt.ir.slot_record import SlotFlag, view_records
from zinc_rt.kernels.reference.arithmetic import Arithmetic

OUTPUT = 0x7FFFFFFF  # bits of a token's count for the output; those above count the prompt
NEVER = np.float32(-np.inf)


def logits_adjust(
    math: Arithmetic,
    logits: np.ndarray,
    row_slot: np.ndarray,
    sample_position: np.ndarray,
    record: np.ndarray,
    token_counts: np.ndarray,
    end_id: np.ndarray,
    bias_id: np.ndarray | None,
    bias_value: np.ndarray | None,
    mask: np.ndarray | None,
    mask_row: np.ndarray | None,
) -> np.ndarray:
    """Adjust each row of logits [L, V] by its slot's record -> [L, V]. In this order, each operation float32:

    mask: -inf where the bit is 0.
    bias: x + b.
    repetition r, of tokens in prompt or output: x / r above 0, else x * r.
    frequency f and presence p, of tokens in the output: (x - f * count) - p.
    min_tokens: while the output is shorter, end tokens and the request's stop tokens are -inf.
    """
    out = logits.copy()
    slots = view_records(record)
    for i, x in enumerate(out):
        of = slots[row_slot[i]]
        if mask is not None and mask_row is not None and mask_row[i] >= 0:
            allowed = np.unpackbits(mask[mask_row[i]].view(np.uint8), bitorder="little", count=x.size)
            x[allowed == 0] = NEVER
        if bias_id is not None and bias_value is not None and of["flags"] & SlotFlag.BIAS:
            ids = bias_id[of["bias_row"], : of["bias_count"]]
            if (np.diff(ids) <= 0).any():
                raise ValueError(f"LOGITS_ADJUST: the ids of bias row {of['bias_row']} are not in ascending order")
            x[ids] += bias_value[of["bias_row"], : of["bias_count"]]
        if of["flags"] & SlotFlag.PENALTIES:
            counts = token_counts[of["penalty_row"]]
            repeated = np.where(x > 0, x / of["repetition"], x * of["repetition"])
            x[:] = np.where(counts != 0, repeated, x)
            generated = counts & OUTPUT
            penalised = (x - of["frequency"] * generated.astype(np.float32)) - of["presence"]
            x[:] = np.where(generated > 0, penalised, x)
        if sample_position[i] - of["prompt_len"] < of["min_tokens"]:
            ends = np.concatenate([end_id, of["stop_ids"][: of["stop_count"]]])
            x[ends[ends >= 0]] = NEVER
    return out
