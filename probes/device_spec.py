"""The selected device, as given by --device and related options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """The value of `--device`. An empty `render_path` selects the first GPU that this version supports."""

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
        """Return the device in the notation of --device."""
        if self.simulated:
            return f"sim:{self.profile}" if self.profile else "sim"
        return self.render_path or "auto"

    def scale_timeout(self, seconds: float) -> float:
        """Return the time to wait for a time-out of the driver, which is shorter if its time-outs are scaled."""
        return max(seconds * self.time_scale, min(seconds, 1.0))

    @property
    def shortcuts(self) -> list[str]:
        """Return the deviations of a simulated device from its default, for reports."""
        if not self.simulated:
            return []
        descriptions = [f"timeouts of the simulated driver are scaled by {self.time_scale:g}"]
        descriptions += [f"the simulated device uses the facts of {self.facts}"] * bool(self.facts)
        descriptions += [f"the simulated device has assumption {row} negated" for row in self.flip]
        if self.reorder is not None:
            descriptions.append(f"concurrent work finishes in a random order, seed {self.reorder}")
        descriptions += [f"the simulated device's memory is --coherence {self.coherence}"] * bool(self.coherence)
        return descriptions
