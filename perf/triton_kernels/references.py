"""What the kernels of corpus.py compute, in NumPy with double precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CorpusOutput:
    """The expected start of an output; the rest of it stays 0. `tolerance`: absolute, and relative."""

    values: np.ndarray
    tolerance: float = 0.0

    def wrong_elements(self, output: np.ndarray) -> int:
        """Return the number of elements that differ by more than the tolerance."""
        expected = np.zeros(output.size)
        expected[: self.values.size] = self.values.ravel()
        actual = output.ravel().astype(np.float64)
        return int((~np.isclose(actual, expected, rtol=self.tolerance, atol=self.tolerance)).sum())


def references(name: str, args: Arguments) -> dict[str, CorpusOutput]:
    """Return the outputs of a kernel of corpus.py. `args`: arrays and numbers by name, as before the launch."""
    parts = name.split("_")
    return next(compute for kind, compute in _KERNELS.items() if name.startswith(kind))(args, parts)


def philox(counter: np.ndarray, seed: int) -> np.ndarray:
    """Return Philox4x32-10 of 64-bit keys with the counters (n, 0, 0, 0): [4, counters] uint32 (Salmon et al.,
    "Parallel random numbers: as easy as 1, 2, 3")."""
    words = [counter.astype(np.uint64), *(np.zeros(counter.size, np.uint64) for _ in range(3))]
    low, high = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        first, second = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            second >> np.uint64(32) ^ words[1] ^ np.uint64(low), second & np.uint64(0xFFFFFFFF),
            first >> np.uint64(32) ^ words[3] ^ np.uint64(high), first & np.uint64(0xFFFFFFFF),
        ]  # fmt: skip
        low, high = low + 0x9E3779B9 & 0xFFFFFFFF, high + 0xBB67AE85 & 0xFFFFFFFF
    return np.array(words).astype(np.uint32)


def _add(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    return {"out": CorpusOutput((args["x"] + args["y"])[: args["n"]])}


def _element_wise(function: Callable[[np.ndarray], np.ndarray]) -> Callable[..., dict[str, CorpusOutput]]:
    def compute(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
        return {"out": CorpusOutput(function(args["x"][: args["n"]].astype(np.float64)), 2e-6)}

    return compute


def _philox(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    words = philox(np.arange(int(args["n"])), int(args["seed"]))[:2].view(np.int32)
    first, second = np.where(words < 0, ~words, words) * 4.6566127342e-10
    normal = np.sqrt(-2 * np.log(np.maximum(first, 1e-7))) * np.cos(2 * np.pi * second)
    return {"out": CorpusOutput(normal, 2e-5)}


def _rope(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    query = args["q"].astype(np.float64).reshape(-1, 2, args["cosines"].size)
    one, other, cosines, sines = query[:, 0], query[:, 1], args["cosines"], args["sines"]
    turned = np.concatenate([one * cosines - other * sines, other * cosines + one * sines], axis=1)
    return {"out": CorpusOutput(turned, 2e-3)}


def _transpose(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    return {"out": CorpusOutput(args["x"].reshape(args["n"], args["m"]).T)}


def _gather(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    indices = np.where(np.arange(args["indices"].size) < args["n"], args["indices"], 0)
    return {"out": CorpusOutput(args["table"].reshape(-1, 64)[indices][: args["n"]])}


def _f64(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    x, y = (args[name][: args["n"]] for name in "xy")
    return {"out": CorpusOutput(np.sqrt((args["a"] * x / (1 + y)) ** 2 + 1), 1e-12)}


def _row(args: Arguments) -> tuple[np.ndarray, bool]:
    return args["x"][: args["width"]].astype(np.float64), args["x"].dtype == np.float16


def _softmax(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    row, is_half = _row(args)
    weights = np.exp(row - row.max())
    return {"out": CorpusOutput(weights / weights.sum(), 1e-3 if is_half else 4e-6)}


def _layer_norm(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    row, is_half = _row(args)
    centred = row - row.mean()
    normal = centred / np.sqrt((centred**2).mean() + args["epsilon"])
    result = normal * args["weight"][: row.size] + args["bias"][: row.size]
    return {"out": CorpusOutput(result, 4e-3 if is_half else 1e-5)}


def _scan(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    return {"out": CorpusOutput(np.cumsum(args["x"].astype(np.float64)), 1e-4)}


def _sort(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    return {"out": CorpusOutput(np.sort(args["x"][:256]))}


def _argmax(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    return {"out": CorpusOutput(np.array(np.argmax(_row(args)[0])))}


def _histogram(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    return {"out": CorpusOutput(np.bincount(args["x"] & 63, minlength=64))}


def _atomics(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    values, result = args["x"][: args["n"]], np.zeros(32)
    np.add.at(result, values & 15, 1)
    np.maximum.at(result, 16 + (values & 15), values)
    return {"out": CorpusOutput(result)}


def _cas_lock(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    return {"total": CorpusOutput(args["x"].astype(np.float64).sum(), 1e-4), "lock": CorpusOutput(np.zeros(1))}


def _matvec_q4(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    x = args["x"].astype(np.float64)
    packed = args["weights"].reshape(-1, x.size // 2)
    scales = np.repeat(args["scales"].astype(np.float64).reshape(len(packed), -1), 16, axis=1)
    low, high = ((half.astype(np.float64) - 8) * scales for half in (packed & 15, packed >> 4))
    return {"out": CorpusOutput(low @ x[0::2] + high @ x[1::2], 1e-3)}


def _matmul(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    left = args["a"].astype(np.float64).reshape(-1, args["k"])
    right = args["b"].astype(np.float64).reshape(args["k"], -1)
    return {"c": CorpusOutput(left @ right, {"i32": 0, "f32": 2e-4, "f16": 6e-2}[parts[2]])}


def _attention(args: Arguments, parts: list[str]) -> dict[str, CorpusOutput]:
    width, length = int(parts[1].split("x")[2]), int(args["length"])
    query, key, value = (args[name].astype(np.float64).reshape(-1, width)[:length] for name in "qkv")
    scores = query @ key.T * args["scale"]
    scores[np.triu_indices(length, 1)] = -np.inf
    weights = np.exp2(scores - scores.max(axis=1, keepdims=True))
    return {"out": CorpusOutput(weights / weights.sum(axis=1, keepdims=True) @ value, 4e-3)}


_KERNELS: dict[str, Callable[[Arguments, list[str]], dict[str, CorpusOutput]]] = {
    "add_": _add,
    "erf_": _element_wise(np.vectorize(math.erf)),
    "sin_": _element_wise(lambda x: np.sin(x) + np.cos(x)),
    "gelu_": _element_wise(lambda x: 0.5 * x * (1 + np.tanh(0.79788456 * (x + 0.044715 * x**3)))),
    "exp_": _element_wise(lambda x: np.exp(x) + np.log(x * x + 1) + np.abs(x)),
    "philox_": _philox,
    "rope_": _rope,
    "transpose_": _transpose,
    "gather_": _gather,
    "f64_": _f64,
    "softmax_": _softmax,
    "layer_norm_": _layer_norm,
    "scan_": _scan,
    "sort_": _sort,
    "argmax_": _argmax,
    "histogram_": _histogram,
    "atomics_": _atomics,
    "cas_lock_": _cas_lock,
    "matvec_q4_": _matvec_q4,
    "matmul_": _matmul,
    "attention_": _attention,
}
