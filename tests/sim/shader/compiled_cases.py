"""Inputs of the kernels in c_kernels/ and, computed without them, what they must give."""

from __future__ import annotations

from collections.abc import Callable

import compiled_float_cases
import compiled_integer_cases
import compiled_memory_cases
from compiled_job import Job, Random

CASES: dict[str, Callable[[Random], Job]] = {
    **compiled_integer_cases.CASES,
    **compiled_float_cases.CASES,
    **compiled_memory_cases.CASES,
}
