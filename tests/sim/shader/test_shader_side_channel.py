"""What a device says of a wave, as fields: in this process, and served."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from shader_launch import STORE_IDS, ShaderStage, gpu_of, open_machine, split_va

from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.interfaces import CodePlace
from zinc_rt.sim.serve.client import SimClient


def check(driver: Any) -> None:
    with gpu_of(driver) as gpu:
        stage = ShaderStage(gpu)
        va, _ = stage.buffer()
        driver.announce(va, 64, "small")
        stage.run(stage.load(STORE_IDS, "store ids"), split_va(va))
        [result] = driver.findings()
        assert result.rule == "out-of-bounds" and result.packet_va
        assert result.place == CodePlace(
            result.place.kernel, 0x10, "global_store_b32 v1, v2, s[0:1]", (0, 0, 0), 0, 0xFFFF0000, va + 64
        )
        assert result.place.kernel in result.sentence


def run_in_process(check: Callable[[Any], None]) -> None:
    with open_machine(sanitizer="fast") as owner:
        check(SimDriver(owner))


def run_from_a_client(check: Callable[[Any], None]) -> None:
    client = SimClient(name=f"channel-{os.getpid()}", time_scale=0.02, sanitizer="fast")
    try:
        check(client)
    finally:
        client.close_all()


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("run", [run_in_process, run_from_a_client])
def test_finding_has_location_as_fields(run: Callable[[Callable[[Any], None]], None]) -> None:
    run(check)
