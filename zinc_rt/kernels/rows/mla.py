"""DeepSeek's latent attention: nodes to launches.

A projection of heads reads each head's input from a separate row and writes its result to one. Heads with a larger
stride are copied before or after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import SYNC, Grid, Launch, Ref, Sync, Temp
from zinc_rt.kernels.rows.attention import PAGE_TOKENS, check_write, choose_flash_width, choose_split
from zinc_rt.kernels.rows.caches import accept_cache_types, name_kernel
from zinc_rt.kernels.rows.matvec import check_weight, make_projection_entries
from zinc_rt.kernels.rows.operands import Buffer, find_last_dim
from zinc_rt.kernels.rows.projections import F32_BYTES, Heads, Part, ProjectionInput, ProjectionKernels
from zinc_rt.kernels.rows.tuning import Tuning

Launches = Iterator[Launch | Sync]
Place = tuple[int, int, int]  # floats: offset in a token's row, from head to head, from token to token


def make_copy_launches(
    tuning: Tuning, x: Buffer, y: Buffer, heads: int, columns: int, source: Place, target: Place
) -> Iterator[Launch]:
    """Launch copies of `columns` floats of each head of each token; none if there are no columns."""
    if columns:
        grid = (heads, "tokens", -(-columns // tuning.copy_columns))
        yield Launch("copy_columns", (x, y), (columns, *source, *target), grid)


def absorb(kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    """Compute [k_b . q_nope | q_pe] per head."""
    q, y = Ref(node.inputs[0]), Ref(node.outputs[0])
    heads, nope, rope, latent = (int(node.attrs[name]) for name in ("heads", "nope", "rope", "latent"))
    wide, narrow = nope + rope, latent + rope
    nopes = Temp("nopes", F32_BYTES * capacity["tokens"] * heads * nope)
    absorbed = Temp("absorbed", F32_BYTES * capacity["tokens"] * heads * latent)
    copy = partial(make_copy_launches, kernels.tuning)
    yield from copy(q, nopes, heads, nope, (0, wide, heads * wide), (0, nope, heads * nope))
    yield from copy(q, y, heads, rope, (nope, wide, heads * wide), (latent, narrow, heads * narrow))
    yield SYNC
    source = ProjectionInput(nopes, heads=Heads(heads, nope, latent))
    yield from kernels.project(graph, capacity, source, [Part(node.inputs[1], absorbed)])
    yield SYNC
    yield from copy(absorbed, y, heads, latent, (0, latent, heads * latent), (0, narrow, heads * narrow))


def expand(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    """Compute k and v: [k_nope | v] per head, and one k_pe for all heads."""
    kv, k_pe = map(Ref, node.inputs)
    k, v = map(Ref, node.outputs)
    heads, nope, rope, value_dim = (int(node.attrs[name]) for name in ("heads", "nope", "rope", "value_dim"))
    both, key = nope + value_dim, nope + rope
    copy = partial(make_copy_launches, tuning)
    yield from copy(kv, k, heads, nope, (0, both, heads * both), (0, key, heads * key))
    yield from copy(kv, v, heads, value_dim, (nope, both, heads * both), (0, value_dim, heads * value_dim))
    yield SYNC  # both parts of a key may be in one cache line
    yield from copy(k_pe, k, heads, rope, (0, 0, rope), (nope, key, heads * key))


def flash_attn(kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    """Compute attention with keys [latent | pe], the latents as values, and one kv head; then apply v_b per
    head.
    """
    *operands, v_b = node.inputs
    heads, latent, rope, value_dim = (int(node.attrs[name]) for name in ("heads", "latent", "rope", "value_dim"))
    attended = Temp("attended", F32_BYTES * capacity["tokens"] * heads * latent)
    page_tokens, pages = int(node.attrs.get("page_tokens", PAGE_TOKENS)), find_last_dim(graph, node.inputs[5])
    inputs, scale = tuple(map(Ref, operands)), float(node.attrs["scale"])
    rows, paged = heads * capacity["tokens"], (page_tokens.bit_length() - 1, pages)
    shape = heads, latent, rope, scale, *paged
    tuning = kernels.tuning
    width = choose_flash_width(tuning, tuning.latent_widths, latent, others=(rope,), page_tokens=page_tokens)
    split = choose_split(tuning, rows=rows, keys=pages * page_tokens)
    dtype = graph.buffers[operands[1]].dtype
    if width is None:
        q, kv_latent, kv_pe, *where = inputs
        constants = (heads, 1, latent, rope, latent, scale, 0, *paged, 0.0)
        grid: Grid = (heads, "tokens", 1)
        yield Launch(
            name_kernel("flash_attn_any", dtype),
            (q, kv_latent, kv_pe, kv_latent, *where, attended, None),
            constants,
            grid,
        )
    elif split is None:
        yield Launch(
            name_kernel(f"mla_flash_attn_{width}", dtype), (*inputs, attended), shape, (heads, "tokens", 1)
        )
    else:
        parts = split.parts(rows, latent)
        grid = (heads, "tokens", split.workgroups)
        kernel = name_kernel(f"mla_flash_attn_parts_{width}", dtype)
        yield Launch(kernel, (*inputs, parts), (*shape, *split.list_constants), grid)
        yield SYNC
        yield split.make_merge_launch(parts, inputs[3], attended, heads, latent, window=0)
    yield SYNC
    source = ProjectionInput(attended, heads=Heads(heads, latent, value_dim))
    yield from kernels.project(graph, capacity, source, [Part(v_b, Ref(node.outputs[0]))])


def _check_absorb(tuning: Tuning, node: Node, graph: OpGraph) -> str | None:
    return check_weight(tuning, graph, node.inputs[-1])


def _check_flash(tuning: Tuning, node: Node, graph: OpGraph) -> str | None:
    latent = int(node.attrs["latent"])
    if "flash_attn_any" not in tuning.own_kernels and latent > tuning.latent_widths[-1]:
        return f"{latent} latents: expected at most {tuning.latent_widths[-1]}"
    return check_write(node, graph) or check_weight(tuning, graph, node.inputs[-1])


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return (
        Entry(Op.MLA_EXPAND, partial(expand, tuning), tuning.orderings),
        *make_projection_entries(tuning, {Op.MLA_ABSORB: absorb}, partial(_check_absorb, tuning)),
        *accept_cache_types(
            make_projection_entries(tuning, {Op.MLA_FLASH_ATTN: flash_attn}, partial(_check_flash, tuning))
        ),
    )
