"""A cache of the tests' own, models, and a planted tier to judge."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from planted import PlantedBackend, PlantedFault
from seen import Judge, Planting, Validate, ValidateOutput

from zinc_rt.backends.base import Backend
from zinc_rt.engine import devices
from zinc_rt.engine.devices import Choice
from zinc_rt.host.files import cache_folder
from zinc_rt.validate import runner
from zinc_rt.validate.command import main


@pytest.fixture(scope="session")
def reference_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder for this run: each model's reference is computed once, and a reference corrupted by a planted
    fault is not reused by later runs. Compiled kernels are shared by all tests.
    """
    folder = tmp_path_factory.mktemp("cache") / "zinc-rt"
    folder.mkdir()
    for name in ("native", "shaders", "zig"):
        (cache_folder() / name).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(cache_folder() / name)
    return folder.parent


@pytest.fixture(autouse=True)
def own_cache(reference_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(reference_cache))


@pytest.fixture
def run_validate(tmp_path: Path) -> Validate:
    """validate(option, ...): the command, and its report."""

    def run_command(*options: str) -> ValidateOutput:
        path = tmp_path / "report.json"
        path.unlink(missing_ok=True)
        code = main([*options, "--json", str(path)])
        return ValidateOutput(code, json.loads(path.read_text()) if path.exists() else {})

    return run_command


@pytest.fixture
def plant_fault(monkeypatch: pytest.MonkeyPatch) -> Planting:
    """Make T1 available with this defect."""

    def plant_in_t1(fault: PlantedFault) -> None:
        def open_planted(choice: Choice, ordering: str, **options: int) -> Backend:
            if choice.tier == "t1":
                backend = PlantedBackend(ordering, fault)
                # Its choice says so; a card's deadline of two seconds is short on a machine that tests keep busy.
                backend.device = replace(backend.device, simulated=True)
                return backend
            return devices.open_backend(choice, ordering, **options)

        monkeypatch.setattr(runner, "open_backend", open_planted)

    return plant_in_t1


@pytest.fixture
def judge_plant(plant_fault: Planting, run_validate: Validate) -> Judge:
    """judge(model, plant, option, ...): T1 with that plant in it, against T-CPU, five tokens and a step."""

    def judge_model(model: str, fault: PlantedFault, *options: str) -> ValidateOutput:
        plant_fault(fault)
        return run_validate(
            "--model", model, "--tiers", "t1,t_cpu", "--tokens", "3,1,4,1,5", "--steps", "1", *options
        )

    return judge_model
