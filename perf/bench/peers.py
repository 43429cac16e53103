"""Programs that are accepted as a baseline in evidence, and the parsers of their output.

--vs runs any program; a gate accepts only these, from their recorded output.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zinc_rt.host.errors import InputError

OUTPUT_BYTES = 64 << 10  # of one run, kept
# First bytes of machine code: ELF, Mach-O in its two byte orders and as a universal file, PE
BINARY = {b"\x7fELF": "ELF", b"\xcf\xfa\xed\xfe": "Mach-O", b"\xca\xfe\xba\xbe": "Mach-O", b"MZ": "PE"}


@dataclass(frozen=True, slots=True)
class PeerRun:
    """One test of another program, as it reports it. `version` names its build, `devices` the devices used;
    `model_bytes` is the size of the tensors.
    """

    version: str
    devices: str
    parameters: int
    model_bytes: int
    generated: int
    prompt: int
    tokens_per_second: float
    gpu_layers: int
    when: str


def parse_llama_bench(text: str) -> PeerRun:
    """Parse the one text generation test printed by `llama-bench -o json`; its fields are those of get_fields() in
    llama.cpp tools/llama-bench/llama-bench.cpp. Raise InputError for anything else.
    """
    try:
        (row,) = (row for row in json.loads(text) if row["n_gen"])
        speed = float(row["avg_ts"])
        samples = [float(value) for value in row["samples_ts"]]
        if not samples or not all(math.isfinite(value) and value > 0 for value in (*samples, speed)):
            raise ValueError("the samples are not valid speeds")
        if abs(sum(samples) / len(samples) - speed) > 1e-2 * speed:
            raise ValueError("the average does not match the samples")
        return PeerRun(
            version=f"{row['build_commit']} ({row['build_number']})" if row["build_commit"] else "",
            devices=f"{row['gpu_info']}; {row['backends']}",
            parameters=int(row["model_n_params"]),
            model_bytes=int(row["model_size"]),
            generated=int(row["n_gen"]),
            prompt=int(row["n_prompt"]),
            tokens_per_second=speed,
            gpu_layers=int(row["n_gpu_layers"]),
            when=str(row["test_time"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"not JSON from llama-bench with one text generation test: {error!r}") from error


KNOWN: Mapping[str, Callable[[str], PeerRun]] = {"llama-bench": parse_llama_bench}


def describe_command(words: Sequence[str]) -> dict[str, Any]:
    """Describe the program of a command line for the record: its name, the digest of its file, and the kind of
    file.
    """
    path = shutil.which(words[0])
    if path is None:
        return {"program": Path(words[0]).name, "sha256": "", "kind": "missing", "command": list(words)}
    content = Path(path).resolve().read_bytes()
    kind = next((name for magic, name in BINARY.items() if content.startswith(magic)), "script")
    return {
        "program": Path(path).name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "kind": kind,
        "command": list(words),
    }
