"""docs/settings.md says what the knob table says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from zinc_rt.host.settings import KNOBS, NOTHING_BEHIND, Settings

DOCS = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
DEFAULT_WORDS = {  # what stands for a value that is none
    "gemma4_attn_scale": "the architecture's own",
    "cpu_affinity": "wherever the system puts them",
    "cc": "the ziglang package's",
    "models": "the user's data folder, zinc-rt/models",
}


def test_docs_table_matches_the_settings() -> None:
    defaults: dict[str, object] = {field.name: field.default for field in dataclasses.fields(Settings)}
    defaults.update(DEFAULT_WORDS)
    rows = [f"| `{k.name}` | {k.expected} | {defaults[k.field]} | {k.effect} |" for k in KNOBS]
    written = [line for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    assert written == rows


def test_docs_list_the_rejected_values() -> None:
    written = [line[3:-1] for line in DOCS.read_text().splitlines() if line.startswith("- `")]
    assert written == list(NOTHING_BEHIND)


def test_every_setting_is_listed_once() -> None:
    assert sorted(knob.field for knob in KNOBS) == sorted(field.name for field in dataclasses.fields(Settings))
