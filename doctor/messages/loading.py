"""Messages about the module and the firmware it loads."""

from __future__ import annotations

from zinc_rt.doctor.messages.message import make_rows

MODULE = (
    *make_rows(
        "module-rejected",
        "kernel/module/signing.c",
        r"Loading of (?:unsigned )?module.*(?:amdgpu.*)?is rejected",
        r"Lockdown:.*unsigned module loading is restricted",
        r"Loading of module with unavailable key is rejected",
        r"amdgpu.*Key was rejected by service",
        r"insmod.*amdgpu.*Required key not available",
    ),
    *make_rows(
        "module-mismatch",
        "kernel/module/version.c",
        r"Module amdgpu not found in directory",
        r"Failed to find module 'amdgpu'",
        r"(?:amdgpu|amdkcl|amdttm|amd_sched|amdxcp|drm_\w+): (?:disagrees about version of symbol|Unknown symbol)",
        r"(?:amdgpu|amdkcl|amdttm|amd_sched|amdxcp): version magic '",
        r"amdgpu.*Invalid module format",
        r"KLD amdgpu\.ko: depends on \S+ - not available or version mismatch",  # FreeBSD
        r"(?:amdgpu|amdkcl|amdttm|amd_sched): module uses symbols .* not inherit",
    ),
    *make_rows("parameter-unknown", "kernel/params.c", r"amdgpu: unknown parameter '[^']+' ignored"),
    *make_rows(
        "parameter-invalid",
        "kernel/params.c",
        r"amdgpu: `[^']*' invalid for parameter",
        r"`.*' invalid for parameter `amdgpu",
    ),
    *make_rows(
        "modeset-off", "amdgpu/amdgpu_drv.c", r"amdgpu kernel modesetting disabled", r"VGACON disables? amdgpu"
    ),
)

FIRMWARE = (
    *make_rows(
        "firmware-missing",
        "drivers/base/firmware_loader/main.c",
        r"Direct firmware load for (?P<file>amdgpu/\S+) failed with error -2\b",
        r"firmware: failed to load (?P<file>amdgpu/\S+) \(-2\)",
        r"amdgpu requires firmware installed",
        r"Missing Free firmware",
        r"can't load firmware \"?(?P<file>[\w./]+)",
        r"Failed to get gpu_info firmware \"?(?P<file>[\w./]+)",
        # -2 is ENOENT; another number says that the file exists
        r"(?!.*(?:error |\()-(?!2\b)\d)(?:could(?: not|n't)|failed to|can(?:not|'t)|unable to) "
        r"(?:load|find|open|read|request|get)\b[^/]*?(?P<file>(?:amdgpu|radeon)/[\w.-]+)",
        r"(?P<file>amdgpu/\w+\.bin)\S*:? (?:could not be found|not found|No such file)",
        r"drmn\d+: failed to load firmware image (?:with name: )?(?P<file>\S+)",  # FreeBSD, after all attempts
    ),
    *make_rows(
        "firmware-unreadable",
        "drivers/base/firmware_loader/main.c",
        r"Direct firmware load for (?P<file>amdgpu/\S+) failed with error (?!-2\b)-\d+",
        r"firmware: failed to load (?P<file>amdgpu/\S+) \((?!-2\))-\d+\)",
        r"decompression failed.*(?P<file>amdgpu/\S+)",
        r"(?P<file>amdgpu/\S+).*(?:decompress\w* (?:failed|error)|xz_dec|zstd.*(?:error|failed))",
        r"amdgpu.*invalid (?:ucode|firmware) header",
        r"Can(?:not|'t) validate firmware \"?(?P<file>amdgpu/[\w.]+)",
        r"Failed to validate firmware",
        r"Unknown (?:GFX|PSP|RLC|SDMA|SMC|gpu_info|MC)[\w ]* ucode",
    ),
)
