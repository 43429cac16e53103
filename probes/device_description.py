"""Describe the device under test for reports."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from zinc_rt.kmd.driver import Driver, list_folder
from zinc_rt.kmd.render_node import RenderNode
from zinc_rt.probes.child import run_in_child
from zinc_rt.probes.device import open_device, read_file
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.kit.context import choose_gpu


def find_displays(driver: Driver, render_path: str) -> list[str] | None:
    """Return the connectors of this GPU that show a picture; None if that cannot be determined."""
    device = f"/sys/class/drm/{Path(render_path).name}/device/drm"
    lit: list[str] = []
    cards = list_folder(driver, device)
    if not cards:
        return None
    for card in cards:
        for connector in list_folder(driver, f"{device}/{card}"):
            where = f"{device}/{card}/{connector}"
            if connector.startswith(f"{card}-") and read_file(driver, f"{where}/status") == "connected":
                lit.append(connector)
    return lit


def describe(spec: DeviceSpec) -> dict[str, Any]:
    """Return the report's device: name, arch, simulated, profile, kernel, firmware. Runs in a child
    process."""
    driver = open_device(spec)
    described: dict[str, Any] = {"name": "", "arch": "", "simulated": driver.simulated, "profile": spec.profile}
    described["kernel"] = read_file(driver, "/proc/sys/kernel/osrelease") or ""
    described["module"] = (
        read_file(driver, "/sys/module/amdgpu/version") or ""
    )  # modules of the kernel itself say none
    described["problem"] = ""
    try:
        node, render_path = choose_gpu(driver, spec)
        described["render_path"] = render_path
        lit = find_displays(driver, render_path)
        described["displays"], described["displays_known"] = lit or [], lit is not None
        if node is not None:
            described["arch"] = node.arch
            described["name"] = (
                read_file(driver, f"/sys/class/drm/{Path(render_path).name}/device/product_name") or node.name
            )
        render = RenderNode(driver, render_path)
        described["firmware"] = render.query_firmware()
        described["driver"] = ".".join(map(str, render.version))
        render.close()
    except Exception as error:  # the probes say what is wrong, one by one; here it is only not described
        described["problem"] = str(error).splitlines()[0]
    return described


def describe_device(spec: DeviceSpec) -> dict[str, Any]:
    """Return name, arch, kernel, firmware, displays, queried in a child process from the device without
    injected faults."""

    healthy = replace(spec, inject=(), shared="")
    ended = run_in_child(partial(describe, healthy), 20.0)
    if ended.how == "returned" and isinstance(ended.value, dict):
        return ended.value
    problem = ended.text.strip().splitlines()[-1] if ended.text else ended.how
    return {"name": "", "arch": "", "simulated": spec.simulated, "profile": spec.profile, "problem": problem}
