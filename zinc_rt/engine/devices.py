"""Select the tier and the device, as requested or automatically, with the reason for the choice or the
refusal.

This module alone substitutes simulated devices: backends receive a Driver and do not know its kind. --device
has the same meaning in every command:

    auto  this machine's AMD GPU. Commands that compare tiers (validate, replay, perf gate) use a
          simulated GPU for an explicitly named GPU tier if the machine has no AMD GPU, and print
          SIMULATED; a GPU that exists but cannot be used is never simulated
    hw    this machine's AMD GPU, never a simulated one; without a GPU nothing runs
    sim   a simulated GPU
    cpu   no GPU

A tier that lists its own devices (vulkan) also accepts TIER[:NUMBER or part of a name], as printed by zinc-rt
devices; its hw is a GPU, its cpu a software driver.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from zinc_rt.backends import registry
from zinc_rt.backends.base import Backend, Device
from zinc_rt.backends.spec import Availability, BackendSpec, Host
from zinc_rt.engine import checked
from zinc_rt.host import locks
from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.host.machine import count_available_cores
from zinc_rt.isa.target import CHIPS, DEFAULT_ARCH
from zinc_rt.kmd.discover import Gpu, find_gpus
from zinc_rt.kmd.driver import Driver

SANITIZERS = ("off", "fast", "full")
SIMULATED = "simulated device: says nothing about hardware"
IN_SOFTWARE = "the driver runs in software on the CPU: the speed is not that of a GPU"

NAMES = ("auto", "hw", "cpu", "sim")


@dataclass(frozen=True, slots=True)
class Choice:
    """A tier, its device and a one-line reason. `gpu` is None if the tier finds its own device.

    `unchecked`: why pm4-test does not vouch for a device that is used anyway. `device`: the selected device
    of a tier that lists its own.
    """

    spec: BackendSpec
    why: str
    simulated: bool = False
    gpu: Gpu | None = None
    kernel_set: str = ""
    options: dict[str, Any] = field(default_factory=dict)  # of the simulated device
    unchecked: str = ""
    device: str = ""

    @property
    def shortcut(self) -> str:
        """Return the caveat that reports must include, or ""."""
        return f"{self.tier}: {self.unchecked} (--unchecked)" if self.unchecked else ""

    @property
    def tier(self) -> str:
        return self.spec.tier


ORACLE = Choice(registry.spec(registry.ORACLE), f"{registry.ORACLE}: the oracle")


def explain_non_gpu(device: Device) -> str:
    """Return the reason if a speed measured on this device is not a GPU speed, else ""."""
    return SIMULATED if device.simulated else IN_SOFTWARE if device.software else ""


def parse_device(text: str) -> tuple[BackendSpec | None, str]:
    """Return the tier and the device that --device names; None for auto, hw, cpu and sim. Raises UsageError
    for an invalid device."""
    if text in NAMES:
        return None, ""
    tier, _, which = text.partition(":")
    listing = [row for row in registry.built() if row.lists_devices]
    for row in listing:
        if row.tier == tier:
            return row, which
    raise UsageError(
        (f"--device {text}: expected {', '.join(NAMES)}, or {' or '.join(f'{row.tier}[:N]' for row in listing)}"),
        next="zinc-rt devices lists the available devices",
    )


def probe_tiers(
    device: str = "auto", *, unchecked: bool = False, chip: str | None = None
) -> tuple[tuple[BackendSpec, Availability], ...]:
    """Probe every tier: those that `auto` considers, in its order, then the others. `chip`: the chip of the
    simulated device."""
    first = registry.preferred()
    return tuple(
        (row, _probe(row, device, unchecked, chip))
        for row in (*first, *(r for r in registry.SPECS if r not in first))
    )


def choose_tier(
    asked: str,
    device: str = "auto",
    *,
    simulate: bool = False,
    unchecked: bool = False,
    ordering: str = "canonical-1",
    **options: Any,
) -> Choice:
    """Select a tier. `asked`: TIER, TIER:KERNELSET or auto, which selects the first usable tier that supports
    `ordering`. `options`: of the simulated device.

    `device`: auto, hw, cpu, sim, or a device that a tier lists, which auto then selects. `simulate`: several
    tiers are compared. A listed device then applies to its own tier, and auto to the others; under auto an
    explicitly named tier is simulated if this machine has no AMD GPU. A GPU is usable if pm4-test has passed
    on its current setup, or with `unchecked`. Raises UsageError or UnsupportedError, with reason and advice,
    for a tier that cannot run.
    """
    of, _ = parse_device(device)
    if of is not None and asked == "auto":
        asked = of.tier
    row = None if asked == "auto" else registry.parse(asked)[0]
    if of is not None and row is not of:
        if not simulate:
            raise UsageError(
                f"--device {device} belongs to tier {of.tier}, not to {asked}", next="remove one of them"
            )
        device = "auto"
    if row is None or not (row.simulable or row.lists_devices):
        require_gpu(device)
    if asked != "auto":
        return _choose_requested(*registry.parse(asked), device, simulate, unchecked, options)
    passed_over: list[str] = []
    for row in registry.preferred():
        if not row.computes(ordering):
            passed_over.append(f"not {row.tier}: no {ordering}")
            continue
        if device == "sim" and row.simulable:
            return _choose_simulated(row, "the first choice", "", options)
        probe = _probe(row, device, unchecked)
        if probe.usable:
            text = "; ".join([*passed_over, probe.why, *_describe_unused_gpus(row, device)])
            return Choice(row, f"{row.tier}: {text}", gpu=probe.gpu, unchecked=probe.unchecked)
        passed_over.append(f"not {row.tier}: {probe.why}")
    raise UnsupportedError(
        f"no tier is usable: {'; '.join(passed_over)}", next="run zinc-rt devices for the details"
    )


def require_gpu(device: str) -> None:
    """Raise UnsupportedError if `device` is hw and this machine has no AMD GPU."""
    if device == "hw" and not find_amd_gpus():
        raise UnsupportedError(
            "--device hw: this machine has no AMD GPU, so nothing ran",
            next=(
                "--device sim uses a simulated GPU, whose results do not apply to hardware; --device cpu "
                "needs no GPU"
            ),
        )


def _choose_requested(
    row: BackendSpec, kernel_set: str, device: str, simulate: bool, unchecked: bool, options: dict[str, Any]
) -> Choice:
    if row.lists_devices:
        probe = _probe(row, device)
        if not probe.usable:
            raise UnsupportedError(f"tier {row.tier}: {probe.why}", next=probe.next)
        text = f"{row.tier}: asked for; {probe.why}"
        return Choice(row, text, kernel_set=kernel_set, device=_format_device_name(device))
    if not row.simulable:
        if device in ("sim", "hw") and not simulate:  # one tier was asked for, and not for its device
            gpus = ", ".join(item.tier for item in registry.built() if item.simulable)
            raise UsageError(f"--device {device} supports {gpus}, not {row.tier}", next="remove one of them")
        probe = _probe(row, device)
        if not probe.usable:
            raise UnsupportedError(f"tier {row.tier}: {probe.why}", next=probe.next)
        return Choice(row, f"{row.tier}: asked for", gpu=probe.gpu, kernel_set=kernel_set)
    if device == "cpu":
        cpu = ", ".join(item.tier for item in registry.built() if not item.simulable)
        raise UsageError(f"--device cpu supports {cpu}, not {row.tier}", next="remove one of them")
    if device == "sim" or (device == "auto" and simulate and not find_amd_gpus()):
        text = "asked for" if device == "sim" else "this machine has no AMD GPU"
        return _choose_simulated(row, text, kernel_set, options)
    probe = _probe(row, device, unchecked)
    if not probe.usable:
        raise UnsupportedError(
            f"tier {row.tier}: {probe.why}",
            next=f"{probe.next}; or use a simulated GPU: --device sim"
            if probe.next
            else "--device sim simulates one",
        )
    text = f"{row.tier}: asked for; {probe.why}"
    return Choice(row, text, gpu=probe.gpu, kernel_set=kernel_set, unchecked=probe.unchecked)


def _check_simulated_availability(name: str | None) -> Availability:
    """Return whether models can run on a simulated chip; None: the default chip."""
    from zinc_rt.sim.chips import find_chip

    target = find_chip(name or DEFAULT_ARCH).isa
    if target.kernels:
        return Availability(True, SIMULATED)
    runnable = " or ".join(f"sim:{row.name}" for row in CHIPS if row.kernels)
    return Availability(
        False, f"no kernels for {target.name} in this build", f"--device {runnable}; --tier t_cpu needs no GPU"
    )


def _choose_simulated(row: BackendSpec, reason: str, kernel_set: str, options: dict[str, Any]) -> Choice:
    """Return the choice of a simulated device. Raises UnsupportedError for a chip without kernels."""
    result = _check_simulated_availability(options.get("chip"))
    if not result.usable:
        raise UnsupportedError(result.why, next=result.next)
    return Choice(row, f"{row.tier}: {reason}; {SIMULATED}", True, kernel_set=kernel_set, options=options)


def _probe(row: BackendSpec, device: str, unchecked: bool = False, chip: str | None = None) -> Availability:
    if not row.built:
        return Availability(False, "is not built in this version", registry.use_built())
    if row.lists_devices:
        return row.probe(Host(count_available_cores(), device=_format_device_name(device)))
    if row.simulable and device == "sim":
        return _check_simulated_availability(chip)
    if row.simulable and device == "cpu":
        return Availability(False, "--device cpu")
    if row.simulable:
        driver = find_linux_driver()
        probe = row.probe(Host(count_available_cores(), driver, find_amd_gpus()))
        return probe if driver is None else require_bring_up(row, driver, probe, unchecked)
    return row.probe(Host(count_available_cores()))


def _format_device_name(device: str) -> str:
    """Return the part of --device that applies to a tier that lists its devices."""
    return device if device in ("hw", "cpu") else parse_device(device)[1]


def _describe_unused_gpus(taken: BackendSpec, device: str) -> list[str]:
    """Return tiers that auto never selects but that would use a GPU of this machine, unlike the selected tier."""
    if taken.simulable or device != "auto" or not has_gpu():
        return []
    others = [(row, _probe(row, "hw")) for row in registry.built() if row.lists_devices]
    return [
        f"{row.title.split()[-1]} runs on {result.why}: --tier {row.tier}"
        for row, result in others
        if result.usable
    ]


def has_gpu() -> bool:
    """Return whether the machine has a GPU. Drivers are probed only then. Outside Linux the answer is
    unknown."""
    nodes = (*Path("/dev/dri").glob("renderD*"), *Path("/dev").glob("nvidia[0-9]*"))
    return sys.platform != "linux" or bool(nodes)


def require_bring_up(
    row: BackendSpec, driver: Driver, availability: Availability, unchecked: bool
) -> Availability:
    """Return `availability`, marked unusable if it is a GPU on whose setup pm4-test has not passed with this tier,
    unless `unchecked`."""
    ready = [device for device in availability.devices if device.usable and device.gpu is not None]
    if not availability.usable or driver.simulated:
        return availability
    verdicts = [
        checked.check_verdict(checked.identify_setup(driver, item.gpu), row.tier) for item in ready if item.gpu
    ]
    for item, verdict in zip(ready, verdicts, strict=True):
        if verdict.passed:
            return replace(availability, why=f"{item.device}: {item.why}, {verdict.why}", gpu=item.gpu)
    if not ready:
        return availability
    if unchecked:
        return replace(availability, unchecked=verdicts[0].why)
    path = ready[0].gpu.render_path if ready[0].gpu else "auto"
    return replace(
        availability,
        usable=False,
        why=f"{ready[0].device}: {verdicts[0].why}",
        next=f"zinc-rt pm4-test --device {path} --tiers {row.tier} --hazard 1, or zinc-rt bring-up from the "
        "beginning; --unchecked runs it all the same",
    )


def find_amd_gpus() -> tuple[Gpu, ...]:
    driver = find_linux_driver()
    return find_gpus(driver).gpus if driver is not None else ()


def find_linux_driver() -> Driver | None:
    """Return this machine's driver, or None outside Linux, where GPU tiers are unavailable."""
    if sys.platform != "linux":
        return None
    from zinc_rt.kmd.linux import LinuxDriver

    return LinuxDriver()


def open_backend(choice: Choice, ordering: str, **options: Any) -> Backend:
    """Open a new backend, which owns its device. `options`: tier options; each tier uses those it supports,
    and a value of 0 or empty selects the tier's default."""
    argument = {name: value for name, value in options.items() if value}
    with ExitStack() as undo:
        driver: Driver | None = None
        if choice.simulated:
            from zinc_rt.sim.serve.client import SimClient

            # one device for all tiers of this process that ask for the same options
            client = SimClient(name=f"models-{os.getpid()}", **choice.options)
            undo.callback(client.close_all)
            driver = client
        elif choice.spec.simulable:
            driver = find_linux_driver()
            if choice.gpu is not None:
                undo.callback(locks.give_back, locks.take_lock(choice.gpu.render_path))
        after = undo.pop_all().close
        backend: Backend = choice.spec.open(
            ordering,
            kernel_set=choice.kernel_set,
            driver=driver,
            gpu=choice.gpu,
            options=argument,
            after=after,
            device=choice.device,
        )
    if choice.unchecked:
        backend.device = replace(backend.device, unchecked=choice.shortcut)
    return backend
