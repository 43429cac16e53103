"""The balance of the ledger: equations between the tenants' usage and the device's work in the same steps.

A side maps counters to sums over a range of steps: the ledger's totals, a difference of two moments, a
database query. Each function returns a sentence if its equation is violated, else None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

Sums = Mapping[str, int]  # a counter that is not there is 0

PAGE_STEPS = "page_steps."  # and the page group's name
INPUTS = ("prompt_tokens_computed", "tokens_recomputed", "decode_inputs", "draft_inputs")
ROWS = ("tokens_generated", "draft_rejected", "rows_discarded", "prompt_rows")


def l1_input_tokens(usage: Sums, device: Sums) -> str | None:
    return _describe_inequality(usage, INPUTS, device, "input_tokens")


def l2_logit_rows(usage: Sums, device: Sums) -> str | None:
    return _describe_inequality(usage, ROWS, device, "logit_rows")


def l3_slot_steps(usage: Sums, device: Sums) -> str | None:
    return _describe_inequality(usage, ("slot_steps",), device, "slot_steps")


def l4_page_steps(usage: Sums, device: Sums) -> str | None:
    """Every page of a group has one payer per step: a tenant, a group of tenants, the cache, or none."""
    names = sorted({name for name in (*usage, *device) if name.startswith(PAGE_STEPS)})
    return next((reason for name in names if (reason := _describe_inequality(usage, (name,), device, name))), None)


def l5_device_time(usage: Sums, device: Sums) -> str | None:
    return _describe_inequality(usage, ("device_ns",), device, "device_ns")


def l6_delivered(usage: Sums, device: Sums) -> str | None:
    """Delivered tokens are at most the generated tokens; both are equal when no request is live."""
    delivered, discarded = usage.get("tokens_delivered", 0), usage.get("tokens_discarded", 0)
    generated = usage.get("tokens_generated", 0)
    if delivered <= generated - discarded:
        return None
    return f"tokens_delivered is {delivered}, of {generated} generated and {discarded} discarded"


LINES: tuple[Callable[[Sums, Sums], str | None], ...] = (
    l1_input_tokens,
    l2_logit_rows,
    l3_slot_steps,
    l4_page_steps,
    l5_device_time,
    l6_delivered,
)


def find_unbalanced(usage: Sums, device: Sums) -> list[str]:
    """Return all violated equations, by number: "L1: ..."."""
    result = ((line.__name__.partition("_")[0].upper(), line(usage, device)) for line in LINES)
    return [f"{number}: {reason}" for number, reason in result if reason is not None]


def _describe_inequality(usage: Sums, parts: Iterable[str], device: Sums, whole: str) -> str | None:
    counted = {name: usage.get(name, 0) for name in parts}
    if sum(counted.values()) == device.get(whole, 0):
        return None
    terms = " + ".join(f"{name} {value}" for name, value in counted.items())
    return f"tenants: {terms} = {sum(counted.values())}; device: {whole} {device.get(whole, 0)}"
