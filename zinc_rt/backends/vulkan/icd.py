"""Find installed drivers as the loader does: manifests (ICD files) and the library that each names.

Folders and order are the loader's (LoaderDriverInterface.md of Vulkan-Loader), without the Windows registry.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

OWN_LIST = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")  # override the folders; the second is the old name


@dataclass(frozen=True, slots=True)
class InstalledDriver:
    """One manifest. `trouble`: the reason if the loader cannot use it; "" if its library can be opened."""

    manifest: str
    library: str = ""
    api_version: str = ""
    trouble: str = ""


def find_manifest_override(environment: Mapping[str, str] = os.environ) -> str:
    """Return the variable that names manifests instead of the folders, as NAME=value; "" if none is set."""
    return next((f"{name}={environment[name]}" for name in OWN_LIST if environment.get(name)), "")


def list_installed_drivers(environment: Mapping[str, str] = os.environ) -> tuple[InstalledDriver, ...]:
    """Return every manifest that the loader would read, in its order. Each library is opened as a test."""
    return tuple(read_manifest(path) for path in find_manifests(environment))


def find_manifests(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the manifest files. Files named by a variable are included even if they do not exist."""
    files: list[Path] = []
    own = find_manifest_override(environment)
    for entry in own.partition("=")[2].split(os.pathsep) if own else list_folders(environment):
        path = Path(entry)
        files += sorted(path.glob("*.json")) if path.is_dir() else [path] if own else []
    return list(dict.fromkeys(files))


def list_folders(environment: Mapping[str, str] = os.environ) -> list[str]:
    home = environment.get("HOME", "/")
    config = environment.get("XDG_CONFIG_HOME") or f"{home}/.config"
    data = environment.get("XDG_DATA_HOME") or f"{home}/.local/share"
    roots = [config, *(environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep), "/etc", data]
    roots += (environment.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(os.pathsep)
    roots += ["/opt/homebrew/share"]  # MoltenVK
    return [f"{root}/vulkan/icd.d" for root in roots]


def read_manifest(path: Path) -> InstalledDriver:
    """Read a manifest, and test whether its library opens."""
    try:
        icd = json.loads(path.read_text(encoding="utf-8"))["ICD"]
        library, version = str(icd["library_path"]), str(icd.get("api_version", ""))
    except FileNotFoundError:
        return InstalledDriver(str(path), trouble="no such file")
    except OSError as error:
        return InstalledDriver(str(path), trouble=f"cannot be read: {error.strerror}")
    except ValueError:
        return InstalledDriver(str(path), trouble="is not JSON")
    except (KeyError, TypeError):
        return InstalledDriver(str(path), trouble="has no library path (ICD.library_path)")
    if "/" in library and not library.startswith("/"):
        library = str(path.parent / library)
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return InstalledDriver(str(path), library, version, f"its library cannot be loaded: {error}")
    return InstalledDriver(str(path), library, version)
