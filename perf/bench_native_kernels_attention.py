"""Attention of t_cpu_native by itself, at Qwen3-0.6B's heads unless told otherwise.

    pytest perf/bench_native_kernels_attention.py -n 0 --benchmark-enable
    python -m zinc_rt.perf.bench_native_kernels_attention --help       GB/s of keys and values, GMAC/s

Caches of several layers are walked one after another, more than the last-level cache holds, so that one token
reads keys and values from memory. With one thread the process's own time counts, which others on the machine
disturb less than the clock.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from zinc_rt.backends import registry
from zinc_rt.backends.cpu.library import Library, load
from zinc_rt.backends.cpu.native import NativeBackend
from zinc_rt.backends.cpu.threads import default_threads
from zinc_rt.exec import Buffer, Stream
from zinc_rt.ir.graph import SYMBOLS, Builder
from zinc_rt.ir.op import Op
from zinc_rt.kernels.launch import COUNTS
from zinc_rt.kernels.native import build
from zinc_rt.lower import LoweredGraph
from zinc_rt.lower.lower import choose
from zinc_rt.lower.lowered_graph import Barrier, Call
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.mem.plan import Allocation, BufferPlacement, MemoryPlan

HEADS, KV_HEADS, HEAD_DIM = 16, 8, 128
PAGE_TOKENS = 16
CACHES_BYTES = 256 << 20


class AttentionBench:
    """`layers` nodes of FLASH_ATTN over caches of their own: `tokens` that end at `context`."""

    def __init__(
        self,
        backend: NativeBackend,
        tokens: int,
        context: int,
        *,
        heads: int = HEADS,
        kv_heads: int = KV_HEADS,
        head_dim: int = HEAD_DIM,
    ) -> None:
        self.backend = backend
        columns = kv_heads * head_dim
        self.cache_bytes = 2 * 4 * context * columns
        self.layers = max(1, CACHES_BYTES // self.cache_bytes)
        seen = sum(range(context - tokens + 1, context + 1))
        self.macs = self.layers * seen * heads * head_dim * 2
        pages = -(-context // PAGE_TOKENS)
        random = np.random.default_rng(1)
        cache = (random.normal(size=(pages * PAGE_TOKENS, columns))).astype(np.float32)
        arrays: dict[str, np.ndarray] = {
            "q": random.normal(size=(tokens, heads * head_dim)).astype(np.float32),
            "position": np.arange(context - tokens, context, dtype=np.int32),
            "slot": np.zeros(tokens, np.int32),
            "page_table": np.arange(pages, dtype=np.int32)[None],
            COUNTS: np.array([tokens if symbol == "tokens" else 1 for symbol in SYMBOLS], np.int32),
        }
        builder = Builder("attention")
        q = builder.buffer("q", ("tokens", heads * head_dim), "f32", "activation")
        position, slot = (builder.buffer(name, ("tokens",), "i32", "activation") for name in ("position", "slot"))
        table = builder.buffer("page_table", (1, pages), "i32", "activation")
        builder.buffer(COUNTS, (len(SYMBOLS),), "i32", "step")
        for layer in range(self.layers):
            k, v = (builder.buffer(f"{name}{layer}", cache.shape, "f32", "activation") for name in "kv")
            out = builder.buffer(f"out{layer}", ("tokens", heads * head_dim), "f32", "activation")
            arrays |= {k: cache.copy(), v: cache.copy(), out: np.zeros_like(arrays["q"])}
            builder.node(
                Op.FLASH_ATTN,
                (q, k, v, position, slot, table),
                (out,),
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                value_dim=head_dim,
                scale=head_dim**-0.5,
                page_tokens=PAGE_TOKENS,
            )
        graph = builder.build()
        steps: list[Call | Barrier] = []
        for node in graph.nodes:
            entry = choose(node, graph, backend.kernels.entries, backend.ordering)
            assert not isinstance(entry, str), entry
            steps += [Call(node, entry), Barrier(node.outputs)]
        room = dict.fromkeys(SYMBOLS, 1) | {"tokens": tokens}
        plan = MemoryPlan(
            "attention",
            room,
            1,
            False,
            {name: Allocation(BufferHeap.HOST_VISIBLE, a.nbytes, a.nbytes) for name, a in arrays.items()},
            {name: BufferPlacement(name, 0, a.nbytes) for name, a in arrays.items()},
            0,
        )
        buffers = {
            name: Buffer(name, a.nbytes, "host", storage=a.reshape(-1).view(np.uint8))
            for name, a in arrays.items()
        }
        self.executable = backend.build(LoweredGraph(graph, plan, backend.ordering, tuple(steps)), buffers)
        self.stream = Stream("bench")

    def run(self) -> None:
        self.backend.wait(self.backend.submit(self.executable, self.stream), 600)


def backend(threads: int, level: str = "native") -> NativeBackend:
    code = Library(load(build.compile_library(build.compiler(), level)), level, "")
    return NativeBackend(registry.spec("t_cpu_native"), "canonical-1", code, threads=threads)


@pytest.mark.parametrize(("tokens", "context"), [(1, 64), (1, 4096), (128, 128), (64, 2048)])
def test_attention(benchmark: Callable[..., Any], tokens: int, context: int) -> None:
    benchmark(AttentionBench(backend(default_threads()), tokens, context).run)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench_native_kernels_attention", description=__doc__)
    parser.add_argument("--steps", default="1:64,1:1024,1:4096,1:16384,4:4096,128:128,128:2048,512:512")
    parser.add_argument("--heads", default=f"{HEADS}:{KV_HEADS}:{HEAD_DIM}", help="heads:kv heads:head dim")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--level", default="native", help="what -mcpu names (default %(default)s)")
    given = parser.parse_args()
    heads, kv_heads, head_dim = map(int, given.heads.split(":"))
    on = backend(given.threads, given.level)
    for step in given.steps.split(","):
        tokens, context = map(int, step.split(":"))
        bench = AttentionBench(on, tokens, context, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
        clock = time.process_time if given.threads == 1 else time.perf_counter
        best = float("inf")
        for _ in range(given.passes + 1):
            began = clock()
            bench.run()
            best = min(best, clock() - began)
        read = bench.cache_bytes * bench.layers / best / 1e9 if tokens == 1 else 0
        print(
            f"{tokens:4} tokens at {context:6}: {best / bench.layers * 1e6:10.1f} us a layer "
            f"{bench.macs / best / 1e9:7.1f} GMAC/s" + (f" {read:6.1f} GB/s" if read else ""),
            flush=True,
        )
        on.unload(bench.executable)
    on.close()


if __name__ == "__main__":
    main()
