"""Remove a stuck queue from the hardware, and check that the GPU works afterwards."""

from __future__ import annotations

import os
import time
from typing import Any

from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.render_node import RenderNode
from zinc_rt.kmd.syscalls import KFD_PATH
from zinc_rt.probes.kit.context import ProbeContext, wait_until
from zinc_rt.probes.kit.probe_queue import ProbeQueue
from zinc_rt.probes.outcome import ProbeFailed, check

RESET_SECONDS = 15.0
DESTROY_SECONDS = 2.0


def check_destroy(c: ProbeContext, queue: ProbeQueue) -> dict[str, Any]:
    """Check that DESTROY returns; if that required a reset, that the process is notified and the GPU
    recovers."""
    start = time.monotonic()
    trouble = ""
    try:
        queue.close()
    except DriverError as error:
        trouble = str(error).splitlines()[0]
    seconds = time.monotonic() - start
    check(
        seconds < RESET_SECONDS,
        "slow-destroy",
        f"DESTROY took {seconds:.1f} s: {trouble}",
        measure={"seconds": seconds},
    )
    said_: dict[str, Any] = {"destroy_ms": round(seconds * 1e3)}
    if trouble:
        resets = wait_for_reset_messages(c, c.scale_timeout(RESET_SECONDS))
        check(bool(resets), "no-exception", f"{trouble}, and no HW_EXCEPTION event within {RESET_SECONDS:g} s")
        said_["reset"] = resets[0]
        check_recovery(c)
    return said_


def check_preemption(c: ProbeContext, queue: ProbeQueue, what: str) -> dict[str, Any]:
    """Check that DESTROY removes the queue from the hardware without a reset."""
    start = time.monotonic()
    try:
        queue.close()
    except DriverError as error:
        raise ProbeFailed(
            "not-preempted",
            f"DESTROY of {what}: {str(error).splitlines()[0]}",
            call=error.call,
            errno=error.errno,
            faults=tuple(wait_for_reset_messages(c, 1.0)),
        ) from error
    seconds = time.monotonic() - start
    check(seconds < DESTROY_SECONDS, "slow-destroy", f"DESTROY of {what} took {seconds:.1f} s")
    resets = wait_for_reset_messages(c, 0.2)
    check(not resets, "not-preempted", f"DESTROY of {what} needed a reset: {resets}")
    return {"milliseconds": round(seconds * 1e3)}


def wait_for_reset_messages(c: ProbeContext, seconds: float) -> list[str]:
    side = c.side

    def find_resets() -> list[str]:
        side.look()
        return [incident.text for incident in side.incidents if incident.kind == "reset"]

    wait_until(lambda: bool(find_resets()), seconds, 0.01)
    return find_resets()


def check_recovery(c: ProbeContext) -> None:
    """Check after a reset that the nodes open and the GPU responds."""
    last = ""

    def has_response() -> bool:
        nonlocal last
        try:
            c.driver.close(c.driver.open(KFD_PATH, os.O_RDWR))
            node = RenderNode(c.driver, c.render_path)
            node.device()
            node.close()
            return True
        except (DriverError, OSError) as error:
            last = str(error).splitlines()[0]
            return False

    check(
        wait_until(has_response, c.scale_timeout(RESET_SECONDS), 0.05),
        "not-back",
        f"the GPU does not respond after the reset: {last}",
    )
