"""Which tier runs, on which device: asked for, or chosen with a line why. What cannot be says so.

Only here is a simulated device put in a real one's place: backends get a Driver, and do not ask which.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.backends import registry
from zinc_rt.backends.base import Backend
from zinc_rt.backends.spec import Availability, BackendSpec, Host
from zinc_rt.backends.spec import available_cores as available_cores
from zinc_rt.errors import UnsupportedError, UsageError
from zinc_rt.kmd.discover import Gpu, find_gpus
from zinc_rt.kmd.driver import Driver

SANITIZERS = ("off", "fast", "full")
SIMULATED = "simulated device: says nothing about hardware"


@dataclass(frozen=True, slots=True)
class Choice:
    """A tier, the device behind it and one line why. `gpu` is None where the tier finds its device itself."""

    spec: BackendSpec
    why: str
    simulated: bool = False
    gpu: Gpu | None = None
    kernel_set: str = ""
    options: dict[str, Any] = field(default_factory=dict)  # of the simulated device

    @property
    def tier(self) -> str:
        return self.spec.tier


ORACLE = Choice(registry.spec(registry.ORACLE), f"{registry.ORACLE}: the oracle")


def probe_tiers(device: str = "auto") -> tuple[tuple[BackendSpec, Availability], ...]:
    """Every tier in the order `auto` prefers, then those it never takes."""
    first = registry.preferred()
    return tuple((row, _probe(row, device)) for row in (*first, *(r for r in registry.SPECS if r not in first)))


def choose_tier(
    asked: str, device: str = "auto", *, simulate: bool = False, ordering: str = "canonical-1", **options: Any
) -> Choice:
    """`asked`: TIER, TIER:KERNELSET or auto, which takes the first usable one that computes `ordering`. `options`:
    the simulated device's.

    `device`: auto, hw, cpu or sim. `simulate`: under auto a tier that was asked for is simulated where this
    machine has no AMD GPU at all. Raises UsageError or UnsupportedError, with the reason and what to do, for a
    tier that cannot run.
    """
    if asked != "auto":
        return _asked(*registry.parse(asked), device, simulate, options)
    passed_over: list[str] = []
    for row in registry.preferred():
        if not row.computes(ordering):
            passed_over.append(f"not {row.tier}: no {ordering}")
            continue
        if device == "sim" and row.simulable:
            return Choice(row, f"{row.tier}: the first choice; {SIMULATED}", True, options=options)
        found = _probe(row, device)
        if found.usable:
            why = "; ".join([*passed_over, found.why])
            return Choice(row, f"{row.tier}: {why}", gpu=found.gpu)
        passed_over.append(f"not {row.tier}: {found.why}")
    raise UnsupportedError(f"no tier is usable: {'; '.join(passed_over)}", next="zinc-rt devices says more")


def _asked(row: BackendSpec, kernel_set: str, device: str, simulate: bool, options: dict[str, Any]) -> Choice:
    if not row.simulable:
        found = _probe(row, device)
        if not found.usable:
            raise UnsupportedError(f"tier {row.tier}: {found.why}", next=found.next)
        return Choice(row, f"{row.tier}: asked for", gpu=found.gpu, kernel_set=kernel_set)
    if device == "cpu":
        cpu = ", ".join(each.tier for each in registry.built() if not each.simulable)
        raise UsageError(f"--device cpu runs {cpu}, not {row.tier}", next="leave out one of them")
    if device == "sim" or (device == "auto" and simulate and not amd_gpus()):
        why = "asked for" if device == "sim" else "there is no AMD GPU here"
        return Choice(row, f"{row.tier}: {why}; {SIMULATED}", True, kernel_set=kernel_set, options=options)
    found = _probe(row, device)
    if not found.usable:
        raise UnsupportedError(
            f"tier {row.tier}: {found.why}",
            next=f"{found.next}; or simulate one: --device sim" if found.next else "--device sim simulates one",
        )
    return Choice(row, f"{row.tier}: asked for; {found.why}", gpu=found.gpu, kernel_set=kernel_set)


def _probe(row: BackendSpec, device: str) -> Availability:
    if not row.built:
        return Availability(False, "is not built in this version", registry.use_built())
    if row.simulable and device == "sim":
        return Availability(True, SIMULATED)
    if row.simulable and device == "cpu":
        return Availability(False, "--device cpu")
    if row.simulable:
        return row.probe(Host(available_cores(), linux_driver(), amd_gpus()))
    return row.probe(Host(available_cores()))


def amd_gpus() -> tuple[Gpu, ...]:
    driver = linux_driver()
    return find_gpus(driver).gpus if driver is not None else ()


def linux_driver() -> Driver | None:
    """None elsewhere: GPU tiers need Linux."""
    if sys.platform != "linux":
        return None
    from zinc_rt.kmd.linux import LinuxDriver

    return LinuxDriver()


def open_backend(choice: Choice, ordering: str, **options: Any) -> Backend:
    """A backend of its own, which owns what lies below it. `options`: of tiers; each takes those that it knows,
    and one that is 0 or empty is left to it."""
    given = {name: value for name, value in options.items() if value}
    with ExitStack() as undo:
        driver: Driver | None = None
        if choice.simulated:
            from zinc_rt.sim.client import SimClient

            # one device for all tiers of this process, gone with it
            client = SimClient(name=f"models-{os.getpid()}", **choice.options)
            undo.callback(client.close_all)
            driver = client
        elif choice.spec.simulable:
            driver = linux_driver()
        after = undo.pop_all().close
        backend: Backend = choice.spec.open(
            ordering, kernel_set=choice.kernel_set, driver=driver, gpu=choice.gpu, options=given, after=after
        )
    return backend
