"""What a launch on a simulated device executed, by what the results rest on, and which outputs may depend on
instructions whose results are not exact."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.dependence import MemoryUse, find_dependent_memory
from zinc_rt.isa.target import target_of
from zinc_rt.launching.code_object import CodeImage, CodeKernel
from zinc_rt.sim.executions import KernelExecution
from zinc_rt.sim.shader.translate.evidence import CLASSES, find_basis, find_evidence

SOURCES = {
    "manual": "by the ISA manual",
    "ieee": "by IEEE 754",
    "captured": "as captured on gfx1201",
    "assumed": "assumed",
    "approximate": "approximate",
}


@dataclass(frozen=True, slots=True)
class ExecutedInstructions:
    """The instructions of one run of a kernel, each counted once per wave.

    `classes`: numbers by class (docs/support.md); manual, ieee and captured are exact. `inexact`: numbers of
    assumed and approximate ones by mnemonic. `outputs`: for each output the inexact ones that it may depend on: an
    over-approximation (docs/launch.md).
    """

    classes: dict[str, int] = field(default_factory=dict)
    inexact: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """Return the text to display: the numbers, then the outputs if there are inexact instructions."""
        parts = []
        for kind, count in self.classes.items():
            names = [name for name in self.inexact if find_evidence(name).kind == kind]
            parts.append(f"{count:,} {SOURCES[kind]}" + (f" ({', '.join(names)})" if names else ""))
        lines = [f"executed instructions: {', '.join(parts)}"] if parts else []
        if self.inexact and self.outputs:
            texts = [f"{name} may depend on {', '.join(names)}" for name, names in self.outputs.items() if names]
            rest = [name for name, names in self.outputs.items() if not names]
            if rest:
                texts.append(f"{', '.join(rest)} {'depend' if len(rest) > 1 else 'depends'} on exact ones only")
            lines.append("; ".join(texts))
        return lines


def list_executed_instructions(
    image: CodeImage,
    kernel: CodeKernel,
    runs: Iterable[KernelExecution],
    outputs: Mapping[str, tuple[int, int]],
) -> ExecutedInstructions | None:
    """Return the executed part of a kernel, None if it is not known. `outputs`: (VA, VA after the last byte) by
    name.
    """
    run = next((run for run in runs if run.kernel.partition("+")[0] == kernel.name), None)
    if run is None:
        return None
    entry = kernel.entry_at
    flow = find_control_flow(image.image, target_of(image.arch, kernel.wave), entry, running=True)
    instructions = dict(flow.instructions())
    pcs = sorted(instructions)
    classes: Counter[str] = Counter()
    inexact: Counter[str] = Counter()
    executed = set()
    for part in run.code:
        for pc in pcs[bisect_left(pcs, part.start + entry) : bisect_left(pcs, part.end + entry)]:
            executed.add(pc)
            basis = find_basis(instructions[pc], flow.target.generation)
            classes[basis.kind] += part.times
            if not basis.exact:
                inexact[instructions[pc].row.name] += part.times
    dependent: dict[str, frozenset[str]] = dict.fromkeys(outputs, frozenset())
    if inexact:
        ranges = {access.pc + entry: access.ranges for access in run.accesses}
        dependent = find_dependent_memory(
            flow, list(inexact), MemoryUse(executed & flow.blocks.keys(), ranges), outputs
        )
    return ExecutedInstructions(
        {kind: classes[kind] for kind in CLASSES if classes[kind]},
        dict(inexact.most_common()),
        {name: tuple(item for item in inexact if item in names) for name, names in dependent.items()},
    )
