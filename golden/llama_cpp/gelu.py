"""GELU in float32 inside llama.cpp's graph, which looks it up in a table of float16 values.

The table costs 1e-3 of a logit, more than everything else together, so goldens of models with GELU are made with
each such node computed again from its own operands, while the graph runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from zinc_rt.errors import UnsupportedError

NODES = ("GELU", "GEGLU")  # ggml_op_desc in ggml/src/ggml.c
TABLE_ERROR = 2e-3  # float16 of the argument and of the value, relative

Read = Callable[[int], np.ndarray]


class GeluOperands(ctypes.Structure):
    """The struct ggml_tensor of ggml/include/ggml.h up to its operands."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * 10),
    )


class ExactGelu:
    """Sees every node before and after it is computed; replaces the values of NODES."""

    def __init__(self, lib: Any, read: Read) -> None:
        self.lib = lib
        self.read = read
        self.replaced = 0
        self._operands: list[np.ndarray] = []
        lib.ggml_op_desc.argtypes = [ctypes.c_void_p]
        lib.ggml_op_desc.restype = ctypes.c_char_p
        lib.ggml_backend_tensor_set.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
        lib.ggml_backend_tensor_set.restype = None

    def before(self, tensor: int) -> None:
        """Operands are read now: the node may be computed in place of its first."""
        if self._is_gelu(tensor):
            self._operands = [self.read(source) for source in GeluOperands.from_address(tensor).src if source]

    def after(self, tensor: int) -> None:
        if not self._is_gelu(tensor):
            return
        table = self.read(tensor)
        exact = self._value(tensor, table.shape)
        if not np.allclose(table, exact, rtol=TABLE_ERROR, atol=TABLE_ERROR * np.abs(exact).max()):
            raise UnsupportedError(
                "this llama.cpp computes GELU, or lays out its tensors, in a way not known here"
            )
        self.lib.ggml_backend_tensor_set(tensor, exact.ctypes.data, 0, exact.nbytes)
        self.replaced += 1

    def _is_gelu(self, tensor: int) -> bool:
        return self.lib.ggml_op_desc(tensor).decode() in NODES

    def _value(self, tensor: int, shape: tuple[int, ...]) -> np.ndarray:
        gate, *rest = self._operands
        if rest:
            return np.ascontiguousarray(gelu(gate) * rest[0])
        if gate.shape == shape:
            return gelu(gate)
        halves = np.split(gate, 2, axis=-1)
        if GeluOperands.from_address(tensor).op_params[1]:  # swapped
            halves.reverse()
        return np.ascontiguousarray(gelu(halves[0]) * halves[1])


def gelu(x: np.ndarray) -> np.ndarray:
    """The tanh form, f32, accurate to its rounding."""
    wide = x.astype(np.float64)
    inner = np.sqrt(2 / np.pi) * wide * (1 + 0.044715 * wide * wide)
    return (0.5 * wide * (1 + np.tanh(inner))).astype(np.float32)
