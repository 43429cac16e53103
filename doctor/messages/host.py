"""Messages about KFD, memory and the host."""

from __future__ import annotations

from zinc_rt.doctor.messages.message import make_rows

HOST = (
    *make_rows(
        "cwsr-size",
        "amdkfd/kfd_queue.c",
        r"queue cwsr size \S+ not (?:sufficient for|equal to) node",
        r"Incorrect CWSR mapping size",
        r"queue ctl stack size \S+ not equal to node",
        r"expected size \S+ not equal to mapping addr \S+ size",
    ),
    *make_rows(
        "kfd-parameter",
        "amdkfd/kfd_module.c",
        r"sched_policy has invalid value",
        r"max_num_of_queues_per_device must be between",
    ),
    *make_rows(
        "policy-denied",
        "security/selinux/avc.c",
        r"avc: +denied .*(?:/dev/kfd|/dev/dri/|name=\"(?:kfd|renderD\d+)\"|:(?:hsa|dri)_device_t:).*permissive=0",
        r"apparmor=\"DENIED\".*/dev/(?:kfd|dri/)",
    ),
    *make_rows(
        "reset-reason",
        "arch/x86/kernel/cpu/amd.c",
        r"Previous system reset reason \[0x[0-9a-f]+\]: (?P<reason>.*(?:thermal|THERMTRIP|shutdown pin|sync flood|"
        r"uncorrected|watchdog).*)",
    ),
    *make_rows(
        "machine-check",
        "arch/x86/kernel/cpu/mce/core.c",
        r"mce: \[Hardware Error\]: CPU \d+: Machine Check(?: Exception)?: \d+ Bank",
        r"\[Hardware Error\]: (?:System Fatal error|Uncorrected, software|Deferred error, no action)",
        r"\[Hardware Error\]: .*\bMC\d+_STATUS\[(?:[^\]]*\|)?(?:UE|PCC)\b",
    ),
    *make_rows(
        "host-thermal",
        "drivers/thermal/thermal_core.c",
        r"critical temperature reached.*shutting down",
        r"Core temperature (?:above|is above) threshold, cpu clock (?:is )?throttled",
    ),
    *make_rows(
        "kfd",
        "amdkfd/kfd_device.c",
        r"kfd.*skipped device",
        r"\S+ +not supported in kfd",
        r"kfd not supported on this ASIC",
        r"NOT added due to errors",
        r"(?:Error|Failed) (?:initializing|to init\w*) (?:KFD|DQM|queue manager|interrupts|gtt sub-allocator)",
        r"Failed to (?:resume|init) (?:KFD|IOMMU) for device",
        r"Error (?:adding (?:KFD|doorbell)|resuming kfd)",
        r"Error adding device to topology",
        r"kgd2kfd_(?:probe|device_init) failed",
        r"Could not allocate \d+ (?:bytes|gws)",
        r"KFD is disabled due to module initialization failure",
        r"Won't add GPU to topology",
        r"KFD num nodes cannot be 0",
        r"HWS is not enabled",
    ),
    *make_rows(
        "queue-create",
        "amdkfd/kfd_process_queue_manager.c",
        r"DQM create queue type \d+ failed",
        r"No more SDMA queue",
        r"Cannot allocate .*queue",
        r"no more vmid to allocate",
        r"No more XGMI SDMA queue",
        r"Can't create new (?:usermode|kernel) queue because",
        r"Failed to create new queue err",
        r"No doorbell available",
    ),
    *make_rows(
        "gpu-memory",
        "drivers/gpu/drm/ttm",
        r"amdgpu.*Not enough (?:memory|VRAM)",
        r"amdgpu.*Failed to allocate (?:VRAM|GTT|bo)",
        r"\[TTM\].*(?:[Ff]ailed|[Nn]o space|[Oo]ut of)",
        r"Not enough memory for command submission",
        r"Failed to get user pages: -12\b",
        r"No enough system memory",
        r"amdgpu_(?:vm|bo)_\w+ failed.*-12",
        r"amdgpu.*No GTT space",
        r"amdgpu.*(?:\bpin failed|Failed to pin framebuffer)",
        r"SVM mapping failed, exceeds resident system memory limit",
        r"failed to validate PT BOs",
        r"amdgpu: Failed to map (?:VA \w+ in vm|bo to gpuvm)",
        r"amdgpu.*Out of memory",
        r"failed to (?:allocate|pin) (?:kernel )?bo",
        r"kernel bo pin failed",
    ),
    # hmm_range_fault: -1 (EPERM) for a mapping that is read-only, -14 (EFAULT) for one that is gone
    *make_rows("user-memory", "amdgpu/amdgpu_hmm.c", r"Failed to get user pages: -(?!12\b)\d+"),
    *make_rows(
        "host-memory",
        "mm/oom_kill.c",
        r"(?:Out of memory|Memory cgroup out of memory): Killed process (?P<pid>\d+) \((?P<name>[^)]+)\)",
        r"invoked oom-killer",
        r"Memory cgroup out of memory",
    ),
    *make_rows(
        "oops",
        "lib/bug.c",
        r"watchdog: BUG: soft lockup",
        r"(?:\bBUG: |\bOops: |general protection fault|kernel BUG at|Unable to handle kernel \w+ ).*",
        r"Kernel panic - not syncing",
        r"^Panic Report$",  # drm_panic
        # where the first line of the crash was cut off
        r"^R?IP: .*\+0x[0-9a-f]+/0x[0-9a-f]+ \[amdgpu(?: [0-9a-f]+)?\]",
    ),
    *make_rows(
        "task-blocked",
        "kernel/hung_task.c",
        r"INFO: task .* blocked for more than",
        r"rcu: .*detected stall",
        r"hung_task_timeout_secs\" disables",
    ),
    *make_rows(
        "no-response-from-card", "drivers/vfio", r"vfio-pci.*(?:reset|not ready).*(?:fail|timeout|giving up)"
    ),
)
