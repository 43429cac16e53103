"""The layers between us and the driver: those that the environment names, and implicit ones that are not off.

What the loader does with them is in LoaderLayerInterface.md of Vulkan-Loader.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from zinc_rt.backends.vulkan import icd

NAMED = ("VK_INSTANCE_LAYERS", "VK_LOADER_LAYERS_ENABLE")


def active(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Their names, those that were asked for first."""
    asked = [
        word
        for name in NAMED
        for word in environment.get(name, "").replace(",", os.pathsep).split(os.pathsep)
        if word
    ]
    folders = [folder.replace("icd.d", "implicit_layer.d") for folder in icd.folders(environment)]
    files = [path for folder in folders for path in sorted(Path(folder).glob("*.json"))]
    implicit = [name for path in files for name in _switched_on(path, environment)]
    return tuple(dict.fromkeys([*asked, *implicit]))


def _switched_on(path: Path, environment: Mapping[str, str]) -> list[str]:
    """The implicit layers of a manifest that nothing switches off; none of one that cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        layers = found.get("layers") or [found["layer"]]
        return [str(each["name"]) for each in layers if _is_on(each, environment)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _is_on(layer: Mapping[str, Mapping[str, str]], environment: Mapping[str, str]) -> bool:
    if any(name in environment for name in layer.get("disable_environment", {})):
        return False
    wanted = layer.get("enable_environment", {})
    return all(environment.get(name) == value for name, value in wanted.items())
