"""The weight types that the C kernels read: types.h has the table."""

from __future__ import annotations

import re
from functools import cache

from gguf import GGMLQuantizationType

from zinc_rt.kernels.native.build import HEADERS

_ROW = re.compile(r"X\((\w+), \d+, \d+, \d+\)")
_Q8_ROW = re.compile(r"X\((\w+), (32|256), \d+\)")


@cache
def dtypes() -> frozenset[str]:
    """Their names, lower case, as types.h has a row for each."""
    return frozenset(_ROW.findall(_table()))


@cache
def q8_blocks() -> dict[str, int]:
    """By the weight's type, elements of an activation block in canonical-1-q8. Others are canonical-1's there."""
    return {name: int(elements) for name, elements in _Q8_ROW.findall(_table())}


def _table() -> str:
    return (HEADERS / "types.h").read_text(encoding="ascii")


def type_number(dtype: str) -> int:
    """ggml's, for a kernel's `type`."""
    return int(GGMLQuantizationType[dtype.upper()])


def type_refusal(dtype: str) -> str | None:
    """Why no kernel here reads a weight, or None where one does."""
    return None if dtype in dtypes() else f"no native kernel reads {dtype} weights"
