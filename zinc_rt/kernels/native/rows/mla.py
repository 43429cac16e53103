"""DeepSeek's latent attention: nodes to launches of mla.c, attention.c and the projections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from zinc_rt.ir.dtypes import CACHE_TYPES
from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import SYNC, Launch, Ref, Sync, Temp
from zinc_rt.kernels.native.rows.attention import WIDEST, attention_launches
from zinc_rt.kernels.native.rows.projections import check_projection, project
from zinc_rt.kernels.rows.caches import check_head_blocks
from zinc_rt.kernels.rows.projections import Heads, Part, ProjectionInput
from zinc_rt.kernels.rows.tuning import Tuning

Launches = Iterator[Launch | Sync]
Place = tuple[int, int, int]  # floats: offset in a token's row, from head to head, from token to token


def _copy_launch(x: str, y: str, heads: int, columns: int, source: Place, target: Place) -> Iterator[Launch]:
    if columns:
        yield Launch("copy_columns", (Ref(x), Ref(y)), (columns, *source, *target), (heads, "tokens", 1))


def absorb(ordering: str, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    """Compute [k_b . q_nope | q_pe] per head."""
    q, k_b = node.inputs
    (y,) = node.outputs
    heads, nope, rope, latent = (int(node.attrs[name]) for name in ("heads", "nope", "rope", "latent"))
    wide, narrow = nope + rope, latent + rope
    yield from _copy_launch(q, y, heads, rope, (nope, wide, heads * wide), (latent, narrow, heads * narrow))
    source = ProjectionInput(Ref(q), heads=Heads(heads, wide, narrow), x_stride=heads * wide)
    yield from project(ordering, graph, capacity, source, [Part(k_b, Ref(y))], y_stride=heads * narrow)


def expand(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    """Compute k and v: [k_nope | v] per head, and one k_pe for all heads."""
    kv, k_pe = node.inputs
    k, v = node.outputs
    heads, nope, rope, value_dim = (int(node.attrs[name]) for name in ("heads", "nope", "rope", "value_dim"))
    both, key = nope + value_dim, nope + rope
    yield from _copy_launch(kv, k, heads, nope, (0, both, heads * both), (0, key, heads * key))
    yield from _copy_launch(k_pe, k, heads, rope, (0, 0, rope), (nope, key, heads * key))
    yield from _copy_launch(kv, v, heads, value_dim, (nope, both, heads * both), (0, value_dim, heads * value_dim))


def flash_attn(ordering: str, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    """Compute attention with keys [latent | pe], the latents as values, and one kv head; then apply v_b per
    head.
    """
    q, kv_latent, kv_pe, position, slot, page_table, v_b = node.inputs
    heads, latent, rope, value_dim = (int(node.attrs[name]) for name in ("heads", "latent", "rope", "value_dim"))
    latents = Temp("latents", 4 * capacity["tokens"] * heads * latent)
    yield from attention_launches(
        node,
        graph,
        capacity,
        out=latents,
        heads=heads,
        kv_heads=1,
        dims=(latent + rope, rope, latent),
        scale=float(node.attrs["scale"]),
        caches=(kv_latent, kv_pe, kv_latent),
        operands=(q, position, slot, page_table),
    )
    yield SYNC
    source = ProjectionInput(latents, heads=Heads(heads, latent, value_dim), x_stride=heads * latent)
    out = Part(v_b, Ref(node.outputs[0]))
    yield from project(ordering, graph, capacity, source, [out], y_stride=heads * value_dim)


def _check_matrix(node: Node, graph: OpGraph) -> str | None:
    return check_projection(graph, node.inputs[-1])


def _check_flash(node: Node, graph: OpGraph) -> str | None:
    head_dim = int(node.attrs["latent"]) + int(node.attrs["rope"])
    if head_dim > WIDEST:
        return f"head_dim is {head_dim}, expected at most {WIDEST}"
    return _check_matrix(node, graph) or check_head_blocks(node, graph)


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return (
        Entry(Op.MLA_EXPAND, expand, tuning.orderings),
        *(
            Entry(
                op,
                partial(code, ordering),
                frozenset({ordering}),
                rejects=rejects,
                cache_dtypes=frozenset(CACHE_TYPES),
            )
            for ordering in sorted(tuning.orderings)
            for op, code, rejects in (
                (Op.MLA_ABSORB, absorb, _check_matrix),
                (Op.MLA_FLASH_ATTN, flash_attn, _check_flash),
            )
        ),
    )
