"""Dequantise weights to float32 with ggml's formulas, bit for bit; the same in every ordering."""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize as gguf_dequantize

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.reference.arithmetic.blocks import UNPACK, unpack
from zinc_rt.kernels.weight import Weight


def dequantise(weight: Weight) -> np.ndarray:
    """Return float32 of `weight.shape`; a new array, or for f32 the weight's own read-only view."""
    raw = weight.raw
    match weight.dtype:
        case "f32":
            return raw
        case "f16":
            return raw.astype(np.float32)
        case "bf16":
            return (raw.astype(np.uint32) << 16).view(np.float32)
    try:
        with np.errstate(all="ignore"):  # invalid scales in a file overflow silently, as in C
            if weight.dtype in UNPACK:
                return unpack(weight.dtype, raw).dequantise()
            values = gguf_dequantize(raw, GGMLQuantizationType[weight.dtype.upper()])
    except (KeyError, NotImplementedError) as error:
        raise UnsupportedError(
            f"no reference dequantisation for ggml type {weight.dtype}",
            next="use a model in one of the types gguf dequantises, such as q8_0, q4_k or f16",
        ) from error
    return values.reshape(weight.shape)
