"""Messages about KFD, memory and the host."""

from __future__ import annotations

from zinc_rt.doctor.messages.message import rows

HOST = (
    *rows(
        "kfd",
        "amdkfd/kfd_device.c",
        r"kfd.*skipped device",
        r"\S+ +not supported in kfd",
        r"NOT added due to errors",
        r"(?:Error|Failed) (?:initializing|to init\w*) (?:KFD|DQM|queue manager|interrupts)",
        r"Failed to (?:resume|init) (?:KFD|IOMMU for device)",
        r"amdgpu: (?:kfd|HSA).*(?:not|fail)",
        r"Error adding KFD|kfd.*Failed",
    ),
    *rows(
        "queue-create",
        "amdkfd/kfd_process_queue_manager.c",
        r"DQM create queue type \d+ failed",
        r"No more SDMA queue",
        r"Cannot allocate .*queue",
    ),
    *rows(
        "gpu-memory",
        "drivers/gpu/drm/ttm",
        r"amdgpu.*Not enough (?:memory|VRAM)",
        r"amdgpu.*Failed to allocate (?:VRAM|GTT|bo)",
        r"\[TTM\].*(?:[Ff]ailed|[Nn]o space|[Oo]ut of)",
        r"Not enough memory for command submission",
        r"init_user_pages: Failed to get user pages",
        r"amdgpu_(?:vm|bo)_\w+ failed.*-12",
        r"amdgpu.*No GTT space",
        r"amdgpu.*Out of memory",
        r"failed to (?:allocate|pin) (?:kernel )?bo",
        r"kernel bo pin failed",
    ),
    *rows(
        "host-memory",
        "mm/oom_kill.c",
        r"Out of memory: Killed process",
        r"invoked oom-killer",
        r"Memory cgroup out of memory",
    ),
    *rows(
        "oops",
        "lib/bug.c",
        r"(?:BUG: |Oops: |general protection fault|kernel BUG at).*",
        r"RIP: \w+:(?:amdgpu|amdkfd|kfd|dc|dm|psp|smu|gfx_v|mes_v|svm)_\w+",
        r"watchdog: BUG: soft lockup",
        r"INFO: task .*(?:amdgpu|kfd|kworker).* blocked for more than",
    ),
    *rows("no-response-from-card", "drivers/vfio", r"vfio-pci.*(?:reset|not ready).*(?:fail|timeout|giving up)"),
)
