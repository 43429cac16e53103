"""Plan the device memory of the configured models before any model is opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import psutil

from zinc_rt.engine.devices import Choice
from zinc_rt.engine.opening import EngineOpener, ModelOptions, make_engine_opener
from zinc_rt.engine.resident import parse_capacity
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.mem.context_bytes import count_state_row_bytes, groups_of
from zinc_rt.mem.plan import plan_memory
from zinc_rt.model.builder import Model
from zinc_rt.model.registry import build_model
from zinc_rt.sched.speculation import parse_speculation
from zinc_rt.serve.config.checks import can_use_model
from zinc_rt.serve.config.settings import Config, DeviceSettings, ModelSettings, TenantSettings
from zinc_rt.serve.tenants.quotas import make_page_quota

# What the roles of a memory plan's buffers are to who serves; state is told as pages and rows.
PARTS = {
    "weight": "weights", "constant": "weights", "activation": "arena", "output": "logits", "step": "step blocks",
    "table": "page tables",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PagePool:
    """The page pool of one page group: its page count and the page size in bytes over all its layers."""

    name: str
    pages: int
    page_bytes: int


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """The memory of one model. `parts`: bytes by purpose; `contexts`: how many full-context requests the
    pages hold at once."""

    id: str
    tier: str
    ctx: int
    slots: int
    page_tokens: int
    pools: tuple[PagePool, ...]
    state_rows: int
    parts: dict[str, int]
    contexts: int

    @property
    def total_bytes(self) -> int:
        return sum(self.parts.values())

    @property
    def tokens(self) -> int:
        """Return the context tokens that the smallest pool holds. Sliding-window pools are excluded."""
        return self.pools[0].pages * self.page_tokens if self.pools else self.slots * self.ctx


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The memory of a device. `where`: its description; 0 bytes if the size is unknown before the device is
    opened."""

    where: str
    total_bytes: int


@dataclass(frozen=True, slots=True)
class TenantShare:
    """A tenant's guarantee and limit on a model. `tokens`: context tokens in reserved pages."""

    tenant: str
    model: str
    slots: int
    most_slots: int
    tokens: int
    most_tokens: int


def make_options(settings: ModelSettings, device: DeviceSettings) -> ModelOptions:
    """Return the options that open a model, for the memory plan and for serving."""
    return ModelOptions(
        device.tier,
        device.device,
        settings.slots,
        settings.ctx,
        device.ordering,
        device.threads,
        device.step_timeout_s,
        settings.kv.pages,
        settings.state_rows,
        device.unchecked,
        device.simulated,
        device.graph_cache,
        device.experts,
        settings.speculate,
        settings.kv.dtype,
        settings.prefill_ordering or "",
        settings.graphs,
    )


def make_memory_plan(settings: ModelSettings, device: DeviceSettings) -> tuple[ModelMemory, MemoryBudget]:
    """Return the memory plan. Raises ZincErrors for unreadable files, unusable tiers and impossible settings."""
    opener = make_engine_opener(settings.path, make_options(settings, device))
    limits = opener.limits
    model = build_model(opener.gguf, limits, "prefill")
    groups = groups_of(model.graph)
    if limits.pages is not None and len(limits.pages) != len(groups):
        names = ", ".join(group.name for group in groups)
        raise UsageError(f"model {settings.id}: kv.pages has {len(limits.pages)} values for page groups {names}")
    parts = _count_parts(model, settings.step_tokens or limits.step_tokens)
    pools = tuple(
        PagePool(group.name, limits.group_pages(index, group.window), group.count_page_bytes(limits.page_tokens))
        for index, group in enumerate(groups)
    )
    for pool in pools:
        parts[f"pages, {pool.name}"] = pool.pages * pool.page_bytes
    parts["draft model"] = _count_draft_bytes(opener)
    row = count_state_row_bytes(model.graph)
    if row:
        parts["state rows"] = limits.recurrent_rows * row
    text = replace(limits, slots=1, pages=None)
    group_pages = [text.group_pages(index, group.window) for index, group in enumerate(groups)]
    contexts = min(
        (pool.pages // need for pool, need in zip(pools, group_pages, strict=True)), default=limits.slots
    )
    memory = ModelMemory(
        settings.id, opener.choice.tier, limits.ctx, limits.slots, limits.page_tokens, pools,
        limits.recurrent_rows if row else 0, dict(parts), contexts,
    )  # fmt: skip
    return memory, read_memory(opener.choice)


def _count_parts(model: Model, step_tokens: int) -> Counter[str]:
    """Return the bytes of a model's allocations for steps of so many tokens, by part, without pages and state."""
    limits = model.limits
    capacity = parse_capacity(
        (step_tokens, min(step_tokens, limits.slots), min(step_tokens, limits.rows or step_tokens))
    )
    parts = Counter[str]()
    for name, allocation in plan_memory(model.graph, capacity=capacity).allocations.items():
        role = name.partition("/")[0]
        if role in PARTS:
            parts[PARTS[role]] += allocation.size_bytes
    return parts


def _count_draft_bytes(opener: EngineOpener) -> int:
    """Return the bytes of the draft model with its pages; 0 without one. Raise InputError for an unreadable
    file."""
    speculation = parse_speculation(opener.options.speculate)
    if speculation is None or speculation.kind != "draft":
        return 0
    draft = opener.make_draft_opener(speculation.file)
    limits = draft.limits
    model = build_model(draft.gguf, limits, "prefill")
    pages = sum(
        limits.group_pages(index, group.window) * group.count_page_bytes(limits.page_tokens)
        for index, group in enumerate(groups_of(model.graph))
    )
    return _count_parts(model, limits.step_tokens).total() + pages


def read_memory(choice: Choice) -> MemoryBudget:
    """Return the memory of the device of a tier. A simulated device uses this machine's memory."""
    if choice.gpu is not None and choice.gpu.node is not None and not choice.simulated:
        return MemoryBudget(f"VRAM of {choice.gpu.name}", choice.gpu.node.vram_bytes)
    if choice.simulated or choice.spec.kind.uses_host_memory:
        return MemoryBudget("this machine's memory", psutil.virtual_memory().total)
    return MemoryBudget(f"the memory of {choice.tier}'s device", 0)


def check_fits(models: Iterable[ModelMemory], memory: MemoryBudget) -> None:
    """Raise InputError if the models exceed the device memory."""
    total_bytes = sum(model.total_bytes for model in models)
    if memory.total_bytes and total_bytes > memory.total_bytes:
        raise InputError(
            f"the models need {total_bytes:,} bytes, but {memory.where} has {memory.total_bytes:,}",
            next="reduce slots, ctx or kv.pages, or set loaded: false for some models",
        )


def list_tenant_shares(config: Config, models: Iterable[ModelMemory]) -> list[TenantShare]:
    """Return the share of each tenant on each model that it may use."""
    settings = {model.id: model for model in config.models}
    return [
        _make_share(tenant, model)
        for tenant in config.tenants
        for model in models
        if can_use_model(tenant, settings[model.id])
    ]


def _make_share(tenant: TenantSettings, model: ModelMemory) -> TenantShare:
    pages = model.pools[0].pages if model.pools else 0
    quota = make_page_quota(tenant, pages)
    maximum = pages if quota.most is None else quota.most
    return TenantShare(
        tenant.id,
        model.id,
        tenant.slots_guaranteed,
        min(model.slots, tenant.slots_max or model.slots),
        quota.reserved * model.page_tokens,
        maximum * model.page_tokens,
    )
