"""Slots whose requests want their logits changed, for tests of the opcodes that read slot records."""

from __future__ import annotations

from typing import Any

import numpy as np

from zinc_rt.ir.slot_record import SlotFlag, free_records, seal_records, view_dwords


def make_records(*slots: dict[str, Any]) -> np.ndarray:
    """i32 [slots, 64], one record for each: fields by name. A bias or penalty row sets its flag."""
    result = free_records(len(slots))
    for of, fields in zip(result, slots, strict=True):
        for name, value in fields.items():
            if name == "stop_ids":
                of["stop_count"] = len(value)
                of["stop_ids"][: len(value)] = value
            else:
                of[name] = value
        of["flags"] |= SlotFlag.PENALTIES * ("penalty_row" in fields) | SlotFlag.BIAS * ("bias_row" in fields)
    seal_records(result)
    return view_dwords(result)


def count_tokens(*rows: list[tuple[int, int]]) -> np.ndarray:
    """i32 [rows, len]: of each token whether it is in the prompt, and how often in the output."""
    return np.array([[result | prompt << 31 for prompt, result in row] for row in rows], np.uint32).view(np.int32)


def pack_masks(allowed: np.ndarray) -> np.ndarray:
    """bool [rows, V] as i32 [rows, V / 32 rounded up]."""
    padded = np.pad(allowed, ((0, 0), (0, -allowed.shape[1] % 32)))
    return np.packbits(padded, axis=1, bitorder="little").view(np.int32)


def int32_indices(*values: int) -> np.ndarray:
    return np.array(values, np.int32)
