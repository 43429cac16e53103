"""The kernel's log is read whatever printed it, and only what it says of the GPU counts."""

from __future__ import annotations

import pytest

from zinc_rt.doctor.logs import parse_log, strip_prefix
from zinc_rt.doctor.messages.families import FAMILIES
from zinc_rt.doctor.messages.table import HARMLESS, TABLE

GPU = "0000:03:00.0"
MES = f"amdgpu {GPU}: amdgpu: MES failed to respond to msg=REMOVE_QUEUE"


@pytest.mark.parametrize(
    "line",
    [
        MES,
        f"[  950.818166] {MES}",
        f"[  950.818166][ T1234] {MES}",
        f"[Tue Jul  2 00:15:21 2024] {MES}",
        f"Jun 18 16:36:53 archb kernel: {MES}",
        f"déc. 01 21:50:19 luke kernel: {MES}",
        f"янв 28 04:01:12 localhost kernel: {MES}",
        f"2026-09-12T10:00:00,123456+02:00 {MES}",
        f"2026-09-12T10:00:00+0200 host kernel: {MES}",
        f"kern  :err   : [  950.818166] {MES}",
        f"<3>[  950.818166] {MES}",
        f"3,1234,950818166,-;{MES}",
        f"[  950.818166] {MES}\r",
    ],
)
def test_log_program_prefix_is_stripped(line: str) -> None:
    assert strip_prefix(line) == MES
    (event,) = parse_log(line).events
    assert (event.name, event.address) == ("mes", GPU)


@pytest.mark.parametrize(
    ("line", "name"),
    [  # 6.8, 6.11, 6.17, 7.0
        (
            "[drm:mes_v11_0_submit_pkt_and_poll_completion.constprop.0 [amdgpu]] *ERROR* MES failed "
            "to response msg=3",
            "mes",
        ),
        (f"amdgpu {GPU}: amdgpu: MES(1) failed to respond to msg=MISC (WAIT_REG_MEM)", "mes"),
        (f"amdgpu {GPU}: MES ring buffer is full.", "mes"),
        (
            f"amdgpu {GPU}: Direct firmware load for amdgpu/gc_12_0_1_toc.bin failed with error -2",
            "firmware-missing",
        ),
        (
            f"amdgpu {GPU}: Direct firmware load for amdgpu/gc_12_0_1_toc.bin failed with error -22",
            "firmware-unreadable",
        ),
        (
            "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1, emitted seq=2",
            "ring-timeout",
        ),
        (f"amdgpu {GPU}: amdgpu: ring gfx_0.0.0 timeout, but soft recovered", "ring-recovered"),
        (f"amdgpu {GPU}: amdgpu: [mmhub] page fault (src_id:0 ring:169 vmid:0 pasid:0)", "page-fault"),
        (f"amdgpu {GPU}: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24)", "page-fault"),
        (f"amdgpu {GPU}: SMU: response:0xFFFFFFFF for index:18 param:0x5 message:TransferTableSmu2Dram?", "smu"),
        (f"amdgpu {GPU}: amdgpu: resume of IP block <psp> failed -62", "psp"),
        (f"amdgpu {GPU}: amdgpu: resume of IP block <gfx_v12_0> failed -110", "resume-failed"),
        (f"amdgpu {GPU}: amdgpu: hw_init of IP block <gfx_v12_0> failed -22", "init-failed"),
        ("amdgpu: cp queue pipe 1 queue 3 preemption failed", "queue-preemption"),
        (f"amdgpu {GPU}: amdgpu: ERROR: GPU HW Critical Temperature Fault(aka CTF) detected!", "thermal"),
        (f"amdgpu {GPU}: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0 address=0x0 flags=0x20]", "iommu-fault"),
        (f"amdgpu {GPU}: Unable to change power state from D3cold to D0, device inaccessible", "d3cold"),
        ("amdgpu: unknown parameter 'user_queues' ignored", "parameter-unknown"),
        ("KLD amdgpu.ko: depends on ttm - not available or version mismatch", "module-mismatch"),
        ("radeon 0000:01:00.0: ring 0 stalled for more than 10244msec", "ring-timeout"),
        ("[drm:si_dpm_set_power_state [radeon]] *ERROR* si_restrict_levels failed", "smu-refused"),
        ("[drm] psp gfx command LOAD_TA(0x1) failed and response status is (0x0)", "psp"),
        ("[drm] psp gfx command LOAD_IP_FW(0x6) failed and response status is (0x7)", "psp"),
        ("drmn0: failed to load firmware image with name: amdgpu/navi10_smc.bin", "firmware-missing"),
        (f"amdgpu {GPU}: amdgpu: KFD node 0 ih_fifo overflow", "interrupts-lost"),
    ],
)
def test_message_variants_of_several_kernels_map_to_one_event(line: str, name: str) -> None:
    assert [event.name for event in parse_log(line, [GPU]).events] == [name]


@pytest.mark.parametrize(
    "line",
    [
        f"amdgpu {GPU}: amdgpu: SMU driver if version not matched",
        f"amdgpu {GPU}: amdgpu: smu driver if version = 0x2e, smu fw if version = 0x33, smu fw program = 0",
        f"amdgpu {GPU}: amdgpu: PSP runtime database doesn't exist",
        f"amdgpu {GPU}: amdgpu: RAP: optional rap ta ucode is not available",
        f"amdgpu {GPU}: amdgpu: ring mes_kiq_3.1.0 uses VM inv eng 13 on hub 0",
        f"amdgpu {GPU}: [drm] REG_WAIT timeout 1us * 150000 tries - optc401_disable_crtc line:235",
        f"amdgpu {GPU}: amdgpu: MES FW version must be >= 0x82 to enable LR compute workaround.",
        f"amdgpu {GPU}: amdgpu: HDCP: Failed to initialize HDCP",
        f"pci {GPU}: BAR 6 [mem 0x000c0000-0x000dffff pref]: can't claim; no compatible bridge window",
        "iwlwifi 0000:09:00.0: Direct firmware load for iwlwifi-92.ucode failed with error -2",
        "nvme 0000:05:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        "DMAR: [DMA Read] Request device [05:00.0] fault addr 0x0 [fault reason 06]",
        "BUG: kernel NULL pointer dereference, address: 0000000000000008",
        "RIP: 0010:btrfs_foo+0x12/0x20 [btrfs]",
        "nouveau 0000:01:00.0: fifo: SCHED_ERROR",
        "KLD i915kms.ko: depends on ttm - not available or version mismatch",
        "nouveau 0000:01:00.0: ring 0 stalled for more than 10244msec",
        "[drm:intel_dpm_set [i915]] *ERROR* power state failed",
        "[drm] psp gfx command LOAD_TA(0x1) failed and response status is (0x7)",
        "[drm] psp gfx command INVOKE_CMD(0x3) failed and response status is (0x4)",
        "drmn0: failed to load firmware image with name: amdgpu/navi10_ta.bin",
        "amdgpu/navi10_mec.bin: could not load firmware image, error 2",
    ],
)
def test_messages_of_healthy_machines_and_other_devices_are_ignored(line: str) -> None:
    assert not parse_log(line, [GPU]).events


def test_upstream_bridge_errors_are_attributed_to_the_gpu() -> None:
    line = "pcieport 0000:00:01.1: AER: Uncorrected (Fatal) error message received from 0000:00:01.1"
    assert [event.name for event in parse_log(line, [GPU, "0000:00:01.1"]).events] == ["aer-fatal"]
    assert not parse_log(line, [GPU]).events


def test_only_last_boot_counts() -> None:
    log = parse_log(f"Linux version 7.0.0\n{MES}\nLinux version 7.0.0\nall is well\n")
    assert not log.events and log.whole
    assert parse_log(MES).whole is False


def test_only_kernel_messages_of_a_full_journal_count() -> None:
    text = (
        "\n".join(f"Jun 18 16:36:53 box kernel: usb {n}: ok" for n in range(20))
        + f"\nJun 18 16:37:01 box python[7]: {MES}\n"
    )
    assert not parse_log(text).events


@pytest.mark.rest
def test_huge_log_loses_only_its_middle() -> None:
    log = parse_log(
        f"{MES}\n" + "usb 1-4: new device\n" * 120_000 + "amdgpu 0000:03:00.0: SMU: No response msg_reg: 12\n"
    )
    assert [event.name for event in log.events] == ["mes", "smu"]


def test_every_row_cites_the_source_of_its_message() -> None:
    assert not [row for row in (*HARMLESS, *TABLE, *FAMILIES) if "/" not in row.source]


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("[drm:psp_v99_0_new_step [amdgpu]] *ERROR* a step failed", "psp"),
        ("amdgpu 0000:03:00.0: amdgpu: Failed to set soft max gfxclk !", "smu"),
        ("amdgpu 0000:03:00.0: amdgpu: [SetUclk] Set hard min uclk failed!", "smu-refused"),
        ("amdgpu: Failed to update page directories", "page-tables"),
        ("[drm:gfx_v99_0_x [amdgpu]] *ERROR* (-12) failed to create mec fw bo", "gpu-memory"),
        ("[drm:vcn_v9_0_start [amdgpu]] *ERROR* VCN[0] is not responding, trying to reset VCPU!!!", "ring-test"),
        ("[drm:xgpu_nv_mailbox_x [amdgpu]] *ERROR* no reply, error=-62", "sriov"),
    ],
)
def test_error_without_a_row_belongs_to_its_family(line: str, event: str) -> None:
    assert [event.name for event in parse_log(line).events] == [event]


def test_warning_of_the_driver_is_not_a_crash() -> None:
    trace = "RIP: 0010:amdgpu_irq_put+0x46/0x70 [amdgpu 1c8ee10b17eefcbc]\n amdgpu_fence_x+0xd8/0x100 [amdgpu]\n"
    warning = "WARNING: CPU: 2 PID: 173 at drivers/gpu/drm/amd/amdgpu/amdgpu_irq.c:600 amdgpu_irq_put+0x9f/0xb0\n"
    assert [event.name for event in parse_log(trace).events] == ["oops"]
    log = parse_log(warning + trace)
    assert not log.events and log.unrecognised


def test_panic_after_a_trace_of_the_driver_is_a_crash_of_it() -> None:
    panic = "Kernel panic - not syncing: Fatal exception\n"
    assert not parse_log(panic).events
    assert [event.name for event in parse_log(" amdgpu_bo_move+0x1/0x2 [amdgpu]\n" + panic).events] == ["oops"]


def test_errors_of_another_driver_are_not_the_drivers() -> None:
    assert not parse_log("i915 0000:00:02.0: [drm] Failed to load DMC firmware i915/adlp_dmc.bin.").events
    assert not parse_log("vfio-pci 0000:0c:00.0: AMD_NAVI14: mode1 reset succeeded").events


def test_blocked_task_in_a_built_in_driver_is_read_without_its_first_line() -> None:
    head = '"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.\n'
    assert [event.name for event in parse_log(head + " amdgpu_job_submit+0x71/0x7f\n").events] == ["task-blocked"]
    assert not parse_log(head + " lima_vm_bo_del+0x1b8/0x1d0 [lima]\n").events


RESET = (
    f"amdgpu {GPU}: amdgpu: GPU reset begin!",
    f"amdgpu {GPU}: GPU reset succeeded, trying to resume",
    f"amdgpu {GPU}: amdgpu: GPU reset(1) succeeded!",
)
KIQ = f"amdgpu {GPU}: [drm:amdgpu_ring_test_helper [amdgpu]] *ERROR* ring kiq_2.1.0 test failed (-110)"


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ([KIQ], ["ring-test"]),
        ([RESET[0], KIQ], ["reset", "reset"]),
        ([RESET[0], RESET[1], KIQ], ["reset", "reset", "reset-failed"]),
        ([*RESET, KIQ], ["reset", "reset", "reset", "ring-test"]),
        (
            [RESET[0], "[drm] initializing kernel modesetting (IP DISCOVERY 0x1002:0x7551)", KIQ],
            ["reset", "ring-test"],
        ),
        ([RESET[0], KIQ.replace("03:00", "43:00")], ["reset", "ring-test"]),
        ([RESET[0], "amdgpu: Failed to suspend process 0x8007"], ["reset", "reset"]),
        (["amdgpu: Failed to suspend process 0x8007", RESET[0]], ["queue-preemption", "reset"]),
        ([RESET[2], f"amdgpu {GPU}: [drm] device wedged, but recovered through reset"], ["reset", "reset"]),
        ([f"amdgpu {GPU}: [drm] device wedged, but recovered through reset"], ["ring-recovered"]),
        ([f"amdgpu {GPU}: [drm] device wedged, but no recovery needed"], ["ring-recovered"]),
        ([f"amdgpu {GPU}: [drm] device wedged, needs recovery"], ["reset-failed"]),
    ],
)
def test_steps_of_a_reset_under_way_belong_to_it(lines: list[str], names: list[str]) -> None:
    assert [event.name for event in parse_log("\n".join(lines)).events] == names


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("[Hardware Error]: System Fatal error.", ["machine-check"]),
        (
            "[Hardware Error]: CPU:12 (19:21:0) MC5_STATUS[-|UE|MiscV|AddrV|PCC|TCC|SyndV|-|-|-]: 0xbea0",
            ["machine-check"],
        ),
        ("[Hardware Error]: Deferred error, no action required.", ["machine-check"]),
        ("[Hardware Error]: Corrected error, no action required.", []),
        ("[Hardware Error]: CPU:12 (19:21:0) MC17_STATUS[-|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-]: 0x9c20", []),
        ("mce: [Hardware Error]: Machine check events logged", []),
        ("qcm fence wait loop timeout expired", ["queue-preemption"]),
        ("[CRTC:42:crtc-0] vblank wait timed out", ["display"]),
        ("i915 0000:00:02.0: [drm] *ERROR* [CRTC:42:pipe A] vblank wait timed out", []),
        ("amdgpu 0000:08:00.0: amdgpu: trn=2 ACK should not assert! wait again !", ["sriov"]),
        ("amdgpu 0000:04:00.0: amdgpu: fail to request/validate toc microcode", ["init-failed"]),
    ],
)
def test_wordings_of_the_processor_and_of_old_kernels(line: str, names: list[str]) -> None:
    assert [event.name for event in parse_log(line).events] == names


def test_function_of_all_ones_is_lost_if_it_is_of_amd() -> None:
    def read(vendor: str) -> list[str]:
        listed = f"pci 0000:61:02.0: [{vendor}:692f] type 7f class 0xffffff\n"
        return [
            e.name
            for e in parse_log(f"{listed}pci 0000:61:02.0: unknown header type 7f, ignoring device\n").events
        ]

    assert read("1002") == ["link-lost"]
    assert not read("10de")


def test_dropped_jobs_are_part_of_a_reset() -> None:
    log = parse_log(f"amdgpu {GPU}: GPU reset(9) succeeded!\n[drm] Skip scheduling IBs!\n")
    assert [event.name for event in log.events] == ["reset", "reset"]
    assert [event.name for event in parse_log("[drm] Skip scheduling IBs!\n").events] == ["reset"]


def test_refused_power_gating_is_of_the_smu() -> None:
    assert [event.name for event in parse_log(f"amdgpu {GPU}: VCN: powergate request failed").events] == [
        "smu-refused"
    ]
    assert [event.name for event in parse_log(f"amdgpu {GPU}: Failed to power gate VPE!").events] == ["smu"]
    assert not parse_log(f"amdgpu {GPU}: VCN: powergate request done").events


@pytest.mark.parametrize("step", ["MODE1 reset", "GPU mode1 reset", "BACO reset"])
def test_planned_chip_resets_are_no_recovery(step: str) -> None:
    """amdgpu also resets the chip before sleep, and at its start."""
    reset, ring = f"amdgpu {GPU}: amdgpu: {step}\n", f"amdgpu {GPU}: ring gfx_0.0.0 timeout, signaled seq=1\n"

    def read(log: str) -> list[str]:
        return [event.name for event in parse_log(log).events]

    assert read(f"PM: suspend entry (deep)\n{reset}ACPI: PM: Waking up from system sleep state S3\n") == []
    assert read(f"amdgpu {GPU}: amdgpu: Fetched VBIOS from VFCT\n{reset}") == []
    assert read(f"{ring}PM: suspend entry (deep)\n{reset}PM: suspend exit\n") == ["ring-timeout"]
    assert read(f"PM: suspend entry (deep)\nPM: suspend exit\n{ring}{reset}") == ["ring-timeout", "reset"]
    assert read(f"{reset}amdgpu {GPU}: GPU reset(2) succeeded!\n") == ["reset", "reset"]


@pytest.mark.parametrize(
    ("times", "stuck"),
    [
        ((24.0, 25.0, 27.0), True),
        ((24.0, 25.0, 95.0, 96.0, 97.0), True),
        ((24.0, 25.0), False),
        ((4.8, 4.9, 5.0, 5.1), False),  # one change of the picture, on several pipes
        ((24.0, 95.0, 166.0), False),  # three changes of the picture
    ],
)
def test_display_wait_that_fails_again_and_again_is_stuck(times: tuple[float, ...], stuck: bool) -> None:
    wait = "amdgpu {}: [drm] REG_WAIT timeout 1us * 10 tries - {} line:128"
    lines = [f"[{time:12.6f}] {wait.format(GPU, 'optc3_lock')}" for time in times]
    assert [event.name for event in parse_log("\n".join(lines)).events] == ["display"] * stuck
    other = [f"[{time:12.6f}] {wait.format(GPU, f'step{index}')}" for index, time in enumerate(times)]
    assert not parse_log("\n".join(other)).events
    assert not parse_log("\n".join(wait.format(GPU, "optc3_lock") for _ in times)).events  # no times


@pytest.mark.parametrize(
    ("counts", "stuck"),
    [
        (((44, 4), (50, 5), (59, 7), (70, 11)), True),
        (((44, 4), (9000, 5), (20000, 7), (40000, 11)), False),  # a screen is plugged in now and then
        (((44, 4), (50, 5)), False),
    ],
)
def test_display_work_that_takes_a_processor_more_and_more_is_stuck(
    counts: tuple[tuple[int, int], ...], stuck: bool
) -> None:
    def read(work: str) -> list[str]:
        line = "[{:5}.000000] workqueue: {} hogged CPU for >10000us {} times, consider switching to WQ_UNBOUND"
        return [event.name for event in parse_log("\n".join(line.format(at, work, n) for at, n in counts)).events]

    assert read("dm_handle_vmin_vmax_update [amdgpu]") == ["display"] * stuck
    assert read("drm_fb_helper_damage_work [drm_kms_helper]") == []
