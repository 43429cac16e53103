"""What a run of `zinc-rt validate` left behind, and how to look at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from planted import Plant


def name_of(result: dict[str, Any]) -> str:
    """l_out-3 of qwen3-q/t_cpu/l_out-3."""
    return str(result["id"]).rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run of the command left: its exit code and its report."""

    exit: int
    report: dict[str, Any]

    @property
    def results(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.report["results"]
        return found

    def result(self, name: str) -> dict[str, Any]:
        named = [result for result in self.results if name_of(result) == name]
        assert len(named) == 1, f"{name} is there {len(named)} times among {list(map(name_of, self.results))}"
        return named[0]

    def named(self, status: str, kind: str = "") -> list[str]:
        """The names of the results with this status, in the report's order."""
        return [
            name_of(result)
            for result in self.results
            if result["status"] == status and kind in ("", result["kind"])
        ]


Validate = Callable[..., Seen]  # validate(option, ...)
Judge = Callable[..., Seen]  # judge(model, plant, option, ...)
Planting = Callable[[Plant], None]  # plant(plant)
