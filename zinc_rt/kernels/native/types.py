"""The weight types that the C kernels read, as they call them: types.h has the same table."""

from __future__ import annotations

from gguf import GGMLQuantizationType

PLAIN = ("f32", "f16", "bf16")
SMALL = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4", "nvfp4")  # blocks of 32 or 64 elements
LARGE = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs", "tq1_0", "tq2_0")  # of 256
GRIDS = ("iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s", "iq1_m")
DTYPES = frozenset((*PLAIN, *SMALL, *LARGE, *GRIDS))


def type_number(dtype: str) -> int:
    """ggml's, for a kernel's `type`."""
    return int(GGMLQuantizationType[dtype.upper()])


def type_refusal(dtype: str) -> str | None:
    """Why no kernel here reads a weight, or None where one does."""
    return None if dtype in DTYPES else f"no native kernel reads {dtype} weights"
