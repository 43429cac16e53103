"""Configuration of a simulated machine: the user's options, and the rows and switches they select."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zinc_rt.host.facts import flipped as flipped_here
from zinc_rt.sim import flip as flips
from zinc_rt.sim.chips import Chip
from zinc_rt.sim.chips import find_chip as chip_row
from zinc_rt.sim.facts import DEFAULT, Behaviour, load
from zinc_rt.sim.profiles import LinuxProfile
from zinc_rt.sim.profiles import find_profile as linux_row
from zinc_rt.sim.shader_engine import LEVELS

COHERENCE = ("bar", "direct", "caches")


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """`chip`: rows of sim.chips, separated by commas. `linux`: a row of sim.profiles.

    `inject`: faults of sim.inject. `coherence`: "bar" (two copies of VRAM), "direct" (one), or "caches"
    ("bar", and waves load through caches whose lines become stale; slow). `time_scale` shortens the
    driver's time-outs. `reorder` is a seed that lets concurrent work finish in any order, which exposes
    missing barriers, runs workgroups and waves in another order, and selects the lines that caches keep.
    `sanitizer`: off, fast, full. `perturb`: a seed that changes results of inexact instructions by up to one
    ULP, 0 for none. `reverse_lanes`: memory instructions access the highest lane first. `threads`: None for
    all cores. `profile`: count instructions and bytes. `facts`: a file of sim.facts that this machine follows;
    `force_facts` accepts any such file. `flip`: rows of facts.yaml to negate, in addition to
    zinc_rt.host.facts.flipped.
    """

    chip: str = "r9700"
    linux: str = "7.0"
    inject: Sequence[str] = ()
    coherence: str = "bar"
    time_scale: float = 1.0
    reorder: int | None = None
    sanitizer: str = "fast"
    perturb: int = 0
    reverse_lanes: bool = False
    threads: int | None = None
    profile: bool = False
    facts: str | Path | None = None
    force_facts: bool = False
    flip: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.coherence not in COHERENCE:
            raise ValueError(f"coherence {self.coherence!r}: expected {', '.join(COHERENCE)}")
        if self.sanitizer not in LEVELS:
            raise ValueError(f"sanitizer {self.sanitizer!r}: expected {', '.join(LEVELS)}")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"{self.threads} threads: expected 1 or more")

    def to_json(self) -> dict[str, Any]:
        """Return all options by name, in types that JSON keeps."""
        document = asdict(self)
        document["inject"], document["flip"] = list(self.inject), list(self.flip)
        document["facts"] = None if self.facts is None else str(self.facts)
        return document


DEFAULT_OPTIONS = MachineOptions()


@dataclass(frozen=True, slots=True)
class MachineModel:
    """The options with their rows looked up, the facts file read and the flipped rows applied."""

    options: MachineOptions
    chips: tuple[Chip, ...]
    linux: LinuxProfile
    behaviour: Behaviour
    flipped: tuple[str, ...]  # ids

    @property
    def coherence(self) -> str:
        return "direct" if self.behaviour.bar_without_flush == "fresh" else self.options.coherence

    @property
    def cache_seed(self) -> int | None:
        """Return the seed that selects the lines that caches keep, or None if waves have no caches."""
        return self.options.reorder or 0 if self.options.coherence == "caches" else None

    @property
    def order_seed(self) -> int:
        """Return the seed that decides the order of workgroups and waves, 0 for the usual one."""
        return 0 if self.options.reorder is None else self.options.reorder + 1

    @property
    def perturb(self) -> int:
        return flips.choose_perturbation(self.options.perturb, self.flipped)

    def describe_options(self) -> dict[str, Any]:
        """Return the relevant options, for reports."""
        chosen = self.options
        result: dict[str, Any] = {"chip": chosen.chip, "kernel": chosen.linux, "coherence": self.coherence}
        result["time_scale"] = chosen.time_scale
        if chosen.reorder is not None:
            result["reorder"] = chosen.reorder
        result["sanitizer"] = chosen.sanitizer
        if chosen.perturb:
            result["perturb"] = chosen.perturb
        if chosen.reverse_lanes:
            result["reverse_lanes"] = True
        if chosen.facts is not None:
            result["facts"] = str(chosen.facts)
        if self.flipped:
            result["flip"] = list(self.flipped)
        return result


def make_machine_model(options: MachineOptions) -> MachineModel:
    """Resolve the options. Raises ValueError for an unknown row, InputError and UsageError for unusable
    facts."""
    behaviour = DEFAULT
    names = options.chip.split(",")
    if options.facts is not None:
        known = load(Path(options.facts), chip=chip_row(names[0]).gfx, force=options.force_facts)
        behaviour = known.behaviour()
    flipped = flips.find_rows(dict.fromkeys((*options.flip, *flipped_here.get())))
    return MachineModel(
        options,
        tuple(flips.negate_chip(chip_row(name), flipped) for name in names),
        flips.negate_linux(linux_row(options.linux), flipped),
        flips.negate_behaviour(behaviour, flipped),
        tuple(item.id for item in flipped),
    )
