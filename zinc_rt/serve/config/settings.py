"""Server settings: address, device, models, tenants and keys.

    Config.for_model("M.gguf", port=8080)
    read_config("serve.yaml")  # serve/config/file.py: reports every error with its line

The fields match those of the file. Their limits also apply to the bodies of endpoints that change tenants.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    StringConstraints,
    WithJsonSchema,
)

from zinc_rt.sched.state import CLIENT_TIMEOUT_STEPS
from zinc_rt.sched.tenant import Priority
from zinc_rt.serve.config.values import (
    check_speculation_text,
    find_class,
    find_class_name,
    parse_auto,
    parse_page_count,
    parse_pages,
    parse_utc_time,
)

Whole = Annotated[int, Strict(), Ge(0)]
Count = Annotated[int, Strict(), Ge(1)]
Seconds = Annotated[float, Gt(0), Le(1e7)]
Milliseconds = Annotated[float, Ge(0), Le(1e9)]
Flag = Annotated[bool, Strict()]
# What stands in headers, URLs, logs and the ledger: no account of the ledger begins so, no path is hidden in it.
Name = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
ModelName = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$")]
Pages = Annotated[int | float, BeforeValidator(parse_page_count)]  # pages, or a share of them from 0.0 to 1.0
Scope = Literal["inference", "usage", "admin"]
Class = Annotated[
    Priority,
    BeforeValidator(find_class),
    PlainSerializer(find_class_name),
    WithJsonSchema({"type": "string", "enum": [find_class_name(item) for item in Priority]}),
]

REFUSES_UNKNOWN = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Network settings.

    `header_s`, `body_s`: time limits for a request's headers and body. `idle_s`: how long a connection may
    have no request; `client_timeout_s`, `client_timeout_steps`: how long, and during how many steps of the
    model, a client may read nothing of its answer; `drain_s`: how long running requests may continue after
    SIGTERM. `connections_per_address`: limit within `max_connections`;
    `requests_per_key`: concurrent requests. `insecure`: allow non-loopback addresses without keys.
    `strict_parameters`: reject unknown parameters. `metrics_open`: /metrics needs no key. `router_key`:
    shared with routers, which receive cache contents hashed with it (serve/observe/routing.py).
    """

    __pydantic_config__ = REFUSES_UNKNOWN

    host: Annotated[str, Strict()] = "127.0.0.1"
    port: Annotated[int, Strict(), Ge(0), Le(65535)] = 8080
    max_body_bytes: Count = 8 << 20
    header_s: Seconds = 10.0
    body_s: Seconds = 30.0
    idle_s: Seconds = 75.0
    client_timeout_s: Seconds = 30.0
    client_timeout_steps: Count = CLIENT_TIMEOUT_STEPS
    max_connections: Count = 1024
    connections_per_address: Count = 256
    requests_per_key: Count = 1024
    drain_s: Annotated[float, Ge(0), Le(1e7)] = 30.0
    cors: tuple[str, ...] = ()
    insecure: Flag = False
    strict_parameters: Flag = True
    metrics_open: Flag = False
    router_key: Annotated[str, StringConstraints(strict=True, min_length=16)] | None = None


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """Device settings, like those of `zinc-rt run`.

    `step_timeout_s`: time limit of one step. `sanitizer`, `facts`: of a simulated device; `unchecked`: allow
    a GPU on which pm4-test has not passed; `graph_cache`: reuse planned graphs from the cache folder;
    `experts`: as ZINC_RT_EXPERTS.
    """

    __pydantic_config__ = REFUSES_UNKNOWN

    tier: str = "auto"
    device: Annotated[str, BeforeValidator(lambda value: "auto" if value is None else value)] = "auto"
    ordering: str = "canonical-1"
    threads: Whole = 0
    step_timeout_s: Seconds | None = None
    sanitizer: Literal["off", "fast", "full"] | None = None
    facts: str | None = None
    unchecked: Flag = False
    graph_cache: Flag = True
    experts: Literal["auto", "vram", "gtt"] = "auto"

    @property
    def simulated(self) -> dict[str, str]:
        """Return the settings of the simulated device."""
        asked = {"sanitizer": self.sanitizer, "facts": self.facts}
        return {name: value for name, value in asked.items() if value is not None}


@dataclass(frozen=True, slots=True)
class KvSettings:
    """`pages`: pool size of each page group, None for as many pages as all slots can use at once."""

    __pydantic_config__ = REFUSES_UNKNOWN

    dtype: Literal["f32", "f16", "q8_0"] = "f32"
    pages: Annotated[tuple[int, ...] | None, BeforeValidator(parse_pages)] = None


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """A configured model.

    `path`: a GGUF file, or the name of a model in the package. `loaded`: load at startup. `pinned`: never
    unload to free memory. `weight`: share of device time. `format`: syntax of tool calls and reasoning; None
    to infer it from the template. `speculate`: off, ngram[:K], mtp[:K] or draft:FILE[:K]. `prefill_ordering`: of
    products with the tokens of prompts (docs/wmma-f16.md), None for the device's ordering. `graphs`: a file of
    `--save-graphs`, "" for none.
    """

    __pydantic_config__ = REFUSES_UNKNOWN

    id: ModelName
    path: Annotated[str, StringConstraints(strict=True, min_length=1)]
    ctx: Count | None = None
    slots: Annotated[int, Strict(), Ge(1), Le(512)] = 8
    step_tokens: Annotated[Whole, BeforeValidator(lambda value: 0 if value == "auto" else value)] = 0
    pinned: Flag = True
    loaded: Flag = True
    weight: Annotated[float, Ge(0.001), Le(1000)] = 1.0
    kv: KvSettings = KvSettings()
    state_rows: Annotated[Annotated[int, Strict(), Ge(2)] | None, BeforeValidator(parse_auto)] = None
    format: Annotated[str | None, BeforeValidator(parse_auto)] = None
    speculate: Annotated[str, Strict(), AfterValidator(check_speculation_text)] = "off"
    prefill_ordering: Literal["wmma-f16", "wmma-bf16"] | None = None
    embeddings: Literal["mean", "cls", "last", "rank"] | None = None
    graphs: Annotated[str, Strict()] = ""


@dataclass(frozen=True, slots=True)
class ClassSettings:
    """`age_s`: the width of one waiting-time band. `floor_slots`: slots reserved for the class while it has
    waited long. `gap_ms`, `first_token_ms`: its latency budgets (docs/scheduler.md); 0: none."""

    __pydantic_config__ = REFUSES_UNKNOWN

    age_s: Seconds | None = None
    floor_slots: Whole | None = None
    gap_ms: Milliseconds | None = None
    first_token_ms: Milliseconds | None = None


@dataclass(frozen=True, slots=True)
class ClassTable:
    """Class settings. Unset values use the scheduler's defaults."""

    __pydantic_config__ = REFUSES_UNKNOWN

    interactive: ClassSettings = ClassSettings()
    standard: ClassSettings = ClassSettings()
    batch: ClassSettings = ClassSettings()


@dataclass(frozen=True, slots=True)
class QueueDepths:
    """The maximum number of waiting requests of each class for a model; further requests are rejected with 503."""

    __pydantic_config__ = REFUSES_UNKNOWN

    interactive: Count = 256
    standard: Count = 1024
    batch: Count = 8192


@dataclass(frozen=True, slots=True)
class KeySettings:
    """A stored key: the SHA-256 of its secret, never the secret."""

    __pydantic_config__ = REFUSES_UNKNOWN

    id: Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9-]{1,32}$")]
    sha256: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]
    scopes: tuple[Scope, ...] = ("inference", "usage")
    expires: Annotated[datetime | None, BeforeValidator(parse_utc_time)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimits:
    """The guarantees and limits of a tenant; `defaults` sets them for all tenants.

    `slots_guaranteed` and `kv_reserved` are always available; `slots_max` and `kv_max` are never exceeded.
    Rates, in tokens per second, delay requests; `on_limit: reject` rejects them instead. `requests_per_minute` and
    `queue_max` reject requests. `models`: the permitted models, None for all.
    """

    __pydantic_config__ = REFUSES_UNKNOWN

    priority: Annotated[Class, Field(alias="class")] = Priority.STANDARD
    weight: Annotated[float, Ge(0.001), Le(1000)] = 1.0
    slots_guaranteed: Whole = 0
    slots_max: Count | None = None
    kv_reserved: Pages = 0
    kv_max: Pages = 1.0
    prefill_rate: Count | None = None
    prefill_burst: Count | None = None
    decode_rate: Count | None = None
    decode_burst: Count | None = None
    requests_per_minute: Count | None = None
    queue_max: Count = 64
    max_context: Count | None = None
    max_tokens: Count | None = None
    deadline_max_s: Seconds | None = None
    session_pin_pages: Whole = 0
    cache_ttl_s: Seconds | None = None
    models: tuple[str, ...] | None = None
    on_limit: Literal["wait", "reject"] = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSettings(TenantLimits):
    """A tenant. Tenants of one `isolation_group` share cached prefixes; other tenants never do."""

    __pydantic_config__ = REFUSES_UNKNOWN

    id: Name
    isolation_group: Name | None = None
    keys: tuple[KeySettings, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A group of tenants. Members can infer each other's prompts from the time to first token."""

    __pydantic_config__ = REFUSES_UNKNOWN

    id: Name


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """Settings of the LedgerStore; without `path`, usage records are lost at exit."""

    __pydantic_config__ = REFUSES_UNKNOWN

    path: str | None = None
    durability: Literal["second", "request"] = "second"
    on_failure: Literal["continue", "refuse"] = "continue"
    max_lag_s: Seconds = 600.0
    usage_days: Count = 400


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`prompts`: always false; prompts and answers are never logged."""

    __pydantic_config__ = REFUSES_UNKNOWN

    level: Literal["debug", "info", "warning", "error"] = "info"
    prompts: Literal["never"] = "never"


@dataclass(frozen=True, slots=True)
class Config:
    """The complete configuration of a server. `file`: the file that it was read from."""

    __pydantic_config__ = REFUSES_UNKNOWN

    models: tuple[ModelSettings, ...]
    server: ServerSettings = ServerSettings()
    device: DeviceSettings = DeviceSettings()
    classes: ClassTable = ClassTable()
    defaults: TenantLimits = TenantLimits()
    tenants: tuple[TenantSettings, ...] = (TenantSettings(id="default"),)
    groups: tuple[GroupSettings, ...] = ()
    queue: QueueDepths = QueueDepths()
    ledger: LedgerSettings = LedgerSettings()
    log: LogSettings = LogSettings()
    version: Literal[1] = 1
    file: str | None = None

    @classmethod
    def for_model(
        cls, path: str, *, id: str | None = None, model: dict[str, Any] | None = None, **settings: Any
    ) -> Config:
        """Return a configuration with one model, one tenant "default" and no key. `model`: further
        ModelSettings; `settings`: further Config fields."""
        name = id or path.replace("\\", "/").rpartition("/")[2].removesuffix(".gguf")
        return cls((ModelSettings(name, path, **(model or {})),), **settings)

    @property
    def keyed(self) -> bool:
        """Return whether any key exists; every request then needs one."""
        return any(tenant.keys for tenant in self.tenants)
