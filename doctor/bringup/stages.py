"""The stages of a bring-up: commands, possible consequences, possible losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.registry import PROBES

MODEL = FOLDER / "qwen3-q.gguf"  # the smallest that has every kind of layer of a dense model
GATES = "M0"
DOCTOR = "doctor"


@dataclass(frozen=True, slots=True)
class BringupTarget:
    """The device of a bring-up. `tiers`: the tiers that passed hazard 1; `lit`: connectors that drive a
    display.
    """

    spec: DeviceSpec
    tiers: tuple[str, ...] = ()
    lit: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """Return the device in the notation of commands that run models."""
        return "sim" if self.spec.simulated else "hw"


@dataclass(frozen=True, slots=True)
class BringupStage:
    """One stage. `words`: the command after zinc-rt; empty for doctor. `may_block`: exit code 77 is a
    valid result."""

    name: str
    title: str
    can_happen: str
    lost: str
    words: Callable[[BringupTarget], list[str]] = lambda target: []
    may_block: bool = False


def _probe_command(hazard: int) -> Callable[[BringupTarget], list[str]]:
    def build_words(target: BringupTarget) -> list[str]:
        line = ["pm4-test", "--device", target.spec.option, "--hazard", str(hazard)]
        for name in target.spec.inject:
            line += ["--inject", name]
        if hazard < 2:
            return line
        line += ["-k", ",".join(probe.id for probe in PROBES if probe.hazard == 2)]
        return [*line, "--force"] if target.lit else line

    return build_words


def _validate_command(*more: str) -> Callable[[BringupTarget], list[str]]:
    def build_words(target: BringupTarget) -> list[str]:
        tiers = ",".join((*target.tiers, *(() if "--layers" in more else ("t_cpu",))))
        return ["validate", "--model", str(MODEL), "--tiers", tiers, "--device", target.device, *more]

    return build_words


STAGES: tuple[BringupStage, ...] = (
    BringupStage(DOCTOR, "read system information", "nothing: read-only", "nothing"),
    BringupStage(
        "hazard-0",
        "probes that cannot hang: nodes, memory, events, rejected calls",
        "the driver allocates and frees a few MB; a faulty driver may log an error",
        "nothing, unless the driver crashes the kernel",
        _probe_command(0),
    ),
    BringupStage(
        "hazard-1",
        "probes that may hang: queues, packets, shaders",
        (
            "if chip, firmware or driver behave unexpectedly, the GPU hangs and the driver resets it, or "
            "the machine freezes"
        ),
        "unsaved work of every program that uses this GPU; if the machine freezes, all unsaved work",
        _probe_command(1),
    ),
    BringupStage(
        "hazard-2",
        "deliberate faults and hangs, to test the driver's recovery",
        "page faults, illegal code, endless waits: the GPU is reset several times, and some kernels do not "
        "survive it",
        (
            "the GPU memory of every program; if the reset fails, all unsaved work: save it, and be "
            "prepared to press the reset button"
        ),
        _probe_command(2),
    ),
    BringupStage(
        "first-kernel",
        "one layer of a small model, one token, compared bit for bit with the reference",
        "the first run of one of this project's kernels on the card: wrong code can hang it or cause a fault",
        "as with hazard-1",
        _validate_command("--layers", "0:1", "--steps", "0", "--tokens", "1"),
    ),
    BringupStage(
        "first-model",
        "a complete small model, every layer and logit compared with T-CPU and llama.cpp",
        "several thousand dispatches: the card gets warm, races and cache faults appear",
        "as with hazard-1",
        _validate_command(),
    ),
    BringupStage(
        "gates",
        f"milestone {GATES}, criterion by criterion",
        "the same kernels again, on the CPU and the card",
        "as with hazard-1",
        lambda target: ["perf", "gate", "--milestone", GATES, "--device", target.device],
        may_block=True,
    ),
)
NAMES = tuple(stage.name for stage in STAGES)
