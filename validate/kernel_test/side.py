"""A tier and ordering on which cases run, opened in a separate process."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from zinc_rt.backends import registry
from zinc_rt.backends.base import Backend
from zinc_rt.cli.options import find_simulated_chip, order_options, simulation_options
from zinc_rt.engine.devices import NAMES, Choice, choose_tier, open_backend
from zinc_rt.host.errors import InputError, UsageError, ZincError
from zinc_rt.isa.target import DEFAULT_ARCH, TARGETS
from zinc_rt.kernels.sets import BinaryKernels, KernelSet, find_chip_kernels, find_code_chip, find_kernel_set
from zinc_rt.kernels.zrt import Zrt, read_zrt
from zinc_rt.sim.chips import find_chip


@dataclass(frozen=True, slots=True)
class Side:
    """A worker's tier. `simulated`: on the simulated device. `replaced` are .zrt files that replace the kernels
    with the same names in the set.
    """

    tier: str
    ordering: str
    kernels: str  # the kernel set's name
    simulated: bool = False
    device: str = "auto"
    sanitizer: str = "full"
    replaced: tuple[str, ...] = ()
    unchecked: bool = False
    coherence: str | None = None
    reorder: int | None = None
    chip: str | None = None

    @property
    def name(self) -> str:
        """Return the tier's name, with its kernel set if it is not the tier's first."""
        first = registry.spec(self.tier).kernel_sets[0]
        return self.tier if self.kernels == first else f"{self.tier}:{self.kernels}"

    @property
    def label(self) -> str:
        return f"{self.name} (SIMULATED)" if self.simulated else self.name

    @property
    def options(self) -> str:
        """Return the command-line options that select this side."""
        words = ["--tier", self.name]
        if self.simulated or self.device != "auto":
            words += ["--device", find_simulated_chip(self.as_dict()) if self.simulated else self.device]
        if self.ordering != "canonical-1":
            words += ["--ordering", self.ordering]
        if self.simulated and self.sanitizer != "full":
            words += ["--sanitizer", self.sanitizer]
        if self.simulated:
            words += order_options(self.as_dict())
        for path in self.replaced:
            words += ["--replace", path]
        return shlex.join(words)

    def set(self) -> KernelSet:
        arch = find_chip(self.chip or DEFAULT_ARCH).isa.name
        base = find_chip_kernels(arch, self.kernels) if self.simulated else find_kernel_set(self.kernels)
        assert base is not None, self.kernels
        return with_replaced(base, self.replaced) if self.replaced else base

    def choice(self) -> Choice:
        asked: dict[str, Any] = simulation_options(Namespace(**self.as_dict())) if self.simulated else {}
        device = "sim" if self.simulated else self.device
        return choose_tier(self.name, device, ordering=self.ordering, unchecked=self.unchecked, **asked)

    def open(self) -> Backend:
        options: dict[str, Any] = {"kernels": self.set()} if self.replaced else {}
        return open_backend(self.choice(), self.ordering, **options)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse_side(data: Mapping[str, Any]) -> Side:
    """Create a side from the result of `as_dict`, read from JSON."""
    return Side(**{**data, "replaced": tuple(data["replaced"])})


def make_sides(
    asked: str,
    device: str,
    *,
    ordering: str = "",
    sanitizer: str = "full",
    replaced: tuple[str, ...] = (),
    unchecked: bool = False,
    coherence: str | None = None,
    reorder: int | None = None,
    chip: str | None = None,
    unusable: Callable[[str, str], None] = lambda tier, reason: None,
    oracle: bool = False,
) -> list[Side]:
    """Return the sides for the comma-separated tiers `asked`; "" selects one tier for each kernel set except the
    oracle's own, and with `device` sim only those that can be simulated. Without an AMD GPU, a GPU tier is
    simulated unless `device` is hw. `unusable` is called for a tier that cannot run and was not requested
    explicitly. Raise UsageError for the oracle unless `oracle`, and the exceptions of choose_tier.
    """
    selected: list[Side] = []
    for tiers in [[part.strip()] for part in asked.split(",")] if asked else _group_by_set():
        reasons = []
        for tier in tiers:
            row, named = registry.parse(tier)
            if device == "sim" and not asked and not row.simulable:
                continue
            if not asked and device != "hw" and not _runs_on_simulated(named, chip):
                continue
            if row.tier == registry.ORACLE and not oracle:
                raise UsageError(
                    f"--tier {registry.ORACLE}: the oracle cannot be tested against itself",
                    next="omit --tier; --mode support and --mode perf take it",
                )
            try:
                choice = choose_tier(tier, device, simulate=device in NAMES, unchecked=unchecked)
            except ZincError as error:
                if asked:
                    raise
                reasons.append((tier, str(error)))
                continue
            selected += [
                Side(
                    row.tier,
                    ordering,
                    named or _set_of(choice, chip),
                    choice.simulated,
                    device,
                    sanitizer,
                    replaced,
                    unchecked,
                    coherence,
                    reorder,
                    chip or (named if named in TARGETS and named != DEFAULT_ARCH and choice.simulated else None),
                )
                for ordering in list_orderings(row.tier, ordering)
            ]
            break
        else:
            for reason in reasons:
                unusable(*reason)
    return selected


def list_orderings(tier: str, ordering: str) -> tuple[str, ...]:
    """Return the orderings to test: the requested one, or all that the tier supports. Raise UsageError for an
    ordering that it does not support.
    """
    row = registry.spec(tier)
    if not ordering:
        return row.orderings or ("canonical-1",)
    if not row.computes(ordering):
        raise UsageError(
            f"--ordering {ordering}: {tier} computes {', '.join(row.orderings)}", next="leave --ordering out"
        )
    return (ordering,)


def with_replaced(kernels: KernelSet, paths: tuple[str, ...]) -> KernelSet:
    """Return the set with these containers instead of its own. Raise InputError for a file that is unreadable or
    for another chip, UsageError for a set without containers or without a kernel of this name.
    """
    if not isinstance(kernels, BinaryKernels):
        raise UsageError(f"--replace: the kernels of {kernels.target} are not .zrt containers")
    argument: dict[str, Zrt] = {}
    for path in paths:
        try:
            zrt = read_zrt(Path(path).read_bytes(), path)
        except OSError as error:
            raise InputError(f"{path}: cannot read: {error.strerror}") from error
        if zrt.target != kernels.target:
            raise InputError(f"{path}: was built for {zrt.target}, not {kernels.target}")
        if zrt.name not in kernels.names():
            raise UsageError(f"{path}: {kernels.target} has no kernel {zrt.name}")
        argument[zrt.name] = zrt
    load = kernels.load
    return replace(kernels, load=lambda name: argument[name] if name in argument else load(name))


def _group_by_set() -> list[list[str]]:
    """Return the tiers for each kernel set except the oracle's, the tier with the fewest dependencies first. A
    kernel's bits do not depend on the queue, so the first usable tier is sufficient.
    """
    tiers: dict[str, list[str]] = {}
    for row in reversed(registry.preferred()):
        for name in row.kernel_sets if row.tier != registry.ORACLE else ():
            tiers.setdefault(name, []).append(f"{row.tier}:{name}")
    return list(tiers.values())


def _runs_on_simulated(named: str, chip: str | None) -> bool:
    """Return whether a kernel set runs on the simulated chip, if one is requested. Without a request, a chip's own
    set runs on that chip, any other set of AMD tiers on the default chip."""
    known = find_kernel_set(named)
    if chip is None or known is None or known.target not in TARGETS:
        return True
    return find_chip_kernels(find_chip(chip).isa.name, named) is not None


def _set_of(choice: Choice, chip: str | None) -> str:
    """Return the kernel set of the device that a tier would use. `chip`: of a simulated device."""
    if choice.kernel_set:
        return choice.kernel_set
    arch = choice.gpu.arch if choice.gpu is not None else find_chip(chip or DEFAULT_ARCH).isa.name
    code = find_code_chip(arch)
    return code if code in choice.spec.kernel_sets else choice.spec.kernel_sets[0]
