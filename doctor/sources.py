"""The files of a capture: a table of globs.

No `**`: sysfs links (card0 → ../../devices/...) are followed where a pattern names them, and nowhere else.
"""

from __future__ import annotations

# Plain files, safe to read on any machine.
MACHINE = (
    "proc/version", "proc/cmdline", "proc/meminfo", "proc/modules", "proc/cpuinfo",
    "proc/self/cgroup", "proc/1/cgroup",
    "proc/self/limits", "proc/sys/kernel/osrelease", "proc/sys/kernel/tainted", "proc/sys/kernel/dmesg_restrict",
    "proc/sys/kernel/modules_disabled", "proc/sys/vm/overcommit_memory",
    "etc/os-release", "usr/lib/os-release", "etc/modprobe.d/*.conf", "usr/lib/modprobe.d/*.conf",
    "etc/udev/rules.d/*.rules",
    "sys/module/amdgpu/version", "sys/module/amdgpu/srcversion", "sys/module/amdgpu/taint",
    "sys/module/amdgpu/initstate", "sys/module/amdgpu/parameters/*", "sys/module/amdkcl/version",
    "sys/module/ttm/parameters/*", "sys/module/pcie_aspm/parameters/policy",
    "sys/kernel/security/lockdown", "sys/kernel/mm/transparent_hugepage/enabled", "sys/kernel/iommu_groups/*/type",
    "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
    "sys/class/dmi/id/product_name", "sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/board_name",
    "sys/class/dmi/id/board_vendor", "sys/class/dmi/id/bios_version", "sys/class/dmi/id/bios_date",
    "sys/hypervisor/type",
    "sys/class/kfd/kfd/topology/system_properties", "sys/class/kfd/kfd/proc/*/pasid",
    "sys/class/kfd/kfd/topology/nodes/*/gpu_id", "sys/class/kfd/kfd/topology/nodes/*/name",
    "sys/class/kfd/kfd/topology/nodes/*/properties", "sys/class/kfd/kfd/topology/nodes/*/mem_banks/*/properties",
    "sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties",
    "sys/class/drm/card[0-9]*-*/status", "sys/class/drm/card[0-9]*-*/enabled",
    "sys/class/drm/version",
)  # fmt: skip

# Of each DRM device and PCI function: state of the bus, which reading does not change.
_FUNCTION = (
    "vendor", "device", "class", "revision", "subsystem_vendor", "subsystem_device", "uevent",
    "enable", "resource",
    "current_link_speed", "max_link_speed", "current_link_width", "max_link_width", "numa_node", "power_state",
    "d3cold_allowed", "reset_method", "power/control", "power/runtime_status", "power/runtime_usage",
    "power/runtime_active_time", "power/runtime_suspended_time", "link/l0s_aspm", "link/l1_aspm", "link/l1_1_aspm",
    "link/l1_2_aspm", "link/clkpm",
)  # fmt: skip
FUNCTION = (*_FUNCTION, "aer_dev_correctable", "aer_dev_fatal", "aer_dev_nonfatal")

# Answered by amdgpu from what it remembers.
REMEMBERED = (
    "vbios_version", "product_name", "product_number", "mem_info_vram_total", "mem_info_vis_vram_total",
    "mem_info_gtt_total", "fw_version/*", "ras/features", "ras/version", "ip_discovery/die/0/GC/0/*",
)  # fmt: skip

# Answered by amdgpu from the card, some through its SMU: one that hangs may keep the reader for seconds, and
# reading may wake a GPU that sleeps.
ASKED = (
    "mem_info_vram_used", "mem_info_gtt_used", "gpu_busy_percent", "pp_dpm_sclk", "pp_dpm_mclk", "pp_dpm_pcie",
    "power_dpm_force_performance_level", "ras/*_err_count", "ras/gpu_vram_bad_pages",
    "hwmon/hwmon*/name", "hwmon/hwmon*/temp*", "hwmon/hwmon*/power1_*", "hwmon/hwmon*/fan1_*",
    "hwmon/hwmon*/freq*",
    "hwmon/hwmon*/in0_*",
)  # fmt: skip

# For --hung, read twice. Of debugfs (root) only what changes nothing but this: amdgpu_fence_info completes fences
# whose interrupt was lost. Never amdgpu_gpu_recover, which resets the GPU, nor amdgpu_test_ib, which submits work.
HUNG = (
    "proc/interrupts", "sys/kernel/debug/dri/[0-9]*/amdgpu_fence_info",
    "sys/kernel/debug/dri/[0-9]*/amdgpu_mes_event_log", "sys/kernel/debug/kfd/hqds", "sys/kernel/debug/kfd/mqds",
    "sys/class/drm/card[0-9]*/device/power/runtime_status",
)  # fmt: skip
DUMP = "sys/class/drm/card[0-9]*/device/devcoredump/data"

# Of the packages of a distribution, those that matter: prefixes of names.
PACKAGES = (
    "linux-firmware", "firmware-amd-graphics", "amd-gpu-firmware", "kernel-firmware-amdgpu", "amdgpu", "libdrm",
    "mesa", "libgl1-mesa", "vulkan-radeon", "libvulkan_radeon", "rocm", "hsa-rocr", "hip-runtime", "linux-image",
    "linux-modules", "kernel-core", "kernel-default", "linux-lts", "linux-zen", "dkms", "rock-dkms", "libhsakmt",
)  # fmt: skip
