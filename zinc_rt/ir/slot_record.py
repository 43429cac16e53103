"""The slot record: the state of a slot's request shared by host and device, 256 bytes, little-endian,
declared once."""

from __future__ import annotations

from enum import IntEnum, IntFlag

import numpy as np

STOP_IDS = 8  # stop tokens that a request may have
BYTES = 256
COLUMNS = BYTES // 4  # dwords of a record

_FIELDS: tuple[tuple[str, str, int], ...] = (  # name, type, byte offset; what lies between is reserved, 0
    ("state", "<u4", 0),  # SlotState
    ("epoch", "<u4", 4),  # of the binding
    ("tenant", "<u4", 8),
    ("session", "<u4", 12),
    ("request", "<u8", 16),
    ("model", "<u4", 24),
    ("priority", "<u4", 28),  # 0 interactive, 1 standard, 2 batch
    ("position", "<i4", 32),  # tokens whose keys and values are in place
    ("prompt_len", "<i4", 36),
    ("generated", "<i4", 40),
    ("limit", "<i4", 44),  # stop when `generated` reaches it
    ("last_token", "<i4", 48),
    ("pages", "(2,)<i4", 52),  # in page groups 0 and 1
    ("state_row", "<i4", 60),
    ("spare_row", "<i4", 64),
    ("temperature", "<f4", 68),
    ("top_k", "<f4", 72),  # as SAMPLE has it
    ("top_p", "<f4", 76),
    ("min_p", "<f4", 80),
    ("seed", "<u8", 84),
    ("choice", "<u4", 92),
    ("repetition", "<f4", 96),
    ("presence", "<f4", 100),
    ("frequency", "<f4", 104),
    ("penalty_row", "<i4", 108),  # -1 none
    ("bias_row", "<i4", 112),  # -1 none
    ("bias_count", "<i4", 116),
    ("logprobs", "<i4", 120),  # how many alternatives are asked for, -1 none
    ("stop_count", "<i4", 124),
    ("stop_ids", f"({STOP_IDS},)<i4", 128),
    ("cached", "<i4", 160),  # tokens of the prompt that were in the prefix cache, for audits
    ("bound_at", "<u4", 164),  # step, for audits
    ("speculative", "<i4", 168),
    ("min_tokens", "<i4", 172),
    ("flags", "<u4", 176),  # SlotFlag
    ("check", "<u4", 252),
)

RECORD = np.dtype(
    {
        "names": [name for name, _, _ in _FIELDS],
        "formats": [dtype for _, dtype, _ in _FIELDS],
        "offsets": [offset for _, _, offset in _FIELDS],
        "itemsize": BYTES,
    }
)


class SlotState(IntEnum):
    FREE = 0
    PREFILL = 1
    DECODE = 2


class SlotFlag(IntFlag):
    """The requirements of a row of the slot's logits, and BACKPRESSURE: the slot's reader is slow, so that the
    device neither counts nor delivers its tokens. Kernels read PENALTIES, BIAS and BACKPRESSURE; the host reads
    the others.
    """

    GREEDY = 1
    PENALTIES = 2  # penalty_row counts, in LOGITS_ADJUST and SAMPLE_SLOTS
    BIAS = 4  # bias_row counts
    MASK = 8
    LOGPROBS = 16
    IGNORE_END = 32
    BACKPRESSURE = 64  # in SAMPLE_SLOTS and STREAM_OUT


def find_column(name: str) -> int:
    """Return the dword of a record at which a field begins."""
    offset: int = RECORD.fields[name][1]  # type: ignore[index]
    return offset // 4


def free_records(slots: int) -> np.ndarray:
    """Return RECORD [slots] of unbound slots: all filters off, no rows, sealed."""
    records = np.zeros(slots, RECORD)
    for name in ("penalty_row", "bias_row", "logprobs"):
        records[name] = -1
    records["top_p"] = records["repetition"] = 1.0
    seal_records(records)
    return records


def view_dwords(records: np.ndarray) -> np.ndarray:
    """Return RECORD [slots], contiguous, as i32 [slots, 64]: a view of the same bytes."""
    return records.view(np.int32).reshape(-1, COLUMNS)


def view_records(words: np.ndarray) -> np.ndarray:
    """Return i32 [slots, 64] as RECORD [slots]: a view of the same bytes if they are contiguous, else a copy."""
    return np.ascontiguousarray(words).view(RECORD)[:, 0]


def check_words(records: np.ndarray) -> np.ndarray:
    """Compute `check`, u32 [slots]: the exclusive or of all other dwords."""
    return np.bitwise_xor.reduce(view_dwords(records)[:, :-1].view(np.uint32), axis=1)


def seal_records(records: np.ndarray) -> None:
    """Set `check` of every record. This must be the last change before a record is sent to the device."""
    words = view_dwords(records).view(np.uint32)
    np.bitwise_xor.reduce(words[:, :-1], axis=1, out=words[:, -1])
