"""The table of Linux kernel log messages about AMD GPUs: a pattern of the message → the event that it
indicates.

Patterns match the core of a message, which is the same in 6.8 to 7.2: prefixes changed (`[drm:func
[amdgpu]] *ERROR*`, `amdgpu 0000:03:00.0: amdgpu:`, and without the second `amdgpu:` since 6.19). `source`
is the file of the kernel that prints it, below drivers/gpu/drm/amd/ unless another root is given. The
first matching row is used.
"""

from __future__ import annotations

import re

from zinc_rt.doctor.messages.bus import BUS
from zinc_rt.doctor.messages.host import HOST
from zinc_rt.doctor.messages.loading import FIRMWARE, MODULE
from zinc_rt.doctor.messages.message import KnownMessage, make_rows
from zinc_rt.doctor.messages.running import RUNNING
from zinc_rt.doctor.messages.startup import START, START_ENDED

# Also printed by healthy machines, or announcements of a message that follows: removed before others match.
HARMLESS = (
    *make_rows(
        "harmless", "pm/swsmu/smu14/smu_v14_0.c", r"SMU driver if version not matched", r"smu driver if version ="
    ),
    *make_rows(
        "harmless",
        "amdgpu/amdgpu_psp.c",
        r"PSP runtime database doesn't exist",
        r"optional \S+ ta ucode is not",
        r"psp gfx command UNLOAD_TA\S* failed",
        # the PSP answered: it has no such application, of display protection or RAS
        r"psp gfx command (?:LOAD_TA|INVOKE_CMD)\S* failed and response status is \(0x(?!0+\)|f{8}\))",
    ),
    *make_rows("harmless", "amdgpu/amdgpu_bios.c", r"BIOS signature incorrect", r"No more image in the PCI ROM"),
    *make_rows(
        "harmless", "amdgpu/amdgpu_device.c", r"Runtime PM (?:not available|manually)", r"Using \w+ for runtime pm"
    ),
    *make_rows(
        "harmless", "display/dc", r"REG_WAIT timeout", r"Failed to setup vendor infoframe", r"DSC precompute"
    ),
    *make_rows(
        "harmless",
        "amdgpu/amdgpu_psp.c",
        r"PSP [gs]et boot config failed",
        r"RAS WARNING: cmd failed due to unsupported ip",
        r"(?:HDCP|DTM|SECUREDISPLAY|RAP|XGMI|RAS): Failed to initialize",
        r"Failed to terminate (?:dtm|hdcp|rap|ras|xgmi) ta",
    ),
    *make_rows(
        "harmless",
        "amdgpu/amdgpu_psp.c",
        r"Failed to load (?:firmware|microcode) \"?amdgpu/\w+_(?:ta|cap|kicker)\.bin",
        r"failed to load firmware image (?:with name: )?amdgpu[/_]\w+_(?:ta|cap|kicker)[._]bin",  # FreeBSD
    ),
    *make_rows("harmless", "amdgpu/amdgpu_fw_attestation.c", r"FW attestation input"),
    *make_rows("harmless", "amdgpu/amdgpu_dev_coredump.c", r"Dumping IP State"),
    *make_rows("harmless", "amdgpu/amdgpu_drv.c", r"amdgpu: debug: "),
    *make_rows("harmless", "amdgpu/amdgpu_device.c", r"failed to suspend display audio"),
    *make_rows("harmless", "amdgpu/amdgpu_atombios.c", r"Unsupported ASIC_InternalSS_Info table"),
    *make_rows("harmless", "amdgpu/amdgpu_mes.c", r"failed to create MES event log", r"MES FW version must be"),
    *make_rows("harmless", "amdgpu/amdgpu_ras.c", r"No RAS poison status", r"Failed to register \w+ ras block"),
    *make_rows("harmless", "amdgpu/amdgpu_ras.c", r"RAS: optional ras ta", r"RAP: optional", r"SECUREDISPLAY: "),
    *make_rows("harmless", "amdgpu/amdgpu_discovery.c", r"Couldn't (?:init and add|create) ip_discovery/"),
    # steps that nothing depends on: sysfs, debugfs, the EEPROM with the name of the board
    *make_rows(
        "harmless",
        "amdgpu/amdgpu_device.c",
        r"(?:create|creating|registering|register|update) (?:\w+ )*(?:device file|sysfs|debugfs|procfs)",
        r"(?:IPMI|Product Info Area)",
        r"Failed to initialize \w+ ras block",
        r"lockup timeout disabled|Invalid callback to (?:read|write)",
        r"Secure display: |securedisplay",
        r"is busy, skip halt (?:cp|rlc)",
        r"PCI error: detected callback",
        r"clock recovery|channel eq failed|displayport link status",
    ),
    *make_rows("harmless", "amdgpu/amdgpu_ras.c", r"\b0 (?:new )?(?:un)?correctable hardware errors?"),
)

# Events that a line of another driver may name: of i915, or of vfio-pci, which resets cards of virtual machines.
OF_OTHERS = frozenset({row.event for row in (*BUS, *HOST)})

TABLE: tuple[KnownMessage, ...] = (*MODULE, *FIRMWARE, *BUS, *START, *RUNNING, *HOST, *START_ENDED)

# Any text that a row matches, as one pattern for `search`.
KNOWN_TEXT = re.compile(
    "|".join(re.sub(r"[?]P<[a-z]+>", "?:", f"(?:{row.pattern.pattern})") for row in (*HARMLESS, *TABLE)),
    re.IGNORECASE,
)

# Events that concern nobody unless the line names the GPU or amdgpu itself.
NEEDS_GPU = frozenset(
    {
        "bar-unassigned",
        "aer-fatal",
        "aer-corrected",
        "bounce-buffer",
        "iommu-fault",
        "d3cold",
        "link-lost",
        "parameter-invalid",
    }
)

# An error of the driver that no row matches, as its prefix or its words say. Display messages are no part of it:
# amdgpu_dm reports monitors, cables and HDCP as errors too.
DRIVER_ERROR = re.compile(
    r"\[drm:(?!\w*(?:dm_|dc_|dm\b|dce|dcn|link_|hdcp|mst|edid|connector|encoder|sink|construct|create_stream|drm_))\w+"
    r"(?:\.\w+)* \[amdgpu\]\] \*ERROR\*"
    r"|^(?:amdgpu|kfd) (?:[0-9a-f]{4,}:\S+|kfd): (?!.*\[drm\])(?:amdgpu: )?.*\b(?:fail(?:ed|ure)?|error|"
    r"timed? ?out|hung|hang|invalid|unable|not respond\w*)\b"
    r"|^WARNING: .*drivers/gpu/drm/(?:amd|scheduler|ttm)/"
    r"|^amdgpu: (?!.*version)(?=.*\b(?:fail(?:ed|ure)?|timed? ?out|hung|hang|unable|not respond\w*)\b)",
    re.IGNORECASE,
)

# A quick look at a line before the table: most of a log is about something else.
WORTH_A_LOOK = re.compile(
    r"amdgpu|kfd|\bdrm\b|AMD-Vi|DMAR|smmu|AER|pcie|BERT|Hardware Error|firmware|\bBAR\b|"
    r"power state|module|Lockdown|oom|[Oo]ut of memory"
    r"|avc: +denied|apparmor=\"DENIED|reset reason|mce: |Machine Check|[Cc]ritical temperature|Core temperature"
    r"|powerplay|failed to send|stalled for more than|PT BOs|detected stall|parser - ?125"
    r"|[Pp]anic|DPC: |type 7f|page starting at|\bqcm\b|preempt|runlist|vblank wait"
    r"|sched_policy|max_num_of_queues|cwsr size|mapping addr"
    r"|BUG|Oops|general protection|RIP: |\bMES\b|\bPSP\b|\bSMU\b|TTM|page fault|\bring\b|"
    r"blocked for more|hung_task_timeout|vfio|Surprise|giving up",
)
