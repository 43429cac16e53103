"""Store watchpoints through a device: in this process, and served."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from shader_launch import STORE_IDS, ShaderStage, gpu_of, open_machine, split_va

from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.serve.client import SimClient


def check(driver: Any) -> None:
    with gpu_of(driver) as gpu:
        stage = ShaderStage(gpu)
        va, out = stage.buffer()
        program = stage.load(STORE_IDS, "store ids")
        driver.set_watchpoint(va + 4 * 70, 8)
        for _ in range(2):
            stage.run(program, split_va(va), groups=(2, 3, 1))
        watchpoint_hits = driver.watchpoint_hits()
        assert np.array_equal(out[64:96], np.zeros(32))  # the second dimension stores to the same places
        assert watchpoint_hits == []
        driver.set_watchpoint(va + 4 * 40, 8)
        stage.run(program, split_va(va), groups=(2, 3, 1))
        watchpoint_hits = driver.watchpoint_hits()
        assert {
            (watchpoint_hit.group, watchpoint_hit.lane, watchpoint_hit.address, watchpoint_hit.value)
            for watchpoint_hit in watchpoint_hits
        } == {((1, y, 0), lane, va + 4 * (32 + lane), 1 + lane) for y in range(3) for lane in (8, 9)}
        assert {watchpoint_hit.instruction for watchpoint_hit in watchpoint_hits} == {
            "global_store_b32 v1, v2, s[0:1]"
        }
        assert {watchpoint_hit.pc for watchpoint_hit in watchpoint_hits} == {16} and {
            watchpoint_hit.wave for watchpoint_hit in watchpoint_hits
        } == {0}
        assert all(
            "DISPATCH_DIRECT" in watchpoint_hit.dispatch and watchpoint_hit.kernel
            for watchpoint_hit in watchpoint_hits
        )
        assert "workgroup (1, 0, 0), wave 0, lane 8 stored 0x9" in " ".join(
            watchpoint_hit.sentence for watchpoint_hit in watchpoint_hits
        )
        driver.set_watchpoint(0, 0)
        stage.run(program, split_va(va), groups=(2, 1, 1))
        assert driver.watchpoint_hits() == []


def run_in_process() -> None:
    with open_machine() as owner:
        check(SimDriver(owner))


def run_from_a_client() -> None:
    client = SimClient(name=f"watch-{os.getpid()}", time_scale=0.02)
    try:
        check(client)
    finally:
        client.close_all()


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("run", [run_in_process, run_from_a_client])
def test_device_reports_stores_to_a_watchpoint(run: Callable[[], None]) -> None:
    run()
