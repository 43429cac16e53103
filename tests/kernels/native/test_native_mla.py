"""Latent attention on t_cpu_native: the oracle's bits."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.native.harness import check
from kernels.native.unkind import unkind
from kernels.op_cases import floats, paged, weight

from zinc_rt.ir.op import Op


@pytest.mark.parametrize("dtype", ["f32", "f16", "q8_0"])
def test_queries_absorb_keys(dtype: str) -> None:
    check(
        Op.MLA_ABSORB,
        floats(1, 3, 2 * 37),
        weight(floats(2, 2, 19, 32), dtype),
        heads=2,
        nope=32,
        rope=5,
        latent=19,
        capacity={"tokens": 5},
    )


def test_latents_become_keys_and_values() -> None:
    check(
        Op.MLA_EXPAND,
        unkind(1, 3, 3 * 24),
        unkind(2, 3, 5),
        heads=3,
        nope=7,
        rope=5,
        value_dim=17,
        capacity={"tokens": 5},
    )


@pytest.mark.parametrize(
    ("heads", "latent", "rope", "dtype"),
    [(2, 32, 16, "q8_0"), (18, 32, 9, "f16"), (3, 160, 1, "f32"), (1, 20, 12, "f32")],
)
def test_attention_in_latents(heads: int, latent: int, rope: int, dtype: str) -> None:
    page_table, rows = paged(1, [300, 20], page_tokens=16, pages=30)
    latents, pe = floats(2, rows, latent), floats(3, rows, rope)
    check(
        Op.MLA_FLASH_ATTN,
        floats(1, 4, heads * (latent + rope)),
        *(latents, pe),
        *(np.array(column, np.int32) for column in ([298, 299, 19, 0], [0, 0, 1, 0])),
        page_table,
        weight(floats(4, heads, 11, latent), dtype),
        heads=heads,
        latent=latent,
        rope=rope,
        value_dim=11,
        scale=0.2,
        capacity={"tokens": 6},
    )
