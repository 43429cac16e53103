"""Caches of keys and values by element type: names of kernels, and the types that a node may have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from zinc_rt.ir.dtypes import ACTIVATION, CACHE_TYPES, find_block
from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import OPS, Op
from zinc_rt.kernels.entry import Entry

WIDEST_HEAD = 2048  # that is rounded in one go: native kv.h, gfx1201 kv.inc, spirv kv.glsl


def name_kernel(name: str, dtype: str) -> str:
    """Return the name of the member of a family of kernels for caches of `dtype`."""
    return name if dtype == ACTIVATION else f"{name}_{dtype}"


def find_cache_dtypes(node: Node, graph: OpGraph) -> list[str]:
    """Return the types of a node's caches, sorted."""
    ports = zip(OPS[node.op].inputs, node.inputs, strict=False)
    return sorted({graph.buffers[name].dtype for port, name in ports if port.kind == "cache" and name != ABSENT})


def check_head_blocks(node: Node, graph: OpGraph) -> str | None:
    """Return why the heads of a cache are not whole blocks of its type, or too wide to be rounded."""
    dtypes = find_cache_dtypes(node, graph)
    names = ("latent", "rope") if node.op is Op.MLA_FLASH_ATTN else ("head_dim", "value_dim")
    for dtype in dtypes:
        if dtype == ACTIVATION:
            continue
        elements, _ = find_block(dtype)
        for name in names:
            dim = int(node.attrs.get(name, elements))
            if dim % elements or dim > WIDEST_HEAD:
                return f"{name} is {dim}; a {dtype} cache needs a multiple of {elements} up to {WIDEST_HEAD}"
    if node.op is Op.MLA_FLASH_ATTN:
        return check_one_type(node, graph)
    return None


def check_one_type(node: Node, graph: OpGraph) -> str | None:
    """Return why a node's caches are not of one type."""
    dtypes = find_cache_dtypes(node, graph)
    return f"caches of different types: {', '.join(dtypes)}" if len(dtypes) > 1 else None


def accept_cache_types(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the entries as they are for caches of every type."""
    return tuple(replace(entry, cache_dtypes=frozenset(CACHE_TYPES)) for entry in entries)
