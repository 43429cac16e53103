"""What the oracle's arithmetic costs: projections at Qwen3-0.6B's shapes, and a whole-model estimate from them.

    pytest perf/bench_arithmetic.py -n 0 --benchmark-enable       one layer's projections, attention, per ordering
    python perf/bench_arithmetic.py [threads]                     seconds a token and a prefill, per ordering

The weights are random Q8_0 bytes, one layer and the output matrix; nothing else of a model runs (norms, rope and
sampling are left out), so the estimate is a floor.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from zinc_rt.kernels.reference.arithmetic import ORDERINGS, Arithmetic, arithmetic
from zinc_rt.kernels.weight import Weight

LAYERS = 28
HEADS, KV_HEADS, HEAD_DIM = 16, 8, 128
VOCABULARY, WIDTH, FFN = 151_936, 1024, 3072
LAYER = (  # (out, in): q, k, v, o, gate, up, down
    (2048, WIDTH),
    (1024, WIDTH),
    (1024, WIDTH),
    (WIDTH, 2048),
    (FFN, WIDTH),
    (FFN, WIDTH),
    (WIDTH, FFN),
)
LAYER_WEIGHTS = sum(rows * k for rows, k in LAYER)


def q8_0(rows: int, k: int) -> Weight:
    blocks = np.random.default_rng(rows + k).integers(0, 256, (rows, k // 32, 34), dtype=np.uint8)
    blocks[..., :2] = np.array([0.002], np.float16).view(np.uint8)
    return Weight("q8_0", (rows, k), blocks.reshape(rows, -1))


def activations(tokens: int, k: int) -> np.ndarray:
    return np.random.default_rng(k).normal(size=(tokens, k)).astype(np.float32)


def one_layer(math: Arithmetic, tokens: int) -> Callable[[], None]:
    weights = [q8_0(*shape) for shape in LAYER]
    x = {k: activations(tokens, k) for k in (WIDTH, 2048, FFN)}

    def run() -> None:
        for weight in weights:
            math.linear(x[weight.shape[1]], weight)

    return run


def attention(math: Arithmetic, tokens: int, keys: int) -> Callable[[], None]:
    q = activations(tokens, HEADS * HEAD_DIM).reshape(tokens, HEADS, HEAD_DIM)
    kv = activations(keys, KV_HEADS * HEAD_DIM).reshape(keys, KV_HEADS, HEAD_DIM)
    mask = np.arange(keys) <= keys - tokens + np.arange(tokens)[:, None]

    def run() -> None:
        math.attention(q, kv, kv, mask, HEAD_DIM**-0.5)

    return run


@pytest.mark.parametrize("tokens", [1, 128])
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_projections_of_a_layer(benchmark: Any, ordering: str, tokens: int) -> None:
    benchmark.extra_info["weights"] = LAYER_WEIGHTS
    benchmark(one_layer(arithmetic(ordering), tokens))


@pytest.mark.parametrize(("tokens", "keys"), [(1, 128), (1, 4096), (128, 128)])
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_attention_of_a_layer(benchmark: Any, ordering: str, tokens: int, keys: int) -> None:
    benchmark(attention(arithmetic(ordering), tokens, keys))


def median_seconds(run: Callable[[], None], repeats: int) -> float:
    run()  # warm-up
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def main(threads: int) -> None:
    print(f"0.6B Q8_0, {threads} thread(s), medians; decode against 128 keys, prefill of 128 tokens")
    output, last = q8_0(VOCABULARY, WIDTH), activations(1, WIDTH)
    for ordering in ORDERINGS:
        math = arithmetic(ordering, threads=threads)
        head = median_seconds(lambda math=math: math.linear(last, output), 3)  # type: ignore[misc]
        for name, tokens, repeats in (("decode", 1, 9), ("prefill", 128, 3)):
            layer = median_seconds(one_layer(math, tokens), repeats)
            attend = median_seconds(attention(math, tokens, 128), repeats)
            total = LAYERS * (layer + attend) + head
            rate = LAYER_WEIGHTS * tokens / layer / 1e9
            print(
                f"{ordering:16} {name:8} {total:7.2f} s   layer {layer * 1e3:7.1f} ms ({rate:6.2f} G mul-adds/s)"
                f"   attention {attend * 1e3:5.1f} ms   output {head * 1e3:5.0f} ms"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
