"""Active Vulkan layers: those named by the environment, and implicit ones that are not disabled.

The rules are in LoaderLayerInterface.md of Vulkan-Loader.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zinc_rt.backends.vulkan import icd

NAMED = ("VK_INSTANCE_LAYERS", "VK_LOADER_LAYERS_ENABLE")


def list_active_layers(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the names of active layers, explicitly requested ones first."""
    gone = list_missing_layers(environment)
    names = [name for name in _list_requested_layers(environment) if name not in gone]
    implicit = [
        str(item["name"])
        for item in _list_installed_layers("implicit_layer.d", environment)
        if _is_on(item, environment)
    ]
    return tuple(dict.fromkeys([*names, *implicit]))


def list_missing_layers(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the layers that the environment requests but that are not installed. The loader ignores them."""
    kinds = ("explicit_layer.d", "implicit_layer.d")
    texts = {str(item["name"]) for kind in kinds for item in _list_installed_layers(kind, environment)}
    return tuple(name for name in _list_requested_layers(environment) if "*" not in name and name not in texts)


def _list_requested_layers(environment: Mapping[str, str]) -> list[str]:
    lists = (environment.get(name, "").replace(",", os.pathsep) for name in NAMED)
    return [word for names in lists for word in names.split(os.pathsep) if word]


def _list_installed_layers(kind: str, environment: Mapping[str, str]) -> list[Any]:
    """Return the layers of every readable manifest."""
    folders = [folder.replace("icd.d", kind) for folder in icd.list_folders(environment)]
    if kind == "explicit_layer.d" and (own := environment.get("VK_LAYER_PATH")):
        folders = own.split(os.pathsep)
    return [
        layer for folder in folders for path in sorted(Path(folder).glob("*.json")) for layer in _read_layers(path)
    ]


def _read_layers(path: Path) -> list[Any]:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        return [layer for layer in manifest.get("layers") or [manifest["layer"]] if layer["name"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _is_on(layer: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    if any(name in environment for name in layer.get("disable_environment", {})):
        return False
    variables = layer.get("enable_environment", {})
    return all(environment.get(name) == value for name, value in variables.items())
