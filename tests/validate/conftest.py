"""A cache of the tests' own, models, and a planted tier to judge."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from planted import Plant, PlantedBackend
from seen import Judge, Planting, Seen, Validate

from zinc_rt.backends.base import Backend
from zinc_rt.engine import devices
from zinc_rt.engine.devices import Choice
from zinc_rt.host.files import cache_folder
from zinc_rt.validate import runner
from zinc_rt.validate.command import main


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def own_cache(references: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(references))


@pytest.fixture
def validate(tmp_path: Path) -> Validate:
    """validate(option, ...): the command, and its report."""

    def ran(*options: str) -> Seen:
        path = tmp_path / "report.json"
        path.unlink(missing_ok=True)
        code = main([*options, "--json", str(path)])
        return Seen(code, json.loads(path.read_text()) if path.exists() else {})

    return ran


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Planting:
    """Make T1 available with this defect."""

    def planted(what: Plant) -> None:
        def opened(choice: Choice, ordering: str, **options: int) -> Backend:
            if choice.tier == "t1":
                backend = PlantedBackend(ordering, what)
                # Its choice says so; a card's deadline of two seconds is short on a machine that tests keep busy.
                backend.device = replace(backend.device, simulated=True)
                return backend
            return devices.open_backend(choice, ordering, **options)

        monkeypatch.setattr(runner, "open_backend", opened)

    return planted


@pytest.fixture
def judge(plant: Planting, validate: Validate) -> Judge:
    """judge(model, plant, option, ...): T1 with that plant in it, against T-CPU, five tokens and a step."""

    def judged(model: str, what: Plant, *options: str) -> Seen:
        plant(what)
        return validate("--model", model, "--tiers", "t1,t_cpu", "--tokens", "3,1,4,1,5", "--steps", "1", *options)

    return judged
