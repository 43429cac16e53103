"""mamba: Mamba-1, and FalconMamba with its extra norms. No attention, no feed-forward.

Facts: llama.cpp src/models/mamba.cpp and mamba-base.cpp.
"""

from __future__ import annotations

from zinc_rt.ir.op import Op
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.recurrent import CONV, SCAN, recurrent


def emit(e: ModelBuilder) -> None:
    kernel = e.hyper.positive("ssm.conv_kernel")
    inner = e.hyper.positive("ssm.inner_size")
    n = e.hyper.positive("ssm.state_size")
    rank = e.hyper.positive("ssm.time_step_rank")
    inner_norms = e.hyper.boolean("ssm.dt_b_c_rms", False)

    x = e.embed()
    for layer in range(e.layers):
        at = f"blk.{layer}"
        h = e.norm(x, f"{at}.attn_norm.weight", f"attn_norm-{layer}")
        u = _rows(e, h, f"{at}.ssm_in", 0, inner, "u", layer)
        z = _rows(e, h, f"{at}.ssm_in", inner, inner, "z", layer)
        conv_w = e.weight(f"{at}.ssm_conv1d.weight", (inner, kernel))
        conv_b = e.weight(f"{at}.ssm_conv1d.bias", (inner,), optional=True)
        conv_state = e.state("ssm_conv", layer, (e.limits.slots, kernel - 1, inner))
        u = recurrent(
            e, CONV, (u, conv_w), conv_state, (conv_b,), (inner,), f"conv_output_silu-{layer}", silu=True
        )
        dt = _rows(e, u, f"{at}.ssm_x", 0, rank, "dt", layer)
        b = _rows(e, u, f"{at}.ssm_x", rank, n, "b", layer)
        c = _rows(e, u, f"{at}.ssm_x", rank + n, n, "c", layer)
        if inner_norms:
            dt, b, c = (e.norm(v, None, f"{name}_normed-{layer}") for v, name in ((dt, "dt"), (b, "b"), (c, "c")))
        dt = e.linear(dt, f"{at}.ssm_dt", inner, f"dt_proj-{layer}")
        a = e.weight(f"{at}.ssm_a", (inner, n))
        d = e.weight(f"{at}.ssm_d", (inner,))
        state = e.state("ssm_scan", layer, (e.limits.slots, inner, n))
        y = recurrent(e, SCAN, (u, dt, b, c, a, d), state, (), (inner,), f"ssm_scan-{layer}")
        y = e.value(Op.SWIGLU, (z, y), (inner,), f"ssm_gated-{layer}")
        x = e.add(e.linear(y, f"{at}.ssm_out", e.width, f"mamba_out-{layer}"), x, f"l_out-{layer}")
    e.head(x)


def _rows(e: ModelBuilder, x: str, name: str, start: int, size: int, part: str, layer: int) -> str:
    """A run of rows of a merged projection, as a projection of its own."""
    return e.linear(x, name, size, f"{part}-{layer}", take=(slice(start, start + size),), part=f"{name}_{part}")
