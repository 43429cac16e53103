"""mamba: Mamba-1, and FalconMamba with its extra norms. No attention, no feed-forward.

Facts: llama.cpp src/models/mamba.cpp and mamba-base.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.ir.op import Op
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.recurrent import CONV, SCAN, add_recurrent


def emit(m: ModelBuilder) -> None:
    shape = read_shape(m)
    norms: Norms | None = _plain_norm if m.hyper.read_boolean("ssm.dt_b_c_rms", False) else None
    x = m.embed()
    for layer in range(m.layers):
        h = m.norm(x, f"blk.{layer}.attn_norm.weight", f"attn_norm-{layer}")
        x = m.add(mixer(m, h, layer, shape, norms), x, f"l_out-{layer}")
    m.head(x)


@dataclass(frozen=True, slots=True)
class MambaShape:
    """Sizes of a mixer: convolution taps, inner width, state per channel, rank of the time step."""

    kernel: int
    inner: int
    state: int
    rank: int


Norms = Callable[[ModelBuilder, str, str, int], str]
"""Norm a part of ssm_x's output: (builder, value, its name "dt", "b" or "c", layer) -> value."""


def read_shape(m: ModelBuilder) -> MambaShape:
    return MambaShape(
        kernel=m.hyper.read_positive("ssm.conv_kernel"),
        inner=m.hyper.read_positive("ssm.inner_size"),
        state=m.hyper.read_positive("ssm.state_size"),
        rank=m.hyper.read_positive("ssm.time_step_rank"),
    )


def mixer(m: ModelBuilder, h: str, layer: int, shape: MambaShape, norms: Norms | None) -> str:
    """Emit one Mamba-1 mixer. Return its output projection."""
    at, inner, n, rank = f"blk.{layer}", shape.inner, shape.state, shape.rank
    u = _add_partial_projection(m, h, f"{at}.ssm_in", 0, inner, "u", layer)
    z = _add_partial_projection(m, h, f"{at}.ssm_in", inner, inner, "z", layer)
    conv_w = m.weight(f"{at}.ssm_conv1d.weight", (inner, shape.kernel))
    conv_b = m.weight(f"{at}.ssm_conv1d.bias", (inner,), optional=True)
    label, state = f"conv_output_silu-{layer}", (shape.kernel - 1, inner)
    u = add_recurrent(m, CONV, (u, conv_w), "ssm_conv", state, (conv_b,), (inner,), label, layer=layer, silu=True)
    dt = _add_partial_projection(m, u, f"{at}.ssm_x", 0, rank, "dt", layer)
    b = _add_partial_projection(m, u, f"{at}.ssm_x", rank, n, "b", layer)
    c = _add_partial_projection(m, u, f"{at}.ssm_x", rank + n, n, "c", layer)
    if norms is not None:
        dt, b, c = (norms(m, value, name, layer) for value, name in ((dt, "dt"), (b, "b"), (c, "c")))
    dt = m.linear(dt, f"{at}.ssm_dt", inner, f"dt_proj-{layer}")
    a = m.weight(f"{at}.ssm_a", (inner, n))
    d = m.weight(f"{at}.ssm_d", (inner,))
    label, state = f"ssm_scan-{layer}", (inner, n)
    y = add_recurrent(m, SCAN, (u, dt, b, c, a, d), "ssm_scan", state, (), (inner,), label, layer=layer)
    y = m.value(Op.SWIGLU, (z, y), (inner,), f"ssm_gated-{layer}")
    return m.linear(y, f"{at}.ssm_out", m.width, f"mamba_out-{layer}")


def _plain_norm(m: ModelBuilder, x: str, name: str, layer: int) -> str:
    return m.norm(x, None, f"{name}_normed-{layer}")


def _add_partial_projection(
    m: ModelBuilder, x: str, name: str, start: int, size: int, part: str, layer: int
) -> str:
    """Add a projection by a range of rows of a merged projection."""
    return m.linear(x, name, size, f"{part}-{layer}", take=(slice(start, start + size),), part=f"{name}_{part}")
