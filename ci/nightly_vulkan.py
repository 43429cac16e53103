"""Vulkan in a night: the devices that its drivers list, asked in a process of its own, and why none runs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

SECONDS = 60  # for the drivers of a machine to say what they have
INSTALL = "apt install mesa-vulkan-drivers libvulkan1 brings one in software"


@dataclass(frozen=True)
class NightDevice:
    """A Vulkan device. `option`: as --device takes it; `software`: its driver computes on the processor;
    `why_not`: why it cannot run, "" where it can."""

    option: str
    name: str
    software: bool
    why_not: str = ""

    @property
    def stem(self) -> str:
        """For files' names."""
        return self.option.replace(":", "")


@cache
def devices() -> tuple[NightDevice, ...]:
    """All that drivers list here; none where there is no driver, or where one ends the process that asks."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "zinc_rt.cli", "devices", "--json", "-"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        report = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return ()
    return listed(report)


def listed(report: dict[str, Any]) -> tuple[NightDevice, ...]:
    """The Vulkan devices of a report of zinc-rt devices."""
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


def usable(*, software: bool) -> list[NightDevice]:
    return [each for each in devices() if each.software == software and not each.why_not]


def none_usable(*, software: bool) -> str:
    """Why no such device runs anything; "" where one does."""
    if usable(software=software):
        return ""
    broken = [f"{each.name}: {each.why_not}" for each in devices() if each.software == software]
    if broken:
        return "; ".join(broken)
    return f"no Vulkan driver in software: {INSTALL}" if software else "no GPU with a Vulkan driver"
