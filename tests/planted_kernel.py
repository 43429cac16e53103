"""Kernels of the simulated T1 with changed machine code, through the seam that gives a tier its kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from zinc_rt.backends.base import Finding
from zinc_rt.engine import devices
from zinc_rt.isa import decode_stream, target_of
from zinc_rt.kernels import sets
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.kernels.zrt import Zrt

OFFSET_BIT = 72 + 4  # of a global store: the bit of its offset that stands for 16 bytes


def plant_kernel(monkeypatch: pytest.MonkeyPatch, kernel: str, change: Callable[[Zrt], Zrt]) -> None:
    """Make every backend that is opened from now on load `change(kernel)`, on a machine without AMD GPUs."""
    whole = find_kernel_set("gfx1201")
    assert whole is not None

    def load_changed(name: str) -> Zrt:
        return change(whole.load(name)) if name == kernel else whole.load(name)

    monkeypatch.setattr(sets, "find_kernel_set", lambda arch: replace(whole, load=load_changed))
    monkeypatch.setattr(devices, "find_amd_gpus", tuple)


def flip_bit(zrt: Zrt, text: str, bit: int, occurrence: int = 0) -> Zrt:
    """Flip a bit of the n-th instruction whose text begins with `text`."""
    matches = [
        item
        for item in decode_stream(zrt.code, target_of("gfx1201"))
        if item.instruction is not None and item.instruction.text.startswith(text)
    ]
    assert len(matches) > occurrence, f"no {text}"
    index = 8 * matches[occurrence].at + bit
    code = bytearray(zrt.code)
    code[index // 8] ^= 1 << index % 8
    return replace(zrt, code=bytes(code))


def plant_store_out_of_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make argmax store its token 16 bytes late, which is beyond the buffer of a step with one row."""
    plant_kernel(monkeypatch, "argmax", lambda zrt: flip_bit(zrt, "global_store_b32", OFFSET_BIT))


class FakeSanitizer:
    """The instrument of a simulated device that has reported these findings."""

    def __init__(self, *findings: Finding) -> None:
        self.found = list(findings)

    def findings(self) -> list[Finding]:
        return list(self.found)

    def consulted(self) -> list[str]:
        return []

    def hand_over(self, *_: object) -> None: ...

    def discard(self, *_: object) -> None: ...


UNINITIALISED = Finding("uninitialised-memory", "swiglu (swiglu.s:12) `global_load_b32`: nobody wrote this")
