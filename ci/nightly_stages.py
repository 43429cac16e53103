"""The stages of a nightly run: the commands of each, in order, with their output files.

Also the speed measurements of the models, the Vulkan devices, and reading and writing of files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from clients import ready_clients
from outside import list_ready_programs

HEAD = re.compile(r"head +([0-9a-f]{64})")  # as perf bench and perf history print it
ROOT = Path(__file__).resolve().parent.parent
MODELS = [ROOT / "golden" / f"{stem}.gguf" for stem in ("qwen3-q", "qwen35moe-q", "gemma4-q")]
GATES = ",".join(f"M{number}" for number in range(9))
MINUTES_A_MODEL = {"validate": 60.0, "vulkan": 60.0, "perf": 60.0, "gates": 10.0}  # more for each that is named
MINUTES_A_MUTANT = 8.0  # for all commands, which judge one that survives; the unmodified tree takes as long
RECORDED = ["--tokens", "1,2,3,4,5", "--max-tokens", "4"]
STATE = "state.json"
MUTANTS = "mutants.json"  # results of all nights
FLAKES = "flakes.json"  # nights and failures of each, kept from night to night
PEER = "llama-bench"
VULKAN_SECONDS = 60  # for the drivers of a machine to say what they have
INSTALL = "apt install mesa-vulkan-drivers libvulkan1 brings one in software"


def write_atomically(path: Path, content: dict[str, Any]) -> None:
    """Write JSON atomically, also in case of kill -9."""
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def read_state(folder: Path) -> dict[str, Any]:
    return read_json(folder / STATE)


def read_json(path: Path) -> dict[str, Any]:
    """Return the content; {} for a file that is missing or truncated."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def last_line(path: Path) -> str:
    """Return a log's last line with text."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    except OSError:
        return "no log"
    return lines[-1].strip()[:200] if lines else "said nothing"


def timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, order=True)
class SpeedRun:
    """One run of zinc-rt perf bench. `beside` is another program, run alternately. `shows` are the criteria that
    it measures; `requests`: at least one of them is measured through the scheduler.
    """

    model: Path
    tier: str
    slots: int
    beside: bool
    ctx: int
    shows: tuple[str, ...]
    requests: bool = False

    @property
    def name(self) -> str:
        """Return the name of its files."""
        tail = f"-{self.slots}slots" if self.slots > 1 else ""
        return f"bench-{self.model.stem}-{self.tier}{tail}{'-peer' if self.beside else ''}"

    def words(self) -> list[str]:
        """Return the arguments of `zinc-rt perf bench`."""
        argv = ["--model", str(self.model), "--tier", self.tier, "--ctx", str(self.ctx)]
        argv += ["--slots", str(self.slots)] if self.slots > 1 else []
        argv += ["--requests"] if self.requests else []
        if self.beside:
            argv += ["--vs", f"{PEER} -m {self.model} -p 0 -n 128 -r 1 -o json"]
        return argv


def file_identities(models: Sequence[Path]) -> dict[Path, dict[str, object]]:
    """Return the identity of each file, from its header. Raise ZincError for a file that is not a model."""
    from zinc_rt.model.gguf import read_gguf
    from zinc_rt.model.identity import identify_model

    return {model: identify_model(read_gguf(model)).as_dict() for model in models}


def required_speeds(models: Mapping[Path, Mapping[str, object]]) -> list[SpeedRun]:
    """Return one run for each tier and number of slots that a criterion requires of one of these models. Criteria
    that no bench of this version records, and tiers that are not built, have no run.
    """
    from zinc_rt.backends import registry
    from zinc_rt.perf.gate.figures import FIGURES
    from zinc_rt.perf.gate.milestones import REQUESTS, load_milestones
    from zinc_rt.perf.refusals.model import check_model_class

    shown_by: dict[tuple[Path, str, int, bool], list[str]] = {}
    ctx: dict[tuple[Path, str, int, bool], int] = {}
    criteria = [criterion for milestone in load_milestones() for criterion in milestone.criteria]
    for criterion in criteria:
        required = criterion.model
        if required is None or criterion.measure not in FIGURES or not registry.spec(criterion.tier).built:
            continue
        beside = criterion.measure == "against"
        if beside and shutil.which(PEER) is None:
            continue
        for model in (
            path for path, described in models.items() if check_model_class(described, required) is None
        ):
            key = (model, criterion.tier, criterion.slots, beside)
            shown_by.setdefault(key, []).append(criterion.name)
            ctx[key] = max(ctx.get(key, 0), required.ctx)
    rows = []
    for key, names in sorted(shown_by.items()):
        requests = any(criterion.measure in REQUESTS for criterion in criteria if criterion.name in names)
        rows.append(SpeedRun(*key, ctx[key], tuple(names), requests))
    return rows


@dataclass(frozen=True)
class Night:
    """The parameters of a run. `device` is as for every command; `folder` has one subfolder per stage. `models`
    are the named models, in addition to the embedded ones. `required` are stages that must not be skipped.
    `patience` multiplies their time limits. `mutants` of the product are judged, in addition to earlier ones.
    """

    device: str
    folder: Path
    corpus: Path
    quick: bool = False
    models: tuple[Path, ...] = ()
    required: tuple[str, ...] = ()
    patience: float = 1.0
    mutants: int = 0

    @property
    def required_speeds(self) -> list[SpeedRun]:
        """Return the measurements of the named models; none on a simulated device."""
        return [] if self.device == "sim" else required_speeds(file_identities(self.models))

    @property
    def head(self) -> str:
        """Return the history's head, as printed by the last command of this night that wrote it; "" if there is
        none.
        """
        logs = [path for stage in ("validate", "perf") for path in self.of(stage).glob("*.log")]
        printed = [
            match[1]
            for path in sorted(logs, key=lambda path: path.stat().st_mtime_ns)
            for match in HEAD.finditer(path.read_text(encoding="utf-8", errors="replace"))
        ]
        return printed[-1] if printed else ""

    @property
    def history(self) -> Path:
        """Return the history file, which is kept from night to night."""
        return self.folder / f"history-{self.device}.jsonl"

    def of(self, stage: str) -> Path:
        return self.folder / stage


@dataclass(frozen=True)
class StageCommand:
    """One process. `name` is the stem of its files in the stage's folder; `judged`: the results in its report
    count.
    """

    name: str
    argv: list[str]
    judged: bool = True


@dataclass(frozen=True)
class NightlyStage:
    """One stage. If `commands` is empty, `why_not` is the reason. `card`: the stage uses the card of the night."""

    name: str
    commands: Callable[[Night], list[StageCommand]]
    why_not: Callable[[Night], str]
    minutes: float
    card: bool = True


def zinc_command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "zinc_rt.cli", *map(str, words)]


def missing_modules(*commands: str) -> list[str]:
    """Return which of `commands` this checkout lacks."""
    known = {point.name for point in entry_points(group="zinc_rt.commands")}
    return [name for name in commands if name not in known]


def missing_commands(*commands: str) -> Callable[[Night], str]:
    def why_not(night: Night) -> str:
        missing = missing_modules(*commands)
        return f"zinc-rt {missing[0]} is not built in this version" if missing else ""

    return why_not


def output_options(night: Night, stage: str, name: str, *, html: bool = False) -> list[str]:
    folder = night.of(stage)
    files = ["--json", str(folder / f"{name}.json"), "--junit", str(folder / f"{name}.xml")]
    return [*files, "--html", str(folder / f"{name}.html")] if html else files


def probe_commands(night: Night) -> list[StageCommand]:
    line = zinc_command("pm4-test", "--device", night.device, "--bundle", night.of("probes") / "bundle")
    only = ["-k", "P01-P24"] if night.quick else []
    return [StageCommand("pm4-test", [*line, *only, *output_options(night, "probes", "pm4-test")])]


def validate_commands(night: Night) -> list[StageCommand]:
    models = [*(MODELS[:1] if night.quick else MODELS), *night.models]
    commands = [
        StageCommand(
            model.stem,
            [
                *zinc_command("validate", "--model", model, "--tiers", "t1,t2,t_cpu", "--device", night.device),
                *output_options(night, "validate", model.stem, html=True),
            ],
        )
        for model in models
    ]
    line = zinc_command("selftest", *([] if night.quick else ["--models"]))
    commands.append(StageCommand("selftest", [*line, "--json", str(night.of("validate") / "selftest.json")]))
    if night.models:  # a speed's proof of bits is on record, as the speed is
        reports = [night.of("validate") / f"{model.stem}.json" for model in night.models]
        line = zinc_command("perf", "history", night.history, "--add", *reports)
        commands.append(StageCommand("record", line, judged=False))
    return commands


def log_commands(night: Night) -> list[Path]:
    return sorted(night.corpus.glob("*.zlog"))


def serving_commands(night: Night) -> list[StageCommand]:
    """Run the scheduler in virtual time, without a device, and mixes of requests on every tier."""
    folder = night.of("serving")
    workloads = ["--workload", "interactive"] if night.quick else []
    mixes, drafted = ("50", "20") if night.quick else ("5000", "2000")
    commands = [
        StageCommand("sched-test", zinc_command("sched-test", *workloads, "--json", folder / "sched-test.json")),
        StageCommand("sched-mixes", zinc_command("sched-test", "--mixes", mixes, "--json", folder / "mixes.json")),
    ]
    tiers = "t_cpu" if night.quick else "t1,t2,t_cpu"
    for model in MODELS[:1] if night.quick else MODELS:
        line = zinc_command("validate", "--isolation", "--model", model, "--tiers", tiers, "--requests", "12")
        line += ["--device", night.device]
        name = f"isolation-{model.stem}"
        commands.append(StageCommand(name, [*line, *output_options(night, "serving", name)]))
        line = zinc_command("validate", "--isolation", "--model", model, "--tiers", "t_cpu_native")
        line += ["--requests", "6", "--drafts", "all", "--mixes", drafted]
        name = f"drafts-{model.stem}"
        commands.append(StageCommand(name, [*line, *output_options(night, "serving", name)]))
    return commands


def replay_commands(night: Night) -> list[StageCommand]:
    """Replay the stored logs; if there are none, logs recorded now on T-CPU."""
    folder, stored = night.of("replay"), log_commands(night)
    commands: list[StageCommand] = []
    pairs = [(log, ROOT / "golden" / f"{log.stem}.gguf") for log in stored]
    if not stored:
        for model in MODELS[:1] if night.quick else MODELS:
            log = folder / f"{model.stem}.zlog"
            run = ["run", "--model", str(model), "--tier", "t_cpu", *RECORDED]
            commands.append(
                StageCommand(f"record-{model.stem}", zinc_command("trace", "-o", log, "--", *run), judged=False)
            )
            pairs.append((log, model))
    for log, model in pairs:
        named = ["--model", str(model)] if model.exists() else []
        line = zinc_command("replay", log, *named, "--tiers", "t1,t2,t_cpu", "--device", night.device)
        commands.append(StageCommand(log.stem, [*line, "--json", str(folder / f"{log.stem}.json")]))
    return commands


def perf_commands(night: Night) -> list[StageCommand]:
    """Measure speed: a small run on a simulated device, whose speed is not evidence; a complete run on
    hardware.
    """
    simulated = night.device == "sim"
    load = ["--prompt-tokens", "8", "--tokens", "8", "--runs", "3"] if simulated else ["--runs", "5"]
    folder, model = night.of("perf"), MODELS[0]
    commands = []
    for tier in ("t_cpu",) if night.quick else ("t_cpu", "t1", "t2"):
        device = ["--device", night.device] if tier != "t_cpu" else []
        line = zinc_command(
            "perf", "bench", "--model", model, "--tier", tier, *device, *load, "--history", night.history
        )
        commands.append(StageCommand(f"bench-{tier}", [*line, "--json", str(folder / f"bench-{tier}.json")]))
    for speed in night.required_speeds:
        line = zinc_command("perf", "bench", *speed.words(), "--device", night.device, "--history", night.history)
        commands.append(StageCommand(speed.name, [*line, "--json", str(folder / f"{speed.name}.json")]))
    for item in [*MODELS, *night.models]:
        line = zinc_command("perf", "predict", "--model", item, "--json", folder / f"predict-{item.stem}.json")
        commands.append(StageCommand(f"predict-{item.stem}", line))
    return commands


@dataclass(frozen=True)
class NightDevice:
    """A Vulkan device. `option` is for --device; `software`: its driver computes on the processor; `why_not` is
    the reason if it cannot run, else "".
    """

    option: str
    name: str
    software: bool
    why_not: str = ""

    @property
    def stem(self) -> str:
        """Return the stem of file names."""
        return self.option.replace(":", "")


@cache
def list_devices() -> tuple[NightDevice, ...]:
    """Return all devices that drivers list here; empty without a driver, or if one crashes the listing process."""
    try:
        result = subprocess.run(
            [sys.executable, "-m", "zinc_rt.cli", "devices", "--json", "-"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=VULKAN_SECONDS, check=False,
        )  # fmt: skip
        report = json.loads(result.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return ()
    return listed_devices(report)


def listed_devices(report: dict[str, Any]) -> tuple[NightDevice, ...]:
    """Return the Vulkan devices of a report of zinc-rt devices."""
    rows = [row for row in report["results"] if row["id"].endswith("/vulkan") and row["measure"].get("device")]
    return tuple(
        NightDevice(
            row["measure"]["device"],
            row["id"].rpartition("/")[0],
            bool(row["measure"]["software"]),
            "" if row["status"] == "pass" else row["reason"],
        )
        for row in rows
    )


def usable_devices(*, software: bool) -> list[NightDevice]:
    return [device for device in list_devices() if device.software == software and not device.why_not]


def no_usable_device(*, software: bool) -> str:
    """Return the reason if no such device can run anything, else ""."""
    if usable_devices(software=software):
        return ""
    broken = [f"{device.name}: {device.why_not}" for device in list_devices() if device.software == software]
    if broken:
        return "; ".join(broken)
    return f"no Vulkan driver in software: {INSTALL}" if software else "no GPU with a Vulkan driver"


def vulkan_commands(night: Night, stage: str, device: NightDevice, models: list[Path]) -> list[StageCommand]:
    """Run the device's probes, then compare models with T-CPU and, if one is committed, with the golden of every
    node.
    """
    name = f"{device.stem}-test"
    line = zinc_command("vulkan-test", "--device", device.option)
    commands = [StageCommand(name, [*line, *output_options(night, stage, name)])]
    for model in models:
        golden = model.with_name(f"{model.stem}.vulkan.npz")
        known = ["--golden", str(golden)] if golden.exists() else []
        name = f"{device.stem}-{model.stem}"
        line = zinc_command(
            "validate", "--model", model, *known, "--tiers", "vulkan,t_cpu", "--device", device.option
        )
        commands.append(StageCommand(name, [*line, *output_options(night, stage, name, html=True)]))
    return commands


def lavapipe_commands(night: Night) -> list[StageCommand]:
    """Use software drivers: the same SPIR-V through a real compiler, without a card."""
    models = MODELS[:1] if night.quick else MODELS
    return [
        command
        for device in usable_devices(software=True)
        for command in vulkan_commands(night, "lavapipe", device, models)
    ]


def vulkan_gpu_commands(night: Night) -> list[StageCommand]:
    models = [*(MODELS[:1] if night.quick else MODELS), *night.models]
    return [
        command
        for device in usable_devices(software=False)
        for command in vulkan_commands(night, "vulkan", device, models)
    ]


def radv_commands(night: Night) -> list[StageCommand]:
    """Run RADV's committed machine code of the Vulkan kernels on the simulated device; needs no driver."""
    commands = []
    for model in MODELS[:1] if night.quick else MODELS:
        line = zinc_command("validate", "--model", model, "--tiers", "t1:radv,t_cpu", "--device", "sim")
        commands.append(StageCommand(model.stem, [*line, *output_options(night, "radv", model.stem, html=True)]))
    return commands


def without_device(*, software: bool) -> Callable[[Night], str]:
    def why_not(night: Night) -> str:
        return missing_commands("validate", "vulkan-test")(night) or no_usable_device(software=software)

    return why_not


def gate_commands(night: Night) -> list[StageCommand]:
    """Evaluate the gates with this night's measurements from the history."""
    folder = night.of("gates")
    names = "M0" if night.quick else GATES
    evidence = [path for stage in ("perf", "validate") if any((path := night.of(stage)).glob("*.json"))]
    line = zinc_command("perf", "gate", "--milestone", names, "--device", night.device)
    argument = ["--evidence", *map(str, evidence)] if evidence else []
    recorded = ["--history", str(night.history)] if night.history.exists() else []
    recorded += ["--head", night.head] if night.head else []
    recorded += ["--models", *map(str, night.models)] if night.models else []
    return [StageCommand("gate", [*line, *argument, *recorded, "--json", str(folder / "gate.json")])]


def client_commands(night: Night) -> list[StageCommand]:
    """Run the third-party clients that are already installed; a night downloads nothing."""
    names, report = ready_clients()[: 1 if night.quick else None], night.of("clients") / "clients.json"
    line = [sys.executable, str(ROOT / "ci" / "clients.py"), *names, "--json", str(report)]
    return [StageCommand("clients", line)] if names else []


def without_clients(night: Night) -> str:
    return "" if ready_clients() else "no client is installed: python3 ci/run.py clients"


def outside_commands(night: Night) -> list[StageCommand]:
    """Run kernels of other projects that are already installed, and those that clang compiles."""
    names, report = list_ready_programs(), night.of("outside") / "outside.json"
    chosen = names[:1] if night.quick else ["clang", *names]
    line = [sys.executable, str(ROOT / "ci" / "outside.py"), *chosen, "--offline", "--each", "1"]
    return [StageCommand("outside", [*line, "--json", str(report)])] if names else []


def without_outside(night: Night) -> str:
    return "" if list_ready_programs() else "no kernel of another project is installed: python3 ci/run.py outside"


def mutant_commands(night: Night) -> list[StageCommand]:
    """Judge further mutants, of the seed of this day, and count those of all nights."""
    line = [sys.executable, str(ROOT / "tests" / "faults" / "mutate_command.py"), "--count", str(night.mutants)]
    line += ["--seed", str(datetime.now(UTC).date().toordinal()), "--resume", str(night.folder / MUTANTS)]
    return [StageCommand("mutate", [*line, "--json", str(night.of("mutants") / "mutate.json")])]


def without_mutants(night: Night) -> str:
    return "" if night.mutants else "no mutants are asked for: --mutants N"


def stage_minutes(stage: NightlyStage, night: Night) -> float:
    """Return the time limit of a stage, longer if models are named or mutants are asked for."""
    if stage.name == "mutants":
        return MINUTES_A_MUTANT * (night.mutants + 1) if night.mutants else 0.0
    return stage.minutes + len(night.models) * MINUTES_A_MODEL.get(stage.name, 0.0)


# The minutes add up to 36: what a night without models of its own may take on two cores, whatever hangs.
STAGES = (
    NightlyStage("probes", probe_commands, missing_commands("pm4-test"), 4),
    NightlyStage("validate", validate_commands, missing_commands("validate"), 4),
    NightlyStage("serving", serving_commands, missing_commands("sched-test", "validate"), 4),
    NightlyStage("clients", client_commands, without_clients, 3, card=False),
    NightlyStage("outside", outside_commands, without_outside, 3, card=False),
    NightlyStage("lavapipe", lavapipe_commands, without_device(software=True), 2, card=False),
    NightlyStage("vulkan", vulkan_gpu_commands, without_device(software=False), 1),
    NightlyStage("radv", radv_commands, missing_commands("validate"), 3, card=False),
    NightlyStage("replay", replay_commands, missing_commands("replay", "trace"), 3),
    NightlyStage("perf", perf_commands, missing_commands("perf"), 4),
    NightlyStage("gates", gate_commands, missing_commands("perf"), 5),
    NightlyStage("mutants", mutant_commands, without_mutants, 0, card=False),
)
