"""Check that a model fits: its weights in GPU memory, its context in host memory, for the given slots and
length.

The memory plan of the largest variant decides (original design, section 10.5). It depends on the model, the
number of concurrent requests, their maximum length, and the tokens per step including speculative ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

import psutil

from zinc_rt.engine.resident import parse_capacity
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.settings import Experts
from zinc_rt.kernels.sets import KernelSet
from zinc_rt.mem.context_bytes import PageGroupSpec, groups_of
from zinc_rt.mem.plan import count_buffer_bytes, plan_memory
from zinc_rt.mem.residency import Residency, count_remaining_bytes, list_experts, place_weights
from zinc_rt.model.builder import Model, Overrides, SequenceLimits
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.model.registry import build_model


def fit_model(
    model: Model,
    kernels: KernelSet,
    memory_bytes: int,
    *,
    tokens: int,
    rows: int,
    experts: Experts = "auto",
    overrides: Overrides | None = None,
) -> Residency:
    """Return the placement of a model's weights on a device with these kernels. `tokens`, `rows`: of its
    largest step. Raises InputError if they do not fit, with the longest context and the most slots that
    would."""
    try:
        return _place_model(model, kernels, memory_bytes, tokens, rows, experts)
    except InputError as error:
        limits = model.limits

        def fits(other: SequenceLimits) -> bool:
            smaller = build_model(model.gguf, other, "prefill", overrides=overrides)
            try:
                _place_model(smaller, kernels, memory_bytes, tokens, rows, experts)
            except InputError:
                return False
            return True

        page = limits.page_tokens
        pages = _find_largest_fitting(
            limits.pages_per_slot - 1, lambda count: fits(replace(limits, ctx=count * page))
        )
        slots = _find_largest_fitting(limits.slots - 1, lambda count: fits(replace(limits, slots=count)))
        helps = [f"--ctx {pages * page} fits"] * bool(pages) + [f"--slots {slots} fits"] * bool(slots)
        raise InputError(error.message, next=", or ".join(helps) if helps else error.next) from None


def count_step_tokens(gguf: GGUFFile, limits: SequenceLimits, lookahead: int) -> int:
    """Return the tokens of a step in which every request has one token and `lookahead` speculative tokens.
    Raises InputError with the maximum if they exceed a step."""
    tokens = limits.slots * (1 + lookahead)
    if tokens > limits.step_tokens:
        raise InputError(
            f"{gguf.path}: {limits.slots} requests of 1 + {lookahead} tokens need {tokens} tokens, but a step "
            f"has only {limits.step_tokens}",
            next=f"--lookahead {limits.step_tokens // limits.slots - 1} fits, or fewer --slots",
        )
    return tokens


def _place_model(
    model: Model, kernels: KernelSet, memory_bytes: int, tokens: int, rows: int, experts: Experts
) -> Residency:
    sizes = {name: kernels.packed_bytes(weight) for name, weight in model.weights.items()}
    states = sum(count_buffer_bytes(spec, {}) for spec in model.graph.by_role("state", "table"))
    room = None
    if sum(sizes.values()) + states > memory_bytes // 2:  # else there is plainly enough
        sequences = min(model.limits.slots, tokens)
        plan = plan_memory(model.graph, capacity=parse_capacity((tokens, sequences, rows)))
        room = count_remaining_bytes(plan, memory_bytes)
    return place_weights(list_experts(model.graph), sizes, experts=experts, room_bytes=room)


def _find_largest_fitting(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest count up to `limit` that fits; 0 if not even 1 does."""
    return bisect_left(range(1, limit + 1), True, key=lambda count: not fits(count))


ALWAYS_TRIED = 4096  # tokens: a context as long as the default is not worth two more graphs
TABLE_COPIES = 5  # of the tables of angles: one a stage, and float64 while they are made
ENTRY_BYTES = 4  # of a page table


def check_context_memory(
    gguf: GGUFFile, limits: SequenceLimits, *, overrides: Overrides | None = None, state: bool
) -> None:
    """Check the context length. Raises UsageError if its tables, or with `state` also its caches, exceed this
    machine's memory.

    Table size is linear in the context, so it is extrapolated from two short contexts. Only the used part of
    a cache takes memory, so caches are compared with the total memory and tables with the free memory.
    """
    if limits.ctx <= ALWAYS_TRIED:
        return
    short, longer = (
        build_model(gguf, replace(limits, ctx=pages * limits.page_tokens), "decode", overrides=overrides)
        for pages in (1, 2)
    )
    table_rate = TABLE_COPIES * (_count_constant_bytes(longer) - _count_constant_bytes(short)) / limits.page_tokens
    groups = groups_of(short.graph) if state else ()
    memory = psutil.virtual_memory()

    def fits(ctx: int) -> bool:
        tables = ctx * table_rate
        return (
            tables + _count_cache_bytes(replace(limits, ctx=ctx), groups) <= memory.total
            and tables <= memory.available
        )

    if fits(limits.ctx):
        return
    wanted = limits.ctx * table_rate + _count_cache_bytes(limits, groups)
    maximum = bisect_left(range(1, limits.ctx), True, key=lambda ctx: not fits(ctx))
    raise UsageError(
        f"--ctx {limits.ctx} needs about {_format_gib(wanted)} of memory for this model, but this machine has "
        f"{_format_gib(memory.total)}, of which {_format_gib(memory.available)} are free",
        next=f"use a smaller --ctx: about {_round_down(maximum):,} tokens fit",
    )


def check_cache_memory(model: Model) -> None:
    """Check the context length of a finished model, whose tables exist. Raises UsageError if its caches exceed
    this machine's memory."""
    wanted, total = _count_cache_bytes(model.limits, groups_of(model.graph)), psutil.virtual_memory().total
    if wanted > total:
        raise UsageError(
            f"a context of {model.limits.ctx} tokens for {model.limits.slots} requests needs "
            f"{_format_gib(wanted)} of memory, but this machine has {_format_gib(total)}",
            next="save the graph file again with a smaller --ctx or fewer --slots",
        )


def _count_constant_bytes(model: Model) -> int:
    return sum(array.nbytes for array in model.constants.values())


def _count_cache_bytes(limits: SequenceLimits, groups: tuple[PageGroupSpec, ...]) -> int:
    """Return the bytes of all pools and their page tables."""
    pools = sum(
        limits.group_pages(number, group.window) * group.count_page_bytes(limits.page_tokens)
        for number, group in enumerate(groups)
    )
    return pools + len(groups) * limits.slots * limits.pages_per_slot * ENTRY_BYTES


def _format_gib(count: float) -> str:
    return f"{count / (1 << 30):,.1f} GiB"


def _round_down(tokens: float) -> int:
    """The number, rounded down to two digits."""
    digits = max(0, len(str(int(tokens))) - 2)
    return int(tokens) // 10**digits * 10**digits
