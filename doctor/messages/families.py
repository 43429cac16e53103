"""The families of the driver's messages: what an error is about that no row of the table matches.

The drivers print about 2900 formats (amdgpu, amdkfd, pm, ttm and the scheduler of Linux 6.12). A family is
known by its function (`[drm:psp_v13_0_x [amdgpu]]`) or by its subject. Only errors of the driver are
compared, as `DRIVER_ERROR` in table.py defines them. The first matching row is used.
"""

from __future__ import annotations

from zinc_rt.doctor.messages.message import make_rows

FAMILIES = (
    # ENOMEM and ENOSPC, whatever was to be allocated
    *make_rows(
        "gpu-memory",
        "drivers/gpu/drm/ttm",
        r"\(-(?:12|28)\)|\b(?:ret(?:urned)?|err(?:or)?|code|failed)\W{0,3}-(?:12|28)\b",
        r"no(?:t enough)? (?:system )?memory|memory allocation failed|VRAM allocation for",
        r"find memory space for buffer|buffer eviction failed|failed allocating (?:page table|swap storage)",
        r"(?:create|alloc|allocate)[\w ]* (?:bo|ob|buffer) failed|wb alloc failed|\balloc \w+ failed",
        r"failed to (?:pin|allocate?d? (?:memory|\w+ bo|buffer)|create \S+ bo)\b",
    ),
    *make_rows(
        "reset-failed",
        "amdgpu/amdgpu_reset.c",
        r"\b(?:failed|fail|error)\b.*\b(?:mode ?[12] reset|reset ACP|after reset)\b|failed to mode reset",
        r"(?:reenable|load|restore|response)\w* .*after reset|PCI (?:saved )?state|to do reset",
    ),
    *make_rows("psp", "amdgpu/amdgpu_psp.c", r"\[drm:psp_\w+|\bPSP\b|\bMP1 state\b|\bIFWI\b|\bUSBC PD FW\b"),
    *make_rows("mes", "amdgpu/amdgpu_mes.c", r"\[drm:(?:mes_v|amdgpu_mes_)\w+|\bMES\b|\bkfq\b"),
    *make_rows(
        "queue-preemption",
        "amdkfd/kfd_device_queue_manager.c",
        r"\b(?:preempt\w*|hqd|runlist|destroy mqd|unmap queue|grace (?:period|timeout))\b",
        r"(?:evict|remov|suspend)\w* (?:all |bad |process )?queues?",
    ),
    *make_rows(
        "restore-failed", "amdkfd/kfd_process.c", r"(?:resum|restor)\w* .*(?:queues?|process|userptr|svm|BOs?)\b"
    ),
    *make_rows(
        "user-memory",
        "amdgpu/amdgpu_hmm.c",
        r"user ?ptr|user pages|user bo\b|MMU notifier|\bhmm\b|\bsvm\b|dma_map_page|vma setup",
    ),
    *make_rows(
        "page-tables",
        "amdgpu/amdgpu_vm.c",
        r"page (?:tables?|director\w+)|\bPTEs?\b|\bpde?s\b|update_gpuvm_pte|BO_VA|vm_(?:bo_)?update|bo_map|"
        r"va_start|VM PD\b|validate_pt|to VM\b|to gpuvm|BO object|reserve buffers|drm_exec|amdgpu_vm_validate",
    ),
    *make_rows(
        "sriov",
        "amdgpu/mxgpu_ai.c",
        r"\bfrom pf\b|pf2vf|exclusive mode|MMSCH|rlcg\b|_sriov\b|xgpu_\w+",
    ),
    *make_rows("xgmi", "amdgpu/amdgpu_xgmi.c", r"\bxgmi\b|\bhive\b"),
    *make_rows(
        "smu-refused",
        "pm/swsmu",
        r"\[drm:(?:smu|amdgpu_dpm|amdgpu_pm|pp_|vega\d+_|polaris|tonga|fiji|navi\d+_|renoir|vangogh)\w*",
        r"failed to send (?:pre )?message\b",
        r"\b(?:smu\d*|smc|dpm|ppt|pptable|ppfeatures?|baco|gfxoff|\w*clk|uclkshadow|OD settings|overdrive|"
        r"workload mask|power limit|thermal (?:alert|limit)|fan (?:control|speed|boost)|df cstate|\w*btc|wbrf|"
        r"\w*pstate|metrics|power ?(?:un)?gat\w+|watermarks?|mall|throttl\w+|display config|soft (?:min|max))\b",
    ),
    *make_rows(
        "kfd",
        "amdkfd/kfd_device.c",
        r"\bKFD is disabled|V?CRAT\b|to (?:sysfs )?topology|doorbell (?:aperture|bitmap)|kernel queue|IH fifo|"
        r"queue manager|starting scheduler|gws BO|amdkfd\b.*(?:bo|bind)|mqd manager|kernel doorbells?|HIQ\b",
    ),
    *make_rows(
        "init-failed", "amdgpu/amdgpu_ucode.c", r"\b(?:request|validate)\b.*\b(?:microcode|ucode|firmware)\b"
    ),
    *make_rows(
        "ring-test",
        "amdgpu/amdgpu_ring.c",
        r"\[drm:(?:gfx|sdma|vcn|jpeg|uvd|vce|vpe|umsch)_v\w+",
        r"\b(?:rings?|IB|ucode|microcode|sram load|VCPU|ECPU|rlc|kiq|kcq|kgq|mqd|UMSCH|VPE|ucode load)\b",
        r"not respond",
    ),
    *make_rows(
        "init-failed",
        "amdgpu/amdgpu_device.c",
        r"\[drm:amdgpu_device_(?:init|ip_init)\w*|GART\b|discovery|pci_enable_device",
    ),
)
