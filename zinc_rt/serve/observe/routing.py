"""GET /v1/admin/routing: a server's state for a router between clients and several servers.

It contains the load and the cached prompt prefixes. Prefixes are digests keyed with the router's key
(`server: {router_key: ...}`), which all its servers share: the digest is computed from a prompt's owner,
model and first page of tokens, and cannot be reversed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Depends

from zinc_rt.sched.kv.prefix import CachedPage
from zinc_rt.sched.tenant import Priority
from zinc_rt.serve.engine.served_model import ServedModel
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.tenants.auth import require_scope
from zinc_rt.serve.tenants.tenancy import Tenancy

HEADS = 512  # most recently used first pages that are told
DIGEST_CHARACTERS = 32


def digest_prefix(router_key: str, model: str, owner: str, tokens: bytes) -> str:
    """Return the digest of a prompt's first page. `owner`: the tenant's id, or its isolation group as `group
    NAME`; `tokens`: the page's ids as little-endian i32."""
    data = b"\0".join((model.encode(), owner.encode(), tokens))
    return hmac.new(router_key.encode(), data, hashlib.sha256).hexdigest()[:DIGEST_CHARACTERS]


def list_hottest_prefixes(model: ServedModel, tenancy: Tenancy, router_key: str) -> list[str]:
    """Return the digests of the cached first pages, most recently used first. Entries with a `cache_salt` are
    omitted."""
    heads = sorted(model.core.scheduler.cache.prefix.list_heads(), key=lambda entry: -entry.last_use_ns)[:HEADS]
    roots = _list_roots(model, tenancy)
    entries = []
    for entry in heads:
        if owner := _find_owner(entry, roots):
            entries.append(digest_prefix(router_key, model.id, owner, entry.tokens))
    return entries


def _list_roots(model: ServedModel, tenancy: Tenancy) -> Mapping[bytes, str]:
    """Return the owners by hash-chain root: isolation groups, and tenants without a group."""
    roots: dict[bytes, str] = {}
    for number, tenant in enumerate(model.core.scheduler.tenants):
        known = tenancy.find_tenant(tenant.name)
        group = None if known is None else known.isolation_group
        roots[model.core.make_namespace(number).root] = tenant.name if group is None else f"group {group}"
    return roots


def _find_owner(entry: CachedPage, roots: Mapping[bytes, str]) -> str:
    """Return the owner of a cache entry: the first link of a hash chain is hashed from its owner's root.
    Empty if it is salted."""
    for root, owner in roots.items():
        if hashlib.sha256(root + entry.tokens).digest() == entry.digest:
            return owner
    return ""


def describe_routing(model: ServedModel, tenancy: Tenancy, router_key: str | None) -> dict[str, Any]:
    """Return a model's load and, if a router key is set, its cached prefixes."""
    scheduler = model.core.scheduler
    pools = [group.pool for group in scheduler.cache.pools]
    load: dict[str, Any] = {
        "waiting": {item.name.lower(): scheduler.queues.by_class[item] for item in Priority},
        "running": scheduler.limits.slots - len(scheduler.slots.free),
        "slots": scheduler.limits.slots,
        "free_slots": len(scheduler.slots.free),
        "kv_usage": max(pool.used / pool.count for pool in pools),
        "tokens_per_second": model.metrics.compute_tokens_per_second(),
        "page_tokens": scheduler.cache.page_tokens,
        "lost": bool(model.lost),
    }
    if router_key is not None:
        load["prefixes"] = list_hottest_prefixes(model, tenancy, router_key)
    return load


def make_router(server: InferenceServer) -> APIRouter:
    """Return the route, for keys with the scope admin."""
    routes = APIRouter(tags=["admin"], dependencies=[Depends(require_scope("admin"))])

    @routes.get("/v1/admin/routing")
    def get_routing() -> dict[str, Any]:  # in a worker thread: hundreds of digests take milliseconds
        """Return this server's load and cached prefixes, by model."""
        key = server.config.server.router_key
        models = {model.id: describe_routing(model, server.tenancy, key) for model in server.models.values()}
        return {"ready": not server.draining, "started": int(server.started_at), "models": models}

    return routes
