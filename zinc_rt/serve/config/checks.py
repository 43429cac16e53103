"""Checks for contradictions between configuration values that are individually valid."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

from zinc_rt.host.errors import UsageError
from zinc_rt.serve.config.marks import Place
from zinc_rt.serve.config.settings import Config, ModelSettings, TenantSettings

Said = tuple[Place, str]


def find_contradictions(config: Config) -> list[Said]:
    """Return the contradictions with their locations, in the order of the file's sections."""
    return [
        *_check_models(config),
        *_check_tenants(config),
        *_check_guarantees(config),
        *_check_keys(config),
        *_check_classes(config),
        *_check_exposure_settings(config),
    ]


def check_exposure(config: Config) -> None:
    """Raise UsageError if a server without keys is reachable from other machines."""
    for _, message in _check_exposure_settings(config):
        raise UsageError(message)


def is_loopback(host: str) -> bool:
    """Return whether the address is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_models(config: Config) -> Iterator[Said]:
    if not config.models:
        yield ("models",), "models: the list is empty: the minimum is [{id: NAME, path: M.gguf}]"
    yield from _find_duplicates("models", [model.id for model in config.models])
    for index, model in enumerate(config.models):
        if 0 < model.step_tokens < model.slots:
            yield (
                ("models", index, "step_tokens"),
                (
                    f"models.{index}.step_tokens: {model.slots} slots decode one token each: expected "
                    f"{model.slots} or more"
                ),
            )
        if model.state_rows is not None and model.state_rows < model.slots + 1:
            yield (
                ("models", index, "state_rows"),
                (
                    f"models.{index}.state_rows: each of {model.slots} slots needs one, plus one zero row: "
                    f"expected {model.slots + 1} or more"
                ),
            )


def _check_tenants(config: Config) -> Iterator[Said]:
    if not config.tenants:
        yield ("tenants",), "tenants: the list is empty: omit `tenants` for a single tenant called default"
    yield from _find_duplicates("tenants", [tenant.id for tenant in config.tenants])
    yield from _find_duplicates("groups", [group.id for group in config.groups])
    for index, tenant in enumerate(config.tenants):
        for name, message in find_tenant_problems(config, tenant):
            yield ("tenants", index, name), f"tenants.{index}.{name}: {message}"


def find_tenant_problems(config: Config, tenant: TenantSettings) -> Iterator[tuple[str, str]]:
    """Return the contradictions in one tenant as pairs of setting and message."""
    minimum, maximum = tenant.slots_guaranteed, tenant.slots_max
    if maximum is not None and minimum > maximum:
        yield "slots_guaranteed", f"{minimum}, and slots_max is {maximum}: expected at most slots_max"
    reserved, allowed = tenant.kv_reserved, tenant.kv_max
    if isinstance(reserved, float) == isinstance(allowed, float) and reserved > allowed:
        yield "kv_reserved", f"{reserved}, and kv_max is {allowed}: expected at most kv_max"
    for kind in ("prefill", "decode"):
        if getattr(tenant, f"{kind}_burst") is not None and getattr(tenant, f"{kind}_rate") is None:
            yield f"{kind}_burst", f"needs {kind}_rate as well"
    if tenant.on_limit == "reject" and not (tenant.prefill_rate or tenant.decode_rate):
        yield "on_limit", "reject needs prefill_rate or decode_rate: no rate is set"
    groups, models = [group.id for group in config.groups], [model.id for model in config.models]
    if tenant.isolation_group is not None and tenant.isolation_group not in groups:
        yield "isolation_group", f"no group {tenant.isolation_group!r}: expected one of {_join_names(groups)}"
    for model in tenant.models or ():
        if model not in models:
            yield "models", f"no model {model!r}: expected some of {_join_names(models)}"


def _check_guarantees(config: Config) -> Iterator[Said]:
    """Check the sum of all guarantees. The error names the last tenant that has one."""
    for index, tenant in reversed(list(enumerate(config.tenants))):
        if exceeded := list(find_largest_reserve(config, tenant)):
            for name, maximum in exceeded:
                message = f"{getattr(tenant, name)}: at most {maximum} are available after the other guarantees"
                yield ("tenants", index, name), f"tenants.{index}.{name}: {message}"
            return


def find_largest_reserve(config: Config, tenant: TenantSettings) -> Iterator[tuple[str, int | float]]:
    """Return the guarantee of the tenant that does not fit with the other tenants' guarantees, and its
    largest possible value."""
    others = [item for item in config.tenants if item.id != tenant.id]
    rooms = [
        model.slots - sum(item.slots_guaranteed for item in others if can_use_model(item, model))
        for model in config.models
        if can_use_model(tenant, model)
    ]
    if tenant.slots_guaranteed > (room := max(0, min(rooms, default=0))):
        yield "slots_guaranteed", room
    left = 1 - sum(item.kv_reserved for item in others if isinstance(item.kv_reserved, float))
    if isinstance(tenant.kv_reserved, float) and tenant.kv_reserved > left + 1e-9:
        yield "kv_reserved", max(0.0, round(left, 6))


def can_use_model(tenant: TenantSettings, model: ModelSettings) -> bool:
    return tenant.models is None or model.id in tenant.models


def _check_keys(config: Config) -> Iterator[Said]:
    seen: dict[str, str] = {}
    for index, tenant in enumerate(config.tenants):
        for number, key in enumerate(tenant.keys):
            location = ("tenants", index, "keys", number, "id")
            if key.id in seen:
                yield location, f"tenants.{index}.keys.{number}.id: {key.id!r} is already a key of {seen[key.id]}"
            seen.setdefault(key.id, tenant.id)
            if not key.scopes:
                yield location[:-1], f"tenants.{index}.keys.{number}.scopes: a key without scopes gives no access"


def _check_classes(config: Config) -> Iterator[Said]:
    floors = {
        name: getattr(config.classes, name).floor_slots or 0 for name in ("interactive", "standard", "batch")
    }
    for model in config.models:
        if sum(floors.values()) > model.slots // 2:
            yield (
                ("classes",),
                (
                    f"classes: the sum of floor_slots is {sum(floors.values())}: expected at most half of "
                    f"the {model.slots} slots of {model.id}"
                ),
            )


def _check_exposure_settings(config: Config) -> Iterator[Said]:
    server = config.server
    if not is_loopback(server.host) and not config.keyed and not server.insecure:
        yield (
            ("server", "host"),
            (
                f"server.host: {server.host} is reachable from other machines, and no tenant has a key: use "
                "127.0.0.1, create keys (zinc-rt serve --new-key TENANT), or set insecure: true (--insecure)"
            ),
        )


def _find_duplicates(part: str, names: list[str]) -> Iterator[Said]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield (part, index, "id"), f"{part}.{index}.id: {name!r} is used twice: expected a unique name"


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
