"""What the kernel's log says of an AMD GPU, as a table: a pattern of the message → the event it stands for.

Patterns take the core of a message, which is the same through 6.8 to 7.2: prefixes changed (`[drm:func [amdgpu]]
*ERROR*`, `amdgpu 0000:03:00.0: amdgpu:`, and without the second `amdgpu:` since 6.19). `source` is the file of the
kernel that prints it, below drivers/gpu/drm/amd/ where no other root is named. The first row that fits a line wins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    event: str
    pattern: re.Pattern[str]
    source: str


def _rows(event: str, source: str, *patterns: str) -> list[Message]:
    return [Message(event, re.compile(pattern, re.IGNORECASE), source) for pattern in patterns]


# Said by healthy machines, too: taken out before anything else may match.
HARMLESS = (
    *_rows(
        "harmless", "pm/swsmu/smu14/smu_v14_0.c", r"SMU driver if version not matched", r"smu driver if version ="
    ),
    *_rows(
        "harmless", "amdgpu/amdgpu_psp.c", r"PSP runtime database doesn't exist", r"optional \S+ ta ucode is not"
    ),
    *_rows("harmless", "amdgpu/amdgpu_bios.c", r"BIOS signature incorrect", r"No more image in the PCI ROM"),
    *_rows(
        "harmless", "amdgpu/amdgpu_device.c", r"Runtime PM (?:not available|manually)", r"Using \w+ for runtime pm"
    ),
    *_rows("harmless", "display/dc", r"REG_WAIT timeout", r"Failed to setup vendor infoframe", r"DSC precompute"),
    *_rows("harmless", "amdgpu/amdgpu_psp.c", r"PSP [gs]et boot config failed", r"RAS WARNING: cmd failed due to unsupported ip",
           r"(?:HDCP|DTM|SECUREDISPLAY|RAP|XGMI|RAS): Failed to initialize", r"Failed to terminate (?:dtm|hdcp|rap|ras|xgmi) ta"),
    *_rows("harmless", "amdgpu/amdgpu_fw_attestation.c", r"FW attestation input"),
    *_rows("harmless", "amdgpu/amdgpu_mes.c", r"failed to create MES event log", r"MES FW version must be"),
    *_rows("harmless", "amdgpu/amdgpu_ras.c", r"No RAS poison status", r"Failed to register \w+ ras block"),
    *_rows("harmless", "amdgpu/amdgpu_ras.c", r"RAS: optional ras ta", r"RAP: optional", r"SECUREDISPLAY: "),
    *_rows("harmless", "amdgpu/amdgpu_ras.c", r"\b0 (?:new )?(?:un)?correctable hardware errors?"),
)

TABLE: tuple[Message, ...] = (
    # --- the module ---
    *_rows(
        "module-rejected", "kernel/module/signing.c",
        r"Loading of (?:unsigned )?module.*(?:amdgpu.*)?is rejected", r"Lockdown:.*unsigned module loading is restricted",
        r"Loading of module with unavailable key is rejected", r"amdgpu.*Key was rejected by service",
        r"insmod.*amdgpu.*Required key not available",
    ),
    *_rows(
        "module-mismatch", "kernel/module/version.c",
        r"(?:amdgpu|amdkcl|amdttm|amd_sched|amdxcp|drm_\w+): (?:disagrees about version of symbol|Unknown symbol)",
        r"(?:amdgpu|amdkcl|amdttm|amd_sched|amdxcp): version magic '", r"amdgpu.*Invalid module format",
        r"(?:amdgpu|amdkcl|amdttm|amd_sched): module uses symbols .* not inherit",
    ),
    *_rows("parameter-unknown", "kernel/params.c", r"amdgpu: unknown parameter '[^']+' ignored"),
    *_rows("parameter-invalid", "kernel/params.c", r"amdgpu: `[^']*' invalid for parameter", r"`.*' invalid for parameter `amdgpu"),
    *_rows("modeset-off", "amdgpu/amdgpu_drv.c", r"amdgpu kernel modesetting disabled", r"VGACON disables? amdgpu"),
    # --- firmware ---
    *_rows(
        "firmware-missing", "drivers/base/firmware_loader/main.c",
        r"Direct firmware load for (?P<file>amdgpu/\S+) failed with error -2\b",
        r"firmware: failed to load (?P<file>amdgpu/\S+) \(-2\)", r"amdgpu requires firmware installed",
        r"Missing Free firmware", r"can't load firmware \"?(?P<file>[\w./]+)", r"Failed to get gpu_info firmware \"?(?P<file>[\w./]+)",
        r"Could(?: not|n't) (?:load|find) firmware \S*(?P<file>amdgpu/\S+)",
        r"(?P<file>amdgpu/\w+\.bin)\S*:? (?:could not be found|not found|No such file)",
    ),
    *_rows(
        "firmware-unreadable", "drivers/base/firmware_loader/main.c",
        r"Direct firmware load for (?P<file>amdgpu/\S+) failed with error (?!-2\b)-\d+",
        r"firmware: failed to load (?P<file>amdgpu/\S+) \((?!-2\))-\d+\)", r"decompression failed.*(?P<file>amdgpu/\S+)",
        r"(?P<file>amdgpu/\S+).*(?:decompress\w* (?:failed|error)|xz_dec|zstd.*(?:error|failed))",
        r"amdgpu.*invalid (?:ucode|firmware) header", r"Can(?:not|'t) validate firmware \"?(?P<file>amdgpu/[\w.]+)",
        r"Failed to validate firmware", r"Unknown (?:GFX|PSP|RLC|SDMA|SMC|gpu_info|MC)[\w ]* ucode",
    ),
    # --- the bus ---
    *_rows(
        "bar-unassigned", "drivers/pci/setup-res.c",
        r"BAR [0-5](?: \[[^\]]*\])?: (?:no space for|failed to assign|can't assign|can't allocate)",
        r"Not enough PCI address space for a large BAR", r"can't (?:claim|reserve) \[mem.*amdgpu",
        r"amdgpu.*Problem resizing BAR\d* \(-(?:12|16|28)\).*fatal", r"amdgpu.*BAR 0: .*not (?:set|assigned)",
    ),
    *_rows(
        "bar-resize", "amdgpu/amdgpu_device.c",
        r"Problem resizing BAR ?0", r"Unable to resize (?:FB )?BAR", r"BAR ?0 .*resize failed", r"can't resize BAR",
    ),
    *_rows(
        "d3cold", "drivers/pci/pci.c",
        r"(?:Unable to|can't|cannot) change power state from (?:D3cold|D3hot|unknown) to D0",
        r"not ready \d+ms after (?:resume|D3cold|D3hot->D0)[^;]*; giving up", r"device inaccessible",
    ),
    *_rows(
        "link-lost", "drivers/pci/pcie",
        r"(?:amdgpu|kfd).*device lost from bus", r"pciehp: Slot.*(?:Link Down|Card not present)", r"Surprise (?:Link )?Down",
        r"amdgpu.*(?:has been|is) (?:disconnected|removed from)", r"amdgpu.*pci_channel_io_perm_failure",
        r"amdgpu.*config space.*0xffffffff", r"amdgpu.*(?:fell|fallen) off the bus", r"amdgpu.*PCI (?:device|card) (?:lost|gone)",
        r"not ready \d+ms after (?:FLR|bus reset|link activation)[^;]*; giving up", r"Device recovery .*failed",
    ),
    *_rows(
        "aer-fatal", "drivers/pci/pcie/aer.c",
        r"PCIe Bus Error: severity=Uncorrect\w+ \((?:Fatal|Non-Fatal)\)", r"AER: .*(?:Uncorrect\w+|Multiple Uncorrect\w+).*(?:Fatal|Non-Fatal)",
        r"amdgpu.*PCI error: detected callback", r"PCIe error recovery failed", r"BERT.*[Ff]atal.*PCIe", r"aer_uncor_status: 0x(?!0+\b)[0-9a-f]+",
        r"Hardware Error.*(?:PCIe error|section_type: PCIe)", r"pcieport.*(?:CmpltTO|MalfTLP|SDES|DLP) ",
    ),
    *_rows(
        "aer-corrected", "drivers/pci/pcie/aer.c",
        r"PCIe Bus Error: severity=Correct(?:ed|able)", r"AER: .*(?:Corrected|Correctable) error", r"(?:BadTLP|BadDLLP|RxErr|Rollover) ",
    ),
    *_rows(
        "iommu-fault", "drivers/iommu",
        r"AMD-Vi: Event logged \[(?:IO_PAGE_FAULT|ILLEGAL_DEV_TABLE_ENTRY|DEV_TAB_HARDWARE_ERROR|PAGE_TAB_HARDWARE_ERROR)",
        r"DMAR: \[(?:DMA|INTR)[ -]", r"arm-smmu.*(?:event|fault)", r"AMD-Vi: Completion-Wait loop timed out",
    ),
    *_rows(
        "atomics", "amdkfd/kfd_device.c",
        r"skipped device \S+, PCI rejects atomics", r"PCIE? atomic ops? is not supported", r"PCIe atomics? (?:is|are)? ?not supported",
    ),
    # --- start of the driver, by its firmware ---
    *_rows(
        "discovery", "amdgpu/amdgpu_discovery.c",
        r"invalid ip discovery binary", r"failed to (?:read|get|load) ip discovery", r"Failed to add \S+ ip block",
        r"unsupported (?:asic|ip|gc|discovery)", r"amdgpu.*(?:Unknown|unsupported) (?:ASIC|chip|IP version)",
        r"(?:GC|gfx|SDMA|MES|PSP|SMU) ip version .*(?:not supported|unsupported)", r"ip[ _]discovery.*(?:fail|invalid)",
        r"amdgpu_discovery_init failed", r"invalid (?:gc|harvest|mall|vcn|nps) (?:data )?table", r"Unhandled \w+ info table",
    ),
    *_rows(
        "vbios", "amdgpu/amdgpu_bios.c",
        r"Unable to locate a BIOS ROM", r"(?:asic )?atom init failed", r"atombios stuck", r"Failed to load VBIOS", r"Invalid VBIOS",
        r"amdgpu.*(?:expecting|no) (?:combios|atombios)", r"no vBIOS found", r"gpu post error",
        r"amdgpu asic init failed", r"amdgpu_atombios_init failed", r"amdgpu_atom(?:bios|firmware)_get_clock_info failed",
    ),
    *_rows(
        "psp", "amdgpu/amdgpu_psp.c",
        r"PSP (?:load|create|firmware|bootloader|ring|resume|init)[\w ]*(?:failed|fail|error)", r"psp reg .*wait timed out",
        r"psp gfx command \S+ failed", r"failed to load ucode", r"PSP is (?:not responding|hung)", r"PSP.*timed? ?out",
        r"(?:hw_init|resume|early_init|sw_init) of IP block <psp> failed", r"Failed to (?:load|init|terminate) (?:tmr|asd|psp ta|kdb|tos)\b",
        r"PSP.*boot(?:loader)? .*(?:fail|not)", r"PSP tmr init failed", r"Failed to load toc",
        r"Failed to start rlc autoload", r"Failed to (?:initialize|process) memory training", r"unsupported psp sos firmware",
        r"Failed to wait for trust OS", r"Fail to stop psp ring", r"PSP Not ready", r"Address load failed - MP0_SMN",
        r"training msg failed", r"Memory training initialization failure", r"PSP program IH_RB_CNTL failed", r"Steady state reached .*timeout",
    ),
    *_rows(
        "smu", "pm/swsmu/smu_cmn.c",
        r"SMU: (?:No response|response:0x|I'm (?:not done|very busy))",
        r"\[PrepareMp1\] Failed", r"RunDcBtc failed", r"SMU is in hanged? state", r"SMC (?:is not ready|engine is not)",
        r"Failed to export SMU metrics", r"SMU may be not in the right state", r"\[SetDfCstate\] failed", r"Failed to disallow df cstate",
        r"Failed to (?:enable|disable) gfxoff", r"(?:hw_init|resume|suspend|sw_init|early_init|late_init) of IP block <(?:smu|powerplay)> failed",
        r"failed send message: \w+", r"Failed to (?:enable requested dpm|setup smc hw|power (?:gate|ungate)|get current clock|set performance level)",
        r"SMU: .*(?:timed? ?out|no resp)", r"SMU (?:load firmware|init|firmware loading) failed", r"smu firmware loading failed",
        r"message: \w+ \(\d+\).*timeout \(no response\)",
        r"SMC failed to set mp1 state", r"Failed to Set\w+Addr", r"Failed to (?:post smu init|enable gfx imu|notify rlc status)",
        r"Failed to (?:init|setup) (?:smc tables|smu_\w+|max sustainable clocks|default dpm|pptable)", r"Failed to set driver allowed features",
        r"Failed to retrieve supported dpm", r"Failed to get (?:VBIOS boot clock|asic power limits|fan speed|thermal temperature)",
        r"Failed to (?:enter|exit) BACO", r"\bsmu\b.*(?:response timeout|not respon)",
    ),
    # --- running ---
    *_rows(
        "thermal", "pm/amdgpu_dpm.c",
        r"GPU (?:over temperature|under temperature|HW Critical Temperature)", r"(?:SW|HW) CTF", r"Critical Temperature Fault",
        r"amdgpu.*(?:thermal (?:shutdown|throttl)|overheat|temperature (?:above|exceed))", r"System is going to shutdown due to GPU",
    ),
    *_rows(
        "ras-fatal", "amdgpu/amdgpu_ras.c",
        r"[1-9]\d* (?:new )?uncorrectable hardware errors?", r"uncorrectable hardware error.*detected", r"RAS (?:fatal|poison)",
        r"RAS controller interrupt", r"poison (?:is )?(?:consumed|consumption|created|creation)", r"(?:bad page|RMA).*(?:exceed|threshold|reached)",
        r"amdgpu.*(?:Uncorrected|uncorrectable|double[- ]bit).*(?:ECC|error)", r"ERREVENT_ATHUB_INTERRUPT", r"CP ECC ERROR IRQ", r"RAS Intr triggered, device disabled", r"GPU.*needs? (?:to be )?RMA",
    ),
    *_rows("ras-corrected", "amdgpu/amdgpu_ras.c", r"[1-9]\d* (?:new )?correctable hardware errors?", r"amdgpu.*[1-9]\d* bad pages?"),
    *_rows(
        "page-fault", "amdgpu/gmc_v12_0.c",
        r"\[(?:gfx|mm)hub\d*\] ?(?:\(\w+\) )?(?:no-retry |retry )?page fault", r"VM(?:C)? page fault", r"VM_L2_PROTECTION_FAULT_STATUS",
        r"VM_CONTEXT1_PROTECTION_FAULT", r"GPU fault detected", r"Can't handle page fault",
    ),
    *_rows(
        "illegal-instruction", "amdgpu/gfx_v12_0.c",
        r"Illegal (?:opcode|instruction|register access) in command stream", r"Illegal (?:opcode|instruction|register access)",
        r"Bad opcode in command stream",
    ),
    *_rows(
        "interrupts-lost", "amdgpu/amdgpu_fence.c",
        r"Fence fallback timer expired on ring", r"amdgpu.*(?:MSI|IRQ|interrupt).*(?:not|fail|lost)", r"IH ring buffer overflow",
    ),
    *_rows(
        "mes", "amdgpu/mes_v12_0.c",
        r"MES(?:\(\d+\))? (?:failed to|is|timed|ring|scheduler|might|hang|KIQ).*(?:respon|full|unrecoverable|hung|timed? ?out|busy|fail)",
        r"failed to (?:add|remove) hardware queue (?:to|from) MES", r"failed to reg_write_reg_wait", r"mes_v\d+_\d+_set_hw_resources", r"failed to (?:un)?map legacy queue",
        r"failed to (?:suspend|resume) (?:all )?gangs", r"remove_all_kfd_queues_mes", r"(?:hw_init|resume|sw_init|late_init) of IP block <mes_v\w+> failed",
        r"failed to (?:initialize|init|enable|resume) MES", r"\bMES\b.*\*ERROR\*|\*ERROR\*.*\bMES\b(?! FW)", r"detect and reset hung queues? fail",
        r"(?:Failed to|failed) .*\bMES\b", r"waiting for kiq fence", r"wait for kiq fence", r"KIQ failed",
        r"failed to (?:write|read) reg", r"failed to map (?:compute|gfx) queue", r"failed to remove hardware queue, queue id",
    ),
    *_rows(
        "queue-preemption", "amdkfd/kfd_device_queue_manager.c",
        r"preemption failed", r"failed to (?:preempt ib|be preempted)", r"unsuccessful queues preemption", r"qcm fence wait loop timeout", r"HIQ MQD's queue_doorbell_id",
        r"The CPFW hasn't support preemption", r"Failed to evict (?:queue|process)", r"Failed to (?:quiesce|suspend) (?:KFD|process)",
        r"Resetting wave ?fronts", r"HWS hang", r"hws_hang",
    ),
    *_rows(
        "ring-recovered", "amdgpu/amdgpu_job.c",
        r"ring \S+ timeout, but soft recovered", r"Ring \S+ reset succeeded",
    ),
    *_rows(
        "ring-timeout", "amdgpu/amdgpu_job.c",
        r"ring \S+ timeout", r"Ring \S+ reset failed", r"IP block:\S+ is hung", r"Illegal .*GPU hang", r"GPU hang (?:detected|on)",
        r"Timeout waiting for (?:fence|gfx|VM flush|sem acquire)", r"TLB flush failed", r"Dumping IP State", r"kcq|kgq.*(?:disable|enable) failed",
    ),
    *_rows(
        "ring-test", "amdgpu/amdgpu_ring.c",
        r"ring \S+ test failed", r"IB test (?:failed|timed out)", r"ib ring test failed", r"failed testing IB", r"scheduler \S+ is not ready", r"IB initialization failed",
        r"autoload (?:timeout|complete)", r"IMU start timeout", r"failed to (?:invalidate|prime) (?:RS64 )?(?:instruction|data) cache",
        r"failed to load (?:me|pfp|mec) fw", r"cp failed to lock ring", r"fence wait failed", r"failed to (?:un)?halt cp",
    ),
    *_rows(
        "reset-failed", "amdgpu/amdgpu_device.c",
        r"GPU Recovery (?:Failed|disabled)", r"GPU reset(?:\(\d+\))? failed", r"GPU reset end with ret = -\d+", r"ASIC reset failed",
        r"GPU (?:mode1|mode2|baco) reset failed", r"(?:BACO|MODE[12]) reset.*failed", r"device wedged", r"TDR failed", r"GPU is lost",
        r"GPU pre asic reset failed", r"Skip scheduling IBs", r"asic reset on init failed",
        r"couldn't schedule ib on ring", r"Error scheduling IBs", r"memory with ring turned off",
    ),
    *_rows(
        "resume-failed", "amdgpu/amdgpu_device.c",
        r"(?:suspend|resume) of IP block <\w+> failed", r"amdgpu_device_ip_(?:resume|suspend)\w* failed", r"reinit gpus failure",
    ),
    *_rows(
        "reset", "amdgpu/amdgpu_device.c",
        r"GPU reset begin", r"GPU reset(?:\(\d+\))? succeeded", r"VRAM is lost due to GPU reset", r"(?:MODE[12]|BACO|Mode[12]) reset",
    ),
    # --- KFD, memory, the host ---
    *_rows(
        "kfd", "amdkfd/kfd_device.c",
        r"kfd.*skipped device", r"\S+ +not supported in kfd", r"NOT added due to errors", r"(?:Error|Failed) (?:initializing|to init\w*) (?:KFD|DQM|queue manager|interrupts)",
        r"Failed to (?:resume|init) (?:KFD|IOMMU for device)", r"amdgpu: (?:kfd|HSA).*(?:not|fail)", r"Error adding KFD|kfd.*Failed",
    ),
    *_rows(
        "queue-create", "amdkfd/kfd_process_queue_manager.c",
        r"DQM create queue type \d+ failed", r"No more SDMA queue", r"Cannot allocate .*queue",
    ),
    *_rows(
        "gpu-memory", "drivers/gpu/drm/ttm",
        r"amdgpu.*Not enough (?:memory|VRAM)", r"amdgpu.*Failed to allocate (?:VRAM|GTT|bo)", r"\[TTM\].*(?:[Ff]ailed|[Nn]o space|[Oo]ut of)",
        r"Not enough memory for command submission", r"init_user_pages: Failed to get user pages", r"amdgpu_(?:vm|bo)_\w+ failed.*-12",
        r"amdgpu.*No GTT space", r"amdgpu.*Out of memory", r"failed to (?:allocate|pin) (?:kernel )?bo", r"kernel bo pin failed",
    ),
    *_rows("host-memory", "mm/oom_kill.c", r"Out of memory: Killed process", r"invoked oom-killer", r"Memory cgroup out of memory"),
    *_rows(
        "oops", "lib/bug.c",
        r"(?:BUG: |Oops: |general protection fault|kernel BUG at).*", r"RIP: \w+:(?:amdgpu|amdkfd|kfd|dc|dm|psp|smu|gfx_v|mes_v|svm)_\w+",
        r"watchdog: BUG: soft lockup", r"INFO: task .*(?:amdgpu|kfd|kworker).* blocked for more than",
    ),
    *_rows("no-response-from-card", "drivers/vfio", r"vfio-pci.*(?:reset|not ready).*(?:fail|timeout|giving up)"),
    # --- what ended the driver's start: never the first word on why ---
    *_rows(
        "init-failed", "amdgpu/amdgpu_device.c",
        r"Fatal error during GPU init", r"amdgpu_device_ip_(?:init|early_init|late_init)[_\w]* failed", r"probe (?:with driver amdgpu|of \S+) failed with error -\d+",
        r"(?:early_init|sw_init|hw_init|late_init) of IP block <\w+> failed", r"amdgpu: finishing device",
        r"Failed to (?:load|get|init\w*|request) (?:\S+ )?(?:firmware|microcode|ucode)", r"fw load failed", r"failed to init \S+ firmware",
        r"Failed to alloc msi vectors", r"Failed initializing (?:VRAM|GTT|doorbell) heap", r"failed to init ttm pools", r"amdgpu_device_wb_init failed", r"Failed to create scheduler on ring",
    ),
)  # fmt: skip

# Events that concern nobody unless the line names the GPU or amdgpu itself.
NEEDS_GPU = frozenset(
    {
        "bar-unassigned",
        "aer-fatal",
        "aer-corrected",
        "iommu-fault",
        "d3cold",
        "link-lost",
        "oops",
        "parameter-invalid",
    }
)

# A quick look at a line before the table: most of a log is about something else.
WORTH_A_LOOK = re.compile(
    r"amdgpu|kfd|\bdrm\b|AMD-Vi|DMAR|smmu|AER|pcie|BERT|Hardware Error|firmware|\bBAR\b|power state|module|Lockdown|oom|[Oo]ut of memory"
    r"|BUG|Oops|general protection|RIP: |\bMES\b|\bPSP\b|\bSMU\b|TTM|page fault|\bring\b|blocked for more|vfio|Surprise|giving up",
)
