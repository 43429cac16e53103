"""The sealed forecasts, perf/predict/forecasts.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from zinc_rt.host.errors import InputError

FILE = Path(__file__).resolve().parent / "forecasts.json"
SCHEMA = "zinc-rt-forecasts/1"
MODELS = {  # name in the forecasts: row of SHAPES in perf/synthetic.py
    "35B-A3B": "qwen3.6-35b-a3b-q4_k_xl",
    "27B": "qwen3.6-27b-q4_k_m",
    "8B": "qwen3-8b-q4_k_m",
    "gpt-oss 20B": "gpt-oss-20b-mxfp4",
    "gpt-oss 120B": "gpt-oss-120b-mxfp4",
}


@dataclass(frozen=True, slots=True)
class Forecast:
    """A forecast in tok/s for all sequences together. `bytes_bound` and `flops_bound` are the bounds in tok/s by
    bytes and by operations. `note`: why there is no figure, or its conditions.
    """

    device: str
    model: str
    load: str
    likely: float | None
    low: float | None
    high: float | None
    bytes_bound: float
    flops_bound: float
    dispatches: int
    barriers: int
    note: str = ""


def compute_seal(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the date, the rows, the losses and the assumptions."""
    sealed = {name: document[name] for name in ("date", "rows", "losses", "assumptions")}
    return hashlib.sha256(json.dumps(sealed, sort_keys=True).encode()).hexdigest()


@cache
def read_committed() -> Mapping[str, Any]:
    """Return the sealed forecasts. Raise InputError for a file whose seal does not match its rows."""
    document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    if document["schema"] != SCHEMA or document["seal"] != compute_seal(document):
        raise InputError(
            f"{FILE}: the seal does not match the rows",
            next="restore it, or compute them again: python -m zinc_rt.perf.predict.forecasts",
        )
    return document


def find_forecast(device: str, model: str, load: str) -> Forecast:
    """Return a sealed forecast. Raise KeyError for a forecast that does not exist."""
    for row in read_committed()["rows"]:
        if (row["device"], row["model"], row["load"]) == (device, model, load):
            return Forecast(**row)
    raise KeyError(f"no forecast for {model} on {device}, {load}")
