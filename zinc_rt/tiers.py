"""Which tier runs: asked for, or chosen with a line why. A tier that does not exist yet says so."""

from __future__ import annotations

import os
from dataclasses import dataclass

from zinc_rt.errors import UnsupportedError, UsageError
from zinc_rt.ring.base import Backend, Tier
from zinc_rt.ring.cpu import CpuBackend

BUILT = (Tier.T_CPU,)
WITHOUT_KERNELS = (Tier.T1, Tier.T2)  # zinc-rt pm4-test drives them
PREFERENCE = (Tier.T2, Tier.T1, Tier.T_CPU)
DEVICES = ("auto", "cpu", "sim")


def parse_tier(name: str) -> Tier:
    """Raises UsageError for an unknown name, UnsupportedError for one that is not built in this version."""
    try:
        tier = Tier(name)
    except ValueError as error:
        raise UsageError(f"no tier is called {name!r}; tiers: {', '.join(t.value for t in Tier)}") from error
    if tier not in BUILT:
        raise UnsupportedError(f"tier {name} {_why_not(tier)}", next=_instead(tier))
    return tier


@dataclass(frozen=True, slots=True)
class TierState:
    """Whether a tier can run here, why, and what to do where it cannot."""

    tier: Tier
    usable: bool
    why: str
    next: str = ""


def probe_tiers(device: str = "auto") -> tuple[TierState, ...]:
    """Every tier in the order `auto` prefers, then those it never takes."""
    if device == "sim":
        choose_tier("auto", device)  # says why not
    others = tuple(tier for tier in Tier if tier not in PREFERENCE)
    return tuple(_probe(tier) for tier in (*PREFERENCE, *others))


def _probe(tier: Tier) -> TierState:
    if tier is Tier.T_CPU:
        return TierState(tier, True, f"the NumPy oracle, {available_cores()} cores")
    return TierState(tier, False, _why_not(tier), _instead(tier))


def _why_not(tier: Tier) -> str:
    if tier in WITHOUT_KERNELS:
        return "runs no models in this version: it reaches the command processor, its kernels are not built"
    return "is not built in this version"


def _instead(tier: Tier) -> str:
    use = "use " + ", ".join(t.value for t in BUILT)
    return f"{use}; zinc-rt pm4-test --tiers {tier.value} tries the card" if tier in WITHOUT_KERNELS else use


def choose_tier(asked: str, device: str = "auto") -> tuple[Tier, str]:
    """The tier to run on and one line why. `asked` may be "auto"."""
    if device == "sim":
        raise UnsupportedError(
            "--device sim: the simulated device runs no models in this version, its kernels are not built",
            next="--device cpu; zinc-rt pm4-test --device sim runs what there is",
        )
    if asked != "auto":
        return parse_tier(asked), f"{asked}: asked for"
    passed_over = [tier for tier in PREFERENCE if tier not in BUILT]
    why = ", ".join(tier.value for tier in passed_over) + " run no models in this version"
    return Tier.T_CPU, f"t_cpu: {why}"


def open_backend(tier: Tier, ordering: str, *, threads: int = 0) -> Backend:
    """`threads` 0: every core this process may use."""
    assert tier is Tier.T_CPU, tier
    return CpuBackend(ordering, threads=threads or available_cores())


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
