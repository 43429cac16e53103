"""Which device is meant, as --device and the options beside it say it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """`--device`. `render_path` "" takes the first GPU this version supports."""

    simulated: bool = False
    profile: str = ""
    render_path: str = ""
    inject: tuple[str, ...] = ()
    time_scale: float = 1.0  # of the simulated driver's own time-outs
    reorder: int | None = None  # a seed for the order in which concurrent work finishes
    facts: str = ""  # a facts file that a simulated device behaves by
    force_facts: bool = False
    flip: tuple[str, ...] = ()  # rows of facts.yaml that a simulated device takes at their other value
    sanitizer: str = ""  # what a simulated device checks of waves; "" its default
    coherence: str = ""  # what is stale until it is flushed or invalidated; "" the simulated device's default
    shared: str = ""  # the simulated device's name; "" makes one for each driver, in its process

    @property
    def option(self) -> str:
        """The device as --device takes it."""
        if self.simulated:
            return f"sim:{self.profile}" if self.profile else "sim"
        return self.render_path or "auto"

    @property
    def shortcuts(self) -> list[str]:
        """What a report says of a simulated device that is not as one is by itself."""
        if not self.simulated:
            return []
        said = [f"the simulated driver's time-outs are {self.time_scale:g} of the real ones"]
        said += [f"the simulated device behaves by {self.facts}"] * bool(self.facts)
        said += [f"the simulated device takes {row} at its other value" for row in self.flip]
        if self.reorder is not None:
            said.append(f"concurrent work finishes in an order of its own, seed {self.reorder}")
        said += [f"the simulated device's memory is --coherence {self.coherence}"] * bool(self.coherence)
        return said
