"""Which tier runs, on which device: asked for, or chosen with a line why. What cannot be says so."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.backends.base import Backend, Tier
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.errors import UnsupportedError, UsageError
from zinc_rt.kernels.sets import AMD_TARGETS, BinaryKernelSet, kernel_set
from zinc_rt.kmd.discover import Answer, Gpu, check_kfd, check_user_queues, find_gpus
from zinc_rt.kmd.driver import Driver

GPU_TIERS = (Tier.T1, Tier.T2)
BUILT = (Tier.T_CPU, *GPU_TIERS)
PREFERENCE = (Tier.T2, Tier.T1, Tier.T_CPU)
SANITIZERS = ("off", "fast", "full")
SIMULATED = "simulated device: says nothing about hardware"
_CHECKS: dict[Tier, Callable[[Driver, Gpu], Answer]] = {Tier.T1: check_kfd, Tier.T2: check_user_queues}


@dataclass(frozen=True, slots=True)
class Choice:
    """A tier, the device behind it and one line why. `gpu` is None for T-CPU and for a simulated device."""

    tier: Tier
    why: str
    simulated: bool = False
    gpu: Gpu | None = None
    options: dict[str, Any] = field(default_factory=dict)  # of the simulated device


ORACLE = Choice(Tier.T_CPU, "t_cpu: the oracle")


@dataclass(frozen=True, slots=True)
class TierState:
    """Whether a tier can run models here, why, and what to do where it cannot."""

    tier: Tier
    usable: bool
    why: str
    next: str = ""
    gpu: Gpu | None = None


def parse_tier(name: str) -> Tier:
    """Raises UsageError for an unknown name, UnsupportedError for one that is not built in this version."""
    try:
        tier = Tier(name)
    except ValueError as error:
        raise UsageError(f"no tier is called {name!r}; tiers: {', '.join(t.value for t in Tier)}") from error
    if tier not in BUILT:
        raise UnsupportedError(f"tier {name} is not built in this version", next=_use_built())
    return tier


def probe_tiers(device: str = "auto") -> tuple[TierState, ...]:
    """Every tier in the order `auto` prefers, then those it never takes."""
    others = tuple(tier for tier in Tier if tier not in PREFERENCE)
    return tuple(_state(tier, device) for tier in (*PREFERENCE, *others))


def choose_tier(asked: str, device: str = "auto", *, simulate: bool = False, **options: Any) -> Choice:
    """`asked` may be "auto": t2, then t1, then t_cpu. `options` are the simulated device's.

    `simulate`: a GPU tier that was asked for is simulated where this machine has no AMD GPU at all. Raises
    UsageError or UnsupportedError, with the reason and what to do, for a tier that cannot run.
    """
    if asked != "auto":
        return _asked(parse_tier(asked), device, simulate, options)
    if device == "sim":
        return Choice(
            PREFERENCE[0], f"{PREFERENCE[0].value}: the first choice; {SIMULATED}", True, options=options
        )
    passed_over: list[str] = []
    for tier in PREFERENCE:
        state = _state(tier, device)
        if state.usable:
            why = "; ".join([*passed_over, state.why])
            return Choice(tier, f"{tier.value}: {why}", gpu=state.gpu)
        passed_over.append(f"not {tier.value}: {state.why}")
    raise AssertionError("t_cpu always runs")


def _asked(tier: Tier, device: str, simulate: bool, options: dict[str, Any]) -> Choice:
    if tier is Tier.T_CPU:
        return Choice(tier, "t_cpu: asked for")
    if device == "cpu":
        raise UsageError(f"--device cpu runs t_cpu, not {tier.value}", next="leave out one of them")
    if device == "sim" or (simulate and not amd_gpus()):
        why = "asked for" if device == "sim" else "there is no AMD GPU here"
        return Choice(tier, f"{tier.value}: {why}; {SIMULATED}", True, options=options)
    state = _state(tier, device)
    if not state.usable:
        raise UnsupportedError(
            f"tier {tier.value}: {state.why}",
            next=f"{state.next}; or simulate one: --device sim" if state.next else "--device sim simulates one",
        )
    return Choice(tier, f"{tier.value}: asked for; {state.why}", gpu=state.gpu)


def _state(tier: Tier, device: str) -> TierState:
    if tier is Tier.T_CPU:
        return TierState(tier, True, f"the NumPy oracle, {available_cores()} cores")
    if tier not in GPU_TIERS:
        return TierState(tier, False, "is not built in this version", _use_built())
    if device == "sim":
        return TierState(tier, True, SIMULATED)
    if device == "cpu":
        return TierState(tier, False, "--device cpu")
    gpus = amd_gpus()
    if not gpus:
        return TierState(tier, False, "no AMD GPU here", "zinc-rt devices shows what was looked at")
    driver = _linux()
    assert driver is not None
    state = TierState(tier, False, "")
    for gpu in gpus:
        if gpu.arch not in AMD_TARGETS:
            why = (
                f"{gpu.name} is {gpu.arch or 'of an unknown kind'}, there are kernels for {', '.join(AMD_TARGETS)}"
            )
            state = state if state.why else TierState(tier, False, why)
            continue
        answer = _CHECKS[tier](driver, gpu)
        state = TierState(tier, answer.usable, f"{gpu.name}, {gpu.arch}: {answer.why}", answer.next, gpu)
        if state.usable:
            break
    return state


def amd_gpus() -> tuple[Gpu, ...]:
    driver = _linux()
    return find_gpus(driver).gpus if driver is not None else ()


def _linux() -> Driver | None:
    """None elsewhere: GPU tiers need Linux."""
    if sys.platform != "linux":
        return None
    from zinc_rt.kmd.linux import LinuxDriver

    return LinuxDriver()


def _use_built() -> str:
    return "use " + ", ".join(t.value for t in BUILT)


def open_backend(choice: Choice, ordering: str, *, threads: int = 0) -> Backend:
    """A backend of its own, which owns what lies below it. `threads` 0: every core this process may use."""
    if choice.tier is Tier.T_CPU:
        return CpuBackend(ordering, threads=threads or available_cores())
    return _open_gpu(choice, ordering)


def _open_gpu(choice: Choice, ordering: str) -> Backend:
    from zinc_rt.backends.amd.open import first_gpu, open_t1, open_t2

    with ExitStack() as undo:
        driver: Driver
        if choice.simulated:
            from zinc_rt.sim.client import SimClient

            # one device for all tiers of this process, gone with it
            driver = SimClient(name=f"models-{os.getpid()}", **choice.options)
            undo.callback(driver.close_all)
        else:
            found = _linux()
            assert found is not None
            driver = found
        node = choice.gpu.node if choice.gpu is not None and choice.gpu.node is not None else first_gpu(driver)
        kernels = kernel_set(node.arch)
        assert kernels is None or isinstance(kernels, BinaryKernelSet), node.arch
        opener = open_t1 if choice.tier is Tier.T1 else open_t2
        return opener(driver, node=node, ordering=ordering, kernels=kernels, after=undo.pop_all().close)


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
