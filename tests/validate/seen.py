"""What a run of `zinc-rt validate` left behind, and how to look at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from planted import PlantedFault

from zinc_rt.validate.command import main


def name_of(result: dict[str, Any]) -> str:
    """l_out-3 of qwen3-q/t_cpu/l_out-3."""
    return str(result["id"]).rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class ValidateOutput:
    """The result of a command: its exit code and its report."""

    exit: int
    report: dict[str, Any]

    @property
    def results(self) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = self.report["results"]
        return results

    def result(self, name: str) -> dict[str, Any]:
        named = [result for result in self.results if name_of(result) == name]
        assert len(named) == 1, f"{name} is there {len(named)} times among {list(map(name_of, self.results))}"
        return named[0]

    def names_with_status(self, status: str, kind: str = "") -> list[str]:
        """Return the names of the results with this status, in the report's order."""
        return [
            name_of(result)
            for result in self.results
            if result["status"] == status and kind in ("", result["kind"])
        ]


Validate = Callable[..., ValidateOutput]  # validate(option, ...)
Judge = Callable[..., ValidateOutput]  # judge(model, plant, option, ...)
Planting = Callable[[PlantedFault], None]  # plant(plant)


Capture = pytest.CaptureFixture[str]
FEW = ("--tokens", "3,1,4", "--steps", "0")
TWO = ("--tiers", "t_cpu,t_cpu:float32-dequant")
# no limit between these; short of the head nothing is read untapped, and one token is one pass either way
Q8 = ("--tiers", "t_cpu,t_cpu:canonical-1-q8", "--tokens", "3", "--layers", ":2")


def golden_of(model: str) -> str:
    return model.replace(".gguf", ".npz")


def read_rejection(capsys: Capture, *options: str) -> str:
    """Return the command's message about options that it does not accept."""
    capsys.readouterr()
    assert main(list(options)) == 2
    seen = capsys.readouterr()
    assert "PASS" not in seen.out and "FAIL" not in seen.out
    assert seen.err.startswith("zinc-rt validate: ")
    return seen.err
