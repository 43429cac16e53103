"""Capture values of llama.cpp's graph with its eval callback."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Container, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from gguf.constants import GGMLQuantizationType

from zinc_rt.host.errors import UnsupportedError

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
    """Observes every node before and after it is computed, and replaces the values of NODES."""

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
        """Read the operands. This must happen before the node, which may overwrite its first operand."""
        if self._is_gelu(tensor):
            self._operands = [self.read(source) for source in GeluOperands.from_address(tensor).src if source]

    def after(self, tensor: int) -> None:
        if not self._is_gelu(tensor):
            return
        table = self.read(tensor)
        exact = self._compute_value(tensor, table.shape)
        if not np.allclose(table, exact, rtol=TABLE_ERROR, atol=TABLE_ERROR * np.abs(exact).max()):
            raise UnsupportedError(
                "this llama.cpp version computes GELU, or lays out its tensors, in an unknown way"
            )
        self.lib.ggml_backend_tensor_set(tensor, exact.ctypes.data, 0, exact.nbytes)
        self.replaced += 1

    def _is_gelu(self, tensor: int) -> bool:
        return self.lib.ggml_op_desc(tensor).decode() in NODES

    def _compute_value(self, tensor: int, shape: tuple[int, ...]) -> np.ndarray:
        gate, *rest = self._operands
        if rest:
            return np.ascontiguousarray(compute_gelu(gate) * rest[0])
        if gate.shape == shape:
            return compute_gelu(gate)
        halves = np.split(gate, 2, axis=-1)
        if GeluOperands.from_address(tensor).op_params[1]:  # swapped
            halves.reverse()
        return np.ascontiguousarray(compute_gelu(halves[0]) * halves[1])


def compute_gelu(x: np.ndarray) -> np.ndarray:
    """Compute the tanh form of GELU, f32, accurate to its rounding."""
    wide = x.astype(np.float64)
    inner = np.sqrt(2 / np.pi) * wide * (1 + 0.044715 * wide * wide)
    return (0.5 * wide * (1 + np.tanh(inner))).astype(np.float32)


CAPTURED = re.compile(r"l_out-\d+|result_norm|ffn_moe_topk-\d+")


class _Tensor(ctypes.Structure):
    """The front of struct ggml_tensor (ggml/include/ggml.h); the rest is read through functions."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
    )


DTYPES = {GGMLQuantizationType.F32: np.dtype(np.float32), GGMLQuantizationType.I32: np.dtype(np.int32)}


def view_tensor(raw: np.ndarray, kind: int, ne: Sequence[int], nb: Sequence[int]) -> np.ndarray:
    """Return the elements of a ggml tensor, (tokens, width) or more dimensions, from its bytes, u8. `kind`, `ne`,
    `nb`: the fields type, ne and nb of struct ggml_tensor.
    """
    dtype = DTYPES[GGMLQuantizationType(kind)]
    strided = np.lib.stride_tricks.as_strided(raw.view(dtype), shape=tuple(ne)[::-1], strides=tuple(nb)[::-1])
    return strided.squeeze(tuple(axis for axis in (0, 1) if strided.shape[axis] == 1))


class GraphCapture:
    """Copies the graph nodes whose names match CAPTURED, or are in `labels`, while `on`; `seen` contains
    every name."""

    def __init__(self, llama: ModuleType, labels: Container[str], *, exact_gelu: bool) -> None:
        from llama_cpp._ggml import libggml

        self.arrays: dict[str, np.ndarray] = {}
        self.labels = labels
        self.seen: dict[str, list[tuple[str, np.ndarray]]] = {}
        self.on = True
        self.error: Exception | None = None
        self.lib = libggml
        self.lib.ggml_get_name.argtypes = [ctypes.c_void_p]
        self.lib.ggml_get_name.restype = ctypes.c_char_p
        self.lib.ggml_op_desc.argtypes = [ctypes.c_void_p]
        self.lib.ggml_op_desc.restype = ctypes.c_char_p
        self.lib.ggml_nbytes.argtypes = [ctypes.c_void_p]
        self.lib.ggml_nbytes.restype = ctypes.c_size_t
        size_t = ctypes.c_size_t
        self.lib.ggml_backend_tensor_get.argtypes = [ctypes.c_void_p, ctypes.c_void_p, size_t, size_t]
        self.lib.ggml_backend_tensor_get.restype = None
        self.gelu = ExactGelu(self.lib, self._read) if exact_gelu else None
        self.callback = llama.ggml_backend_sched_eval_callback(self._on_tensor)  # must outlive the context

    def _on_tensor(self, tensor: int, ask: bool, _user_data: object) -> bool:
        """Handle llama.cpp's callback: it asks whether to capture a node, and calls again with the result."""
        try:
            name = self.lib.ggml_get_name(tensor).decode()
            is_captured = self.on and (name in self.labels or CAPTURED.fullmatch(name) is not None)
            if self.gelu is not None:
                (self.gelu.before if ask else self.gelu.after)(tensor)
            if self.on and ask:
                self.seen.setdefault(name, [])
            if is_captured and not ask:
                self.arrays[name] = self._read(tensor)
                self.seen[name].append((self.lib.ggml_op_desc(tensor).decode(), self.arrays[name]))
        except Exception as error:  # must not cross the C frames above; raised again by check()
            self.error = error
            return False
        return is_captured or self.gelu is not None if ask else True

    def _read(self, address: int) -> np.ndarray:
        tensor = _Tensor.from_address(address)
        raw = np.empty(self.lib.ggml_nbytes(address), np.uint8)
        self.lib.ggml_backend_tensor_get(address, raw.ctypes.data, 0, raw.nbytes)
        return view_tensor(raw, tensor.type, tuple(tensor.ne), tuple(tensor.nb)).copy()

    def check(self) -> None:
        if self.error is not None:
            raise self.error
        if self.gelu is not None and not self.gelu.replaced:
            raise UnsupportedError("llama.cpp's graph has no GELU node; its operations have changed")
