"""--device hw never simulates, and is no driver in software: every command that has the option, without a card."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from fake_devices import CPU, FakeDevice, FakeVulkan

from zinc_rt.backends.vulkan import loader
from zinc_rt.engine import devices
from zinc_rt.engine.devices import ORACLE, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.model.gguf import read_gguf
from zinc_rt.probes import device as probe_device
from zinc_rt.probes import simulated
from zinc_rt.sim.serve.client import SimClient
from zinc_rt.trace.recorder import record

POINTS = {point.name: point for point in entry_points(group="zinc_rt.commands")}
# A line for each command that has --device, with what it needs to get as far as its device. MODEL, LOG and OUT are
# files made for it.
LINES = {
    "accept": "--budget 1s --no-model",
    "bring-up": "--up-to doctor --folder OUT",
    "bundle": "-o OUT.tar.gz",
    "compare": "--model MODEL --tokens 1,2 --no-speed",
    "doctor": "",
    "golden make": "--model MODEL --tokens 1,2 --steps 0 --tier t1 -o OUT.npz",
    "kernel-test": "--kernel add --most 1 --jobs 1",
    "launch": "MODEL --kernel k",
    "logits": "--model MODEL --tokens 1,2 --out OUT.npz",
    "mem-test": "",
    "perf bench": "--model MODEL --tier t1 --prompt-tokens 2 --tokens 2 --runs 2",
    "perf gate": "--milestone M1",
    "perf profile": "--model MODEL --steps 1",
    "perplexity": "--model MODEL --chunks 1 --ctx 16",
    "pm4-test": "",
    "replay": "LOG --tiers t1",
    "run": "--model MODEL --tokens 1,2 --max-tokens 2",
    "serve": "--model MODEL --port 0",
    "validate": "--model MODEL --tiers t1,t_cpu",
    "vulkan-test": "",
}
# The same with other tiers: what needs no GPU does not run in its place.
MORE = [
    ("run", "--model MODEL --tokens 1,2 --max-tokens 2 --tier t1"),
    ("run", "--model MODEL --tokens 1,2 --max-tokens 2 --tier t_cpu"),
    ("run", "--probe-tier"),
    ("validate", "--model MODEL"),
    ("validate", "--model MODEL --tiers t_cpu,t2"),
    ("replay", "LOG"),
    ("replay", "LOG --tiers t1 --bisect"),
    ("compare", "--model MODEL --tokens 1,2 --no-speed --peers t1"),
    ("perf gate", "--milestone M0 --only opcodes"),
    ("pm4-test", "--tiers t1 -k P01"),
    ("run", "--model MODEL --tokens 1,2 --max-tokens 2 --tier vulkan"),
    ("validate", "--model MODEL --tiers vulkan,t_cpu"),
]


class ParserBuilt(BaseException):
    """Raised with a command's parser instead of parsing."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


@pytest.fixture(autouse=True)
def hide_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide all GPUs, and fail if a simulated device is created."""

    def fail_if_simulated(*_: Any, **__: Any) -> Any:
        raise AssertionError("a device was simulated")

    monkeypatch.setattr(loader, "load_vulkan", lambda: FakeVulkan((FakeDevice("fakepipe", CPU),)))
    monkeypatch.setattr(devices, "find_amd_gpus", tuple)
    monkeypatch.setattr(probe_device, "find_amd_gpus", lambda driver: [])
    monkeypatch.setattr(SimClient, "__init__", fail_if_simulated)
    monkeypatch.setattr(simulated, "open_driver", fail_if_simulated)


def append_device(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """The command and those of its actions that have --device."""
    for action in parser._actions:
        if "--device" in action.option_strings:
            yield name
        if isinstance(action, argparse._SubParsersAction):
            for below, choice in action.choices.items():
                yield from append_device(f"{name} {below}", choice)


def test_every_command_with_the_option_is_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_at_parse(self: argparse.ArgumentParser, *_: Any, **__: Any) -> Any:
        raise ParserBuilt(self)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop_at_parse)
    result = set()
    for name, point in POINTS.items():
        try:
            point.load()([])
        except ParserBuilt as built:
            result |= set(append_device(name, built.parser))
    assert result == set(LINES)


@pytest.fixture
def log_path(qwen3: str, tmp_path: Path) -> Path:
    backend = open_backend(ORACLE, "canonical-1")
    with Engine(read_gguf(qwen3), backend) as engine, record(engine, tmp_path / "log.zlog"):
        engine.forward([1, 2])
    return tmp_path / "log.zlog"


@pytest.mark.parametrize(("name", "rest"), [*LINES.items(), *MORE], ids=lambda text: text[:40])
@pytest.mark.rest(keep=7)
def test_missing_gpu_runs_nothing_and_prints_the_reason(
    name: str, rest: str, qwen3: str, log_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    files = {"MODEL": qwen3, "LOG": str(log_path), "OUT": str(tmp_path / "out")}
    line = [files.get(stem, stem) + dot + end for stem, dot, end in (w.partition(".") for w in rest.split())]
    command, *action = name.split()
    code = POINTS[command].load()([*action, *line, "--device", "hw"])
    seen = capsys.readouterr()
    output = seen.out + seen.err
    assert code in (2, 77), output
    assert "no AMD GPU" in output or "this machine has no GPU with Vulkan support" in output, output
    assert "SIMULATED" not in output and "Traceback" not in output
    assert not (tmp_path / "out.npz").exists(), "nothing was computed in its place"
