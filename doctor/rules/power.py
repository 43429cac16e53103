"""Rules about power, clocks and temperature."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from zinc_rt.doctor.machine import InspectedGpu, InspectedMachine
from zinc_rt.doctor.rule import BOTH, DoctorRule, Observation, check_each_gpu, make_event_rule

LOW_CAP = 0.6  # of the power limit the card came with
LEAST_TOP_MHZ = 1000  # of the shader clock; every gfx11 and gfx12 card offers more than 2,000
FAN_STANDS = 100  # RPM
FAN_NEEDED = 90.0  # °C
TOO_HOT = 110.0  # °C, where the sensor states no limit: that of the junction of every gfx11 and gfx12 card


def _check_runtime_error(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    if gpu.runtime_status != "error":
        return None
    return Observation(
        f"runtime power management of {gpu.title} has failed", ("power/runtime_status: error",), gpu.address
    )


def _check_suspended(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    if gpu.runtime_status not in ("suspended", "suspending", "resuming"):
        return None
    return Observation(
        f"{gpu.title} sleeps ({gpu.power_state or gpu.runtime_status}): its sensors were not read, "
        "which would wake it",
        (f"power/runtime_status: {gpu.runtime_status}",),
        gpu.address,
    )


def _check_unpowered(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    """The device reports D3cold, but runtime power management reports it as active: it did not resume."""
    if gpu.power_state not in ("D3cold", "D3hot") or gpu.runtime_status != "active":
        return None
    return Observation(
        f"{gpu.title} stays in {gpu.power_state}, although it should be awake",
        (f"power_state: {gpu.power_state}", "power/runtime_status: active"),
        gpu.address,
    )


def _check_temperature(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    over = [
        f"{label} {now:g} °C (limit {maximum or TOO_HOT:g})"
        for label, now, maximum in gpu.temperatures
        if now >= (maximum or TOO_HOT)
    ]
    return Observation(f"{gpu.title} is too hot: {', '.join(over)}", tuple(over), gpu.address) if over else None


def _check_stopped_fan(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    """A fan may be off while the card is cool; vendors start it near 60 °C."""
    hottest = max(((now, label) for label, now, _ in gpu.temperatures), default=None)
    if gpu.fan_rpm is None or gpu.fan_rpm > FAN_STANDS or hottest is None or hottest[0] < FAN_NEEDED:
        return None
    return Observation(
        f"the fan of {gpu.title} stands at {hottest[0]:g} °C",
        (f"fan1_input: {gpu.fan_rpm} RPM", f"{hottest[1]}: {hottest[0]:g} °C"),
        gpu.address,
    )


def _check_power_cap(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    cap, usual = gpu.power_cap_watts, gpu.power_cap_default_watts
    if cap is None or not usual or cap >= LOW_CAP * usual:
        return None
    return Observation(
        f"the power limit of {gpu.title} is {cap:g} W of {usual:g} W",
        (f"power1_cap: {cap:g} W", f"power1_cap_default: {usual:g} W"),
        gpu.address,
    )


def _check_forced_low_clock(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    levels = machine.capture.text(f"sys/class/drm/{gpu.card}/device/pp_dpm_sclk") if gpu.card else None
    clocks = [int(match) for match in re.findall(r"^\d+: (\d+)Mhz", levels or "", re.MULTILINE)]
    if clocks and max(clocks) < LEAST_TOP_MHZ and not gpu.integrated:
        return Observation(
            f"the highest shader clock that {gpu.title} offers is {max(clocks)} MHz",
            tuple(f"pp_dpm_sclk: {line.strip()}" for line in (levels or "").splitlines()[:3]),
            gpu.address,
            next="remove overclocking tools and amdgpu.ppfeaturemask, power-cycle, and check the card's VBIOS",
        )
    if gpu.performance_level not in ("low", "profile_min_sclk", "profile_min_mclk"):
        return None
    return Observation(
        f"the clocks of {gpu.title} are limited: {gpu.performance_level}",
        (f"power_dpm_force_performance_level: {gpu.performance_level}",),
        gpu.address,
    )


def _check_silent_sensors(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    """Report sensors that did not respond during the capture."""
    where = f"sys/class/drm/{gpu.card}/device/hwmon"
    reason = next(
        (reason for name, reason in machine.capture.unreadable.items() if gpu.card and name.startswith(where)), ""
    )
    if "no answer" in reason or "timed out" in reason.lower() or "SMU" in reason:
        return Observation(f"the sensors of {gpu.title} do not respond", (f"{where}: {reason}",), gpu.address)
    return None


def _check_runtime_suspend(machine: InspectedMachine) -> Iterator[Observation]:
    """Only a note: on a headless card, several reports of failed resumes begin with it."""
    if "0" in (machine.linux.option("amdgpu.runpm"), machine.module.parameters.get("runpm")):
        return
    for gpu in machine.is_relevant:
        if gpu.runtime_control == "auto" and not gpu.displays and not gpu.integrated and gpu.driver == "amdgpu":
            yield Observation(
                f"{gpu.title} may be powered down while idle: runtime power management is on", about=gpu.address
            )


def _check_link_power_saving(machine: InspectedMachine) -> Iterator[Observation]:
    if machine.host.aspm_policy in ("powersave", "powersupersave") and machine.gpus:
        yield Observation(f"PCIe link power management is on (ASPM {machine.host.aspm_policy})")


def _check_refused_suspend(machine: InspectedMachine) -> Iterator[Observation]:
    """Report a suspend that amdgpu refused. -12 is ENOMEM: VRAM is saved in system memory first."""
    for seen in make_event_rule("suspend-refused")(machine):
        if any(re.search(r"(?:returns|code|error) -12\b", line) for line in seen.evidence):
            yield replace(
                seen,
                title="the machine could not suspend: system memory has no room for the contents of VRAM (-12)",
                next="end programs that use VRAM before the suspend; add swap, as much as VRAM is in use",
            )
        else:
            yield seen


RULES = (
    DoctorRule(
        "power.runtime-error",
        "broken",
        "runtime power management has failed",
        "the card was suspended and did not resume completely: sensors, fan and queues fail after that",
        "boot with amdgpu.runpm=0 (github.com/ROCm/legacy-rocm-build/issues/6101)",
        BOTH,
        check_each_gpu(_check_runtime_error),
    ),
    DoctorRule(
        "power.resume",
        "broken",
        "the card did not resume (D3)",
        "it was powered down while idle and does not respond: every later message is a consequence",
        "boot with amdgpu.runpm=0, and pcie_port_pm=off if bridges are suspended too; update the BIOS",
        BOTH,
        make_event_rule("d3cold"),
    ),
    DoctorRule(
        "power.stuck-asleep",
        "broken",
        "the card is still powered down",
        "it was powered down while idle and does not respond",
        "boot with amdgpu.runpm=0",
        BOTH,
        check_each_gpu(_check_unpowered),
    ),
    DoctorRule(
        "power.suspend",
        "warning",
        "the machine could not suspend, because amdgpu refused",
        "the GPU keeps working; the machine stays awake, or tries again and again",
        "end the programs that use the GPU, then suspend; the first line of the driver says which step failed",
        BOTH,
        _check_refused_suspend,
    ),
    DoctorRule(
        "power.thermal",
        "broken",
        "the GPU reached its critical temperature",
        "it throttles, then shuts down: a hang under load may be caused by heat",
        "check fans, dust and the airflow of the case; run `sensors` under load",
        BOTH,
        make_event_rule("thermal"),
    ),
    DoctorRule(
        "power.hot",
        "broken",
        "the GPU is too hot",
        "it throttles, then shuts down",
        "check fans, dust and the airflow of the case",
        BOTH,
        check_each_gpu(_check_temperature),
    ),
    DoctorRule(
        "power.fan",
        "broken",
        "the fan stands, and the GPU is hot",
        "it throttles under every longer load, then shuts down",
        "amdgpu.runpm=0 if it stands only after idle time; else its cable, its curve (fan_curve), its maker",
        BOTH,
        check_each_gpu(_check_stopped_fan),
    ),
    DoctorRule(
        "power.sensors-silent",
        "warning",
        "the sensors do not respond",
        "they are read through the SMU, which may hang; temperatures could not be monitored during a run",
        "`sudo dmesg | grep -i smu`; reboot",
        BOTH,
        check_each_gpu(_check_silent_sensors),
    ),
    DoctorRule(
        "power.cap",
        "warning",
        "the power limit is low",
        "clocks drop under load: measured speeds are lower than the card's",
        "set power1_cap to power1_cap_default (as root), or with the tool that lowered it",
        BOTH,
        check_each_gpu(_check_power_cap),
    ),
    DoctorRule(
        "power.clocks",
        "warning",
        "clocks are limited",
        "measured speeds are lower than the card's",
        "echo auto | sudo tee /sys/class/drm/card*/device/power_dpm_force_performance_level",
        BOTH,
        check_each_gpu(_check_forced_low_clock),
    ),
    DoctorRule(
        "power.aspm",
        "note",
        "PCIe link power management is on",
        "a suspended link responds late, and on some boards not at all",
        "if the link has errors: pcie_aspm=off on the command line",
        BOTH,
        _check_link_power_saving,
    ),
    DoctorRule(
        "power.asleep",
        "note",
        "the GPU sleeps",
        "the first use resumes it",
        "",
        BOTH,
        check_each_gpu(_check_suspended),
    ),
    DoctorRule(
        "power.runtime",
        "note",
        "runtime power management is on",
        "failed resumes look like dead firmware (github.com/ROCm/legacy-rocm-build/issues/6101)",
        "if the GPU fails after idle time: boot with amdgpu.runpm=0",
        BOTH,
        _check_runtime_suspend,
    ),
)
