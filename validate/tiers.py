"""The tiers of a validation, parsed from --tiers."""

from __future__ import annotations

from dataclasses import dataclass, field

from zinc_rt.backends import registry
from zinc_rt.engine.devices import ORACLE, Choice
from zinc_rt.host.errors import UsageError


@dataclass(frozen=True, slots=True)
class TierSpec:
    """A tier, its kernels and its ordering: TIER[:KERNELSET][:ORDERING] on the command line."""

    tier: str
    ordering: str
    text: str = field(compare=False)
    kernel_set: str = ""
    choice: Choice = field(default=ORACLE, compare=False)  # the device behind it

    @property
    def name(self) -> str:
        """Return the tier's name as the registry parses it."""
        return f"{self.tier}:{self.kernel_set}" if self.kernel_set else self.tier


def parse_tiers(text: str, ordering: str, known: tuple[str, ...]) -> list[TierSpec]:
    """Parse --tiers. Raise UsageError for an unknown or repeated tier, kernel set or ordering, UnsupportedError
    for a tier that is not built.
    """
    specs: list[TierSpec] = []
    for part in text.split(","):
        name, *rest = part.strip().split(":")
        own = rest.pop() if rest and rest[-1] in known else ordering
        row, _ = registry.parse(name)
        if len(rest) > 1 or not set(rest) <= set(row.kernel_sets):
            raise UsageError(
                f"--tiers {part}: {row.tier} has no ordering or kernel set named {':'.join(rest)!r}",
                next=f"orderings: {', '.join(known)}; kernel sets: {', '.join(row.kernel_sets)}",
            )
        spec = TierSpec(row.tier, own, part.strip(), "".join(rest))
        if spec in specs:
            raise UsageError(
                f"--tiers contains {spec.text} twice with the same ordering",
                next="add an ordering: t_cpu,t_cpu:float32-dequant",
            )
        specs.append(spec)
    return specs
