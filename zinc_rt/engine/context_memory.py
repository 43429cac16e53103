"""Whether a context fits this machine's memory, asked before anything of its length is made."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

import psutil

from zinc_rt.errors import UsageError
from zinc_rt.mem.context_bytes import PageGroupSpec, groups_of
from zinc_rt.model.builder import Model, Overrides, SequenceLimits
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.model.registry import build_model

ALWAYS_TRIED = 4096  # tokens: a context as long as the default is not worth two more graphs
TABLE_COPIES = 5  # of the tables of angles: one a stage, and float64 while they are made
ENTRY_BYTES = 4  # of a page table


def check_context_memory(
    gguf: GGUFFile, limits: SequenceLimits, *, overrides: Overrides | None = None, state: bool
) -> None:
    """Check a context's length: UsageError for one whose tables, or with `state` its caches too, this machine
    cannot hold.

    Tables grow evenly with the context, so two short ones tell. Of caches only what is used takes memory: these
    are held against all that the machine has, the tables against what is free.
    """
    if limits.ctx <= ALWAYS_TRIED:
        return
    short, longer = (
        build_model(gguf, replace(limits, ctx=pages * limits.page_tokens), "decode", overrides=overrides)
        for pages in (1, 2)
    )
    table_rate = TABLE_COPIES * (_constant_bytes(longer) - _constant_bytes(short)) / limits.page_tokens
    groups = groups_of(short.graph) if state else ()
    memory = psutil.virtual_memory()

    def fits(ctx: int) -> bool:
        tables = ctx * table_rate
        return (
            tables + _cache_bytes(replace(limits, ctx=ctx), groups) <= memory.total and tables <= memory.available
        )

    if fits(limits.ctx):
        return
    wanted = limits.ctx * table_rate + _cache_bytes(limits, groups)
    most = bisect_left(range(1, limits.ctx), True, key=lambda ctx: not fits(ctx))
    raise UsageError(
        f"--ctx {limits.ctx} needs some {_gib(wanted)} of memory for this model, this machine has "
        f"{_gib(memory.total)}, {_gib(memory.available)} of it free",
        next=f"give a smaller --ctx: some {_rounded(most):,} tokens fit",
    )


def _constant_bytes(model: Model) -> int:
    return sum(array.nbytes for array in model.constants.values())


def _cache_bytes(limits: SequenceLimits, groups: tuple[PageGroupSpec, ...]) -> int:
    """The bytes of all pools, and of their page tables."""
    pools = sum(
        limits.group_pages(number, group.window) * group.page_bytes(limits.page_tokens)
        for number, group in enumerate(groups)
    )
    return pools + len(groups) * limits.slots * limits.pages_per_slot * ENTRY_BYTES


def _gib(count: float) -> str:
    return f"{count / (1 << 30):,.1f} GiB"


def _rounded(tokens: float) -> int:
    """The number, rounded down to two digits."""
    digits = max(0, len(str(int(tokens))) - 2)
    return int(tokens) // 10**digits * 10**digits
