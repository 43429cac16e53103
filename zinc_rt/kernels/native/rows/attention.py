"""Attention: nodes to launches of attention.c."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from zinc_rt.ir.dtypes import CACHE_TYPES
from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import SYNC, Launch, Ref, Sync, Temp
from zinc_rt.kernels.native.rows.rope import find_cache_type, find_page_sizes
from zinc_rt.kernels.native.task import Task
from zinc_rt.kernels.rows.caches import check_head_blocks
from zinc_rt.kernels.rows.elementwise import make_rowwise_launch, make_slice_launch
from zinc_rt.kernels.rows.operands import Buffer
from zinc_rt.kernels.rows.tuning import Tuning

CHUNK = 256  # keys: attention.c's, and canonical-1's
QUERIES = 16  # maximum per item: attention.c
WIDEST = 2048  # head: attention.c's
SPLITS = 16  # shares of a query's keys
ITEMS = 32  # maximum that share a token's work
PARTIALS_BYTES = 64 << 20  # chunks' results kept at most; beyond, threads share heads and tokens only


def attention_launches(
    node: Node,
    graph: OpGraph,
    capacity: Mapping[str, int],
    *,
    out: Buffer,
    heads: int,
    kv_heads: int,
    dims: tuple[int, int, int],
    scale: float,
    caches: tuple[str, str | None, str],
    operands: tuple[str, str, str, str],
    window: int = 0,
    cap: float = 0.0,
    sinks: str = ABSENT,
) -> Iterator[Launch | Sync]:
    """Return the launches of attention: out f32 [tokens, heads * value_dim]. `dims`: dimensions of a key, of its
    part in the second cache, and of a value. `caches`: keys, the rest of the keys or None, values. `operands`: q,
    position, slot, page table. `sinks`: a float32 vector (heads,)."""
    q, position, slot, page_table = operands
    value_dim = dims[2]
    slots, pages, page_tokens, cache_rows = find_page_sizes(graph, node, page_table, caches[0])
    group = heads // kv_heads
    heads_an_item = min(group, QUERIES)
    chunks = _count_chunks(pages * page_tokens, window)
    partial_bytes = 4 * (value_dim + 2) * heads * chunks * capacity["tokens"]
    split = chunks > 1 and partial_bytes <= PARTIALS_BYTES
    partials = Temp("partials", partial_bytes) if split else None
    splits = min(SPLITS, chunks) if split else 1
    begin = Ref(sinks) if sinks else None
    units = kv_heads * -(-group // heads_an_item)
    yield Task(  # few items contain all the work, so they are claimed individually
        "attention",
        (
            Ref(q),
            *(Ref(name) if name else None for name in caches),
            Ref(position),
            Ref(slot),
            Ref(page_table),
            begin,
            out,
            partials,
        ),
        (
            *(group, kv_heads, *dims, float(scale), cap, window),
            *(slots, pages, page_tokens, cache_rows),
            *(heads_an_item, QUERIES // heads_an_item, splits, chunks),
            *(find_cache_type(graph, caches[0]), find_cache_type(graph, caches[2])),
        ),
        (min(units * splits, ITEMS), "tokens", 1),
        most=1,
    )
    if partials is not None:
        yield SYNC
        yield Launch(
            "attention_merge",
            (partials, Ref(position), out, begin),
            (value_dim, window, chunks),
            (heads, "tokens", 1),
        )


def _count_chunks(positions: int, window: int) -> int:
    """Return the maximum number of chunks that one query sees."""
    maximum = -(-positions // CHUNK)
    return min(maximum, -(-window // CHUNK) + 1) if window else maximum


def flash_attn(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
    q, kv_k, kv_v, position, slot, page_table, *options = node.inputs
    gate, sinks = options if node.op is Op.FLASH_ATTN else (ABSENT, *options)
    head_dim, value_dim = int(node.attrs["head_dim"]), int(node.attrs["value_dim"])
    columns = int(node.attrs["heads"]) * value_dim
    out: Buffer = Ref(node.outputs[0])
    attended = Temp("attended", 4 * capacity["tokens"] * columns) if gate else out
    yield from attention_launches(
        node,
        graph,
        capacity,
        out=attended,
        heads=int(node.attrs["heads"]),
        kv_heads=int(node.attrs["kv_heads"]),
        dims=(head_dim, 0, value_dim),
        scale=float(node.attrs["scale"]),
        caches=(kv_k, None, kv_v),
        operands=(q, position, slot, page_table),
        window=int(node.attrs.get("window", 0)),
        cap=float(node.attrs.get("cap", 0.0)),
        sinks=sinks,
    )
    if gate:
        gated: Buffer = Ref(gate)
        if skip := int(node.attrs.get("gate_skip", 0)):
            gated, groups = Temp("gate", 4 * capacity["tokens"] * columns), gated
            group, heads = value_dim + skip, int(node.attrs["heads"])
            yield make_slice_launch(tuning, groups, gated, "tokens", heads * group, (group, skip, value_dim))
        yield SYNC
        yield make_rowwise_launch(tuning, "sigmoid_mul", (attended, gated, out), "tokens", columns)


def _check_node(node: Node, graph: OpGraph) -> str | None:
    head_dim = int(node.attrs["head_dim"])
    if not 0 < head_dim <= WIDEST:
        return f"head_dim is {head_dim}, expected 1 to {WIDEST}"
    if (sinks := node.inputs[-1]) and graph.buffers[sinks].dtype != "f32":
        return f"{sinks} is {graph.buffers[sinks].dtype}, not f32"
    return check_head_blocks(node, graph)


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            op,
            partial(flash_attn, tuning),
            tuning.orderings,
            rejects=_check_node,
            cache_dtypes=frozenset(CACHE_TYPES),
        )
        for op in (Op.FLASH_ATTN, Op.FLASH_ATTN_BATCHED)
    )
