"""Latent attention on t_cpu_native: the oracle's bits."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.native.harness import check_op
from kernels.native.unkind import edge_values
from kernels.op_cases import make_pages, make_weight, random_floats

from zinc_rt.ir.op import Op


@pytest.mark.parametrize("dtype", ["f32", "f16", "q8_0"])
def test_absorbed_queries_match(dtype: str) -> None:
    check_op(
        Op.MLA_ABSORB,
        random_floats(1, 3, 2 * 37),
        make_weight(random_floats(2, 2, 19, 32), dtype),
        heads=2,
        nope=32,
        rope=5,
        latent=19,
        capacity={"tokens": 5},
    )


def test_expanded_keys_and_values_match() -> None:
    check_op(
        Op.MLA_EXPAND,
        edge_values(1, 3, 3 * 24),
        edge_values(2, 3, 5),
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
def test_latent_attention_matches(heads: int, latent: int, rope: int, dtype: str) -> None:
    page_table, rows = make_pages(1, [300, 20], page_tokens=16, pages=30)
    latents, pe = random_floats(2, rows, latent), random_floats(3, rows, rope)
    check_op(
        Op.MLA_FLASH_ATTN,
        random_floats(1, 4, heads * (latent + rope)),
        *(latents, pe),
        *(np.array(column, np.int32) for column in ([298, 299, 19, 0], [0, 0, 1, 0])),
        page_table,
        make_weight(random_floats(4, heads, 11, latent), dtype),
        heads=heads,
        latent=latent,
        rope=rope,
        value_dim=11,
        scale=0.2,
        capacity={"tokens": 6},
    )
