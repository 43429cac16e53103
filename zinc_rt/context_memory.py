"""Whether a context fits this machine's memory, asked before anything of its length is made."""

from __future__ import annotations

from dataclasses import replace

import psutil

from zinc_rt.errors import UsageError
from zinc_rt.mem.plan import size_bytes
from zinc_rt.model.builder import Overrides, SequenceLimits
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.model.registry import build_model

ALWAYS_TRIED = 4096  # tokens: a context as long as the default is not worth two more graphs
TABLE_COPIES = 5  # of the tables of angles: one a stage, and float64 while they are made


def check_context_memory(
    gguf: GGUFFile, limits: SequenceLimits, *, overrides: Overrides | None = None, state: bool
) -> None:
    """Check a context's length: UsageError for one whose tables, or with `state` its caches too, this machine
    cannot hold.

    Both grow evenly with the context, so two short ones tell. Of caches only what is used takes memory: these are
    held against all that the machine has, the tables against what is free.
    """
    if limits.ctx <= ALWAYS_TRIED:
        return
    short, longer = (replace(limits, ctx=pages * limits.page_tokens) for pages in (1, 2))
    (few_tables, few_caches), (more_tables, more_caches) = (
        _grown(gguf, each, overrides) for each in (short, longer)
    )
    table_rate = TABLE_COPIES * (more_tables - few_tables) / limits.page_tokens
    cache_rate = (more_caches - few_caches) / limits.page_tokens if state else 0.0
    memory = psutil.virtual_memory()
    wanted, tables = (limits.ctx * rate for rate in (table_rate + cache_rate, table_rate))
    if wanted <= memory.total and tables <= memory.available:
        return
    most = limits.ctx * min(memory.total / wanted, memory.available / max(1.0, tables))
    raise UsageError(
        f"--ctx {limits.ctx} needs some {_gib(wanted)} of memory for this model, this machine has "
        f"{_gib(memory.total)}, {_gib(memory.available)} of it free",
        next=f"give a smaller --ctx: some {_rounded(most):,} tokens fit",
    )


def _grown(gguf: GGUFFile, limits: SequenceLimits, overrides: Overrides | None) -> tuple[int, int]:
    """The bytes of constants, and of state and page tables."""
    model = build_model(gguf, limits, "decode", overrides=overrides)
    kept = sum(size_bytes(spec, {}) for spec in model.graph.by_role("state", "table"))
    return sum(array.nbytes for array in model.constants.values()), kept


def _gib(count: float) -> str:
    return f"{count / (1 << 30):,.1f} GiB"


def _rounded(tokens: float) -> int:
    """The number, rounded down to two digits."""
    digits = max(0, len(str(int(tokens))) - 2)
    return int(tokens) // 10**digits * 10**digits
