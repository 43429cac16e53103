"""The weight types that the C kernels read: types.h has the table."""

from __future__ import annotations

import re
from functools import cache

from gguf import GGMLQuantizationType

from zinc_rt.kernels.native.build import HEADERS

_ROW = re.compile(r"X\((\w+), \d+, \d+, \d+\)")
_Q8_ROW = re.compile(r"X\((\w+), (32|256), \d+\)")


@cache
def list_dtypes() -> frozenset[str]:
    """Return the names of types with a row in types.h, lower case."""
    return frozenset(_ROW.findall(_read_table()))


@cache
def read_q8_blocks() -> dict[str, int]:
    """Return the elements of an activation block in canonical-1-q8, by weight type. Other types use
    canonical-1.
    """
    return {name: int(elements) for name, elements in _Q8_ROW.findall(_read_table())}


def _read_table() -> str:
    return (HEADERS / "types.h").read_text(encoding="ascii")


def find_type_number(dtype: str) -> int:
    """Return ggml's number, for a kernel's `type`."""
    return int(GGMLQuantizationType[dtype.upper()])


def check_type(dtype: str) -> str | None:
    """Return why no kernel of this set can read a weight, or None if one can."""
    return None if dtype in list_dtypes() else f"no native kernel supports {dtype} weights"
