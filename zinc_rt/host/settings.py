"""All ZINC_RT_* settings in one typed table, read once at a command's start into a Settings object.

The names are the original project's; the defaults are unclamped. A value that does not parse is an error, and so
is a setting of the original project that is not implemented here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from zinc_rt.host.arguments import parse_positive
from zinc_rt.host.errors import UsageError

Experts = Literal["auto", "vram", "gtt"]
EXPERTS = "ZINC_RT_EXPERTS"


@dataclass(frozen=True, slots=True)
class Settings:
    tier: str = "auto"
    cpu_workers: int = 0  # 0: every core this process may use
    cpu_affinity: tuple[int, ...] = ()  # (): wherever the system puts them
    cc: str = ""  # "": the ziglang package's
    lm_head_rows: int = 0  # 0: the whole vocabulary
    max_decode_tokens: int = 0  # 0: as many as requested
    decode_topk: int = 0  # 0: from the metadata
    gemma4_attn_scale: float = 0.0  # 0: the architecture's own
    batched_prefill: str = "on"
    graph_cache: str = "on"
    experts: Experts = "auto"
    hub: str = "https://huggingface.co"
    models: str = ""  # "": models_folder()

    def list_shortcuts(self) -> list[str]:
        """The active shortcuts as text, printed with every result that they affect."""
        clamps = []
        if self.lm_head_rows:
            clamps.append(f"LM head capped to the first {self.lm_head_rows} rows (ZINC_RT_LM_HEAD_ROWS)")
        if self.max_decode_tokens:
            clamps.append(f"at most {self.max_decode_tokens} tokens generated (ZINC_RT_MAX_DECODE_TOKENS)")
        if self.decode_topk:
            clamps.append(f"{self.decode_topk} experts a token in decode (ZINC_QWEN36_DECODE_TOPK)")
        if self.gemma4_attn_scale:
            clamps.append(f"attention scale {self.gemma4_attn_scale} (ZINC_GEMMA4_ATTN_SCALE_DEFAULT)")
        return clamps


def _parse_count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def _parse_cpus(text: str) -> tuple[int, ...]:
    """Parse a list of CPUs: "0,2-5" -> (0, 2, 3, 4, 5)."""
    cpus: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        cpus += range(_parse_count(first), _parse_count(last if dash else first) + 1)
    if not cpus or len(set(cpus)) < len(cpus):
        raise ValueError
    return tuple(cpus)


def _address(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError
    return text.rstrip("/")


def _make_choice_parser(**values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        return values[text]

    return parse


@dataclass(frozen=True, slots=True)
class SettingRow:
    name: str
    field: str
    parse: Callable[[str], Any]
    expected: str
    effect: str


KNOBS = (
    SettingRow(
        "ZINC_RT_TIER",
        "tier",
        str,  # which tiers exist is checked where backends are known: `cli.command.environment_settings`
        "auto, or a tier that `zinc-rt run --probe-tier` names",
        "the tier to run on, where no --tier is given",
    ),
    SettingRow("ZINC_RT_CPU_WORKERS", "cpu_workers", _parse_count, "a count, 0 for every core", "T-CPU threads"),
    SettingRow(
        "ZINC_RT_CPU_AFFINITY",
        "cpu_affinity",
        _parse_cpus,
        "CPUs like 0,2-5",
        "the CPUs that t_cpu_native's threads are pinned to, one each",
    ),
    SettingRow(
        "ZINC_RT_CC", "cc", str, "a clang", "what compiles t_cpu_native's kernels, instead of the ziglang package"
    ),
    SettingRow(
        "ZINC_RT_LM_HEAD_ROWS",
        "lm_head_rows",
        _parse_count,
        "a count, 0 for all",
        "cap the LM head's rows (a clamp)",
    ),
    SettingRow(
        "ZINC_RT_MAX_DECODE_TOKENS",
        "max_decode_tokens",
        _parse_count,
        "a count, 0 for no cap",
        "cap the tokens generated (a clamp)",
    ),
    SettingRow(
        "ZINC_QWEN36_DECODE_TOPK",
        "decode_topk",
        _parse_count,
        "a count, 0 for the metadata's",
        "experts a token in decode (a clamp)",
    ),
    SettingRow(
        "ZINC_GEMMA4_ATTN_SCALE_DEFAULT",
        "gemma4_attn_scale",
        parse_positive,
        "a positive number",
        "override Gemma 4's attention scale (a clamp)",
    ),
    SettingRow(
        "ZINC_BATCHED_PREFILL",
        "batched_prefill",
        _make_choice_parser(**{"0": "off", "off": "off", "1": "on", "on": "on", "validate": "validate"}),
        "off, on or validate",
        "prompt in one pass, token by token, or both compared",
    ),
    SettingRow(
        "ZINC_RT_GRAPH_CACHE",
        "graph_cache",
        _make_choice_parser(off="off", on="on"),
        "off or on",
        "keep planned graphs in the cache folder, and start from them (T1, T2, Vulkan)",
    ),
    SettingRow(
        EXPERTS,
        "experts",
        _make_choice_parser(auto="auto", vram="vram", gtt="gtt"),
        "auto, vram or gtt",
        "experts in VRAM, in host memory that the GPU reads over PCIe, or there as far as VRAM is full (T1, T2)",
    ),
    SettingRow(
        "ZINC_RT_HUB", "hub", _address, "an http or https address", "the hub, or its mirror, of `zinc-rt pull`"
    ),
    SettingRow("ZINC_RT_MODELS", "models", str, "a folder", "where `pull` puts models and `models` looks"),
)

# Settings of the original design that do not exist here: ignoring them silently would be misleading.
NOTHING_BEHIND = (
    "ZINC_RT_FAST_POOL",
    "ZINC_RT_DIRECT_DECODE_SLICE_CADENCE",
    "ZINC_RT_DIRECT_SSM_Q8_ROW_RANGE_MAX_SUCCESSES",
    "ZINC_RT_DIRECT_SSM_Q8_TRUST_AFTER_SUCCESSES",
)


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings of an environment. Raise UsageError for a value that does not parse and for an unknown
    setting."""
    for name in NOTHING_BEHIND:
        if name in environment:
            raise UsageError(f"{name} is set, but this version ignores it", next=f"unset {name}")
    known = {knob.name for knob in KNOBS}
    ours = {"ZINC_RT_TEST_DATA", "ZINC_RT_SIM_SOCKET", "ZINC_RT_SIM_ROOT", "ZINC_RT_SANITIZE"}
    # of tests; of `zinc-rt sim -- PROGRAM` and `zinc-rt sanitize -- PROGRAM`
    for name in environment:
        if name.startswith("ZINC_RT_") and name not in known | ours:
            raise UsageError(f"{name} is not a setting", next="settings: " + ", ".join(sorted(known)))
    values: dict[str, Any] = {}
    for knob in KNOBS:
        text = environment.get(knob.name)
        if text is None:
            continue
        try:
            values[knob.field] = knob.parse(text.strip())
        except (ValueError, KeyError) as error:
            raise make_settings_error(knob.name, text) from error
    return Settings(**values)


def make_settings_error(name: str, text: str) -> UsageError:
    """Return the error for a setting whose value does not parse; it names the expected values."""
    expected = next(knob.expected for knob in KNOBS if knob.name == name)
    return UsageError(f"{name}={text!r}: expected {expected}")
