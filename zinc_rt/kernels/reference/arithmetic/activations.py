"""canonical-1's activation functions, each a fixed sequence of float32 operations over exp and log."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic.exp_log import ONE, exp, log

TWO = np.float32(2)
SQRT_2_OVER_PI = np.float32(float.fromhex("0x1.988454p-1"))  # ggml's SQRT_2_OVER_PI
GELU_CUBIC = np.float32(float.fromhex("0x1.6e4e26p-5"))  # 0.044715, ggml's GELU_COEF_A
SOFTPLUS_LINEAR = np.float32(20)  # ggml's softplus returns x above it


@np.errstate(all="ignore")
def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(ONE / (ONE + exp(-x)))


@np.errstate(all="ignore")
def silu(x: np.ndarray) -> np.ndarray:
    return np.asarray(x * sigmoid(x))


@np.errstate(all="ignore")
def tanh(x: np.ndarray) -> np.ndarray:
    return np.asarray(TWO * sigmoid(TWO * x) - ONE)


@np.errstate(all="ignore")
def gelu(x: np.ndarray) -> np.ndarray:
    """Compute x * sigmoid(2u), u = (sqrt(2/pi) * x) * (1 + 0.044715 * (x * x))."""
    u = (SQRT_2_OVER_PI * x) * (ONE + GELU_CUBIC * (x * x))
    return np.asarray(x * sigmoid(TWO * u))


@np.errstate(all="ignore")
def softplus(x: np.ndarray) -> np.ndarray:
    return np.where(x > SOFTPLUS_LINEAR, x, log(ONE + exp(x)))


@np.errstate(all="ignore")
def rsqrt(x: np.ndarray) -> np.ndarray:
    return np.asarray(ONE / np.sqrt(x))
