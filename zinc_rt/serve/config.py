"""What a server is told to be: its address, device, models and tenants."""

from __future__ import annotations

from dataclasses import dataclass, field

from zinc_rt.sched.tenant import Tenant


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """`drain_seconds`: how long running requests may go on after SIGTERM."""

    host: str = "127.0.0.1"
    port: int = 8080
    drain_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """As `zinc-rt run` has them."""

    tier: str = "auto"
    device: str = "auto"
    ordering: str = "canonical-1"
    threads: int = 0


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """A model of the list. `path`: a GGUF file, or the name of a model that ships with the package. `loaded`: from
    the start on."""

    id: str
    path: str
    ctx: int | None = None
    slots: int = 8
    step_tokens: int = 0
    pinned: bool = True
    loaded: bool = True
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Config:
    """A server's whole configuration. Without `ledger_path` what tenants use is forgotten at the end."""

    models: tuple[ModelSettings, ...]
    server: ServerSettings = ServerSettings()
    device: DeviceSettings = DeviceSettings()
    tenants: tuple[Tenant, ...] = (Tenant("default"),)
    ledger_path: str | None = None
    step_timeout_seconds: float | None = None
    extra: dict[str, str] = field(default_factory=dict)
