#!/usr/bin/env python3
"""Install the Vulkan driver lavapipe on Debian or Ubuntu, unless a driver in software is already there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from nightly_stages import INSTALL, list_devices, usable_devices

PACKAGES = ("mesa-vulkan-drivers", "libvulkan1")


def main() -> int:
    if drivers := usable_devices(software=True):
        print(f"lavapipe-driver: {drivers[0].name} is installed")
        return 0
    if shutil.which("apt-get") is None:
        print(f"lavapipe-driver: no apt-get here; {INSTALL}", file=sys.stderr)
        return 77
    rights = [] if os.geteuid() == 0 else ["sudo", "-n"]
    for words in (("update",), ("install", "--yes", "--no-install-recommends", *PACKAGES)):
        result = subprocess.run([*rights, "apt-get", "--quiet", *words], check=False)
        if result.returncode:
            print(f"lavapipe-driver: apt-get {words[0]} failed with exit {result.returncode}", file=sys.stderr)
            return 1
    list_devices.cache_clear()
    if not usable_devices(software=True):
        print("lavapipe-driver: it is installed, and `zinc-rt devices` does not list it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
