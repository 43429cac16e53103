"""Built-in workloads: their traffic, and the checks that apply.

Each is a row of WORKLOADS. For a user's workload file (workload_file.py), only the general checks apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.simulation import traffic
from zinc_rt.sched.simulation.arrival import Arrival
from zinc_rt.sched.simulation.schedule_checks import (
    ScheduleCheck,
    check_answer,
    check_evictions,
    check_fairness,
    check_first_token,
    check_gap,
    check_gap_ratio,
    check_most,
    check_prefix_hits,
    check_rate,
    check_relative_speed,
    check_reuse,
    check_share,
    check_slot,
    check_throughput_loss,
)
from zinc_rt.sched.tenant import SECOND_NS, Priority, Tenant

# Of 32 GB, 5.0 are Qwen3 8B's weights and 1.5 scratch; a page is 4.5 MiB (36 layers x 8 heads x 128, keys and
# values, F32, 16 tokens).
CARD_PAGES = 5400


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload. `description`: a one-line description. `pages` None: enough for every slot."""

    name: str
    description: str
    tenants: Sequence[Tenant]
    arrivals: Callable[[np.random.Generator], Sequence[Arrival]]
    checks: Sequence[ScheduleCheck] = ()
    slots: int = 16
    pages: int | None = CARD_PAGES


def _make_tenants(*names: str) -> tuple[Tenant, ...]:
    return tuple(Tenant(name) for name in names)


_NIGHT = Tenant("night", Priority.BATCH)
_DESK = Tenant("desk", Priority.INTERACTIVE)
_DESKS = tuple(Tenant(f"desk-{number}", Priority.INTERACTIVE) for number in range(4))
_GOLD = Tenant("gold", slots_guaranteed=4, pages=(PageQuota(reserved=64),))
_PROMPTS, _ANSWERS = Tenant("prompts", prefill=(100, 500)), Tenant("answers", decode=(10, 20))
_TTL_NS = 5 * SECOND_NS
_LITTLE_LOST = check_throughput_loss(0.05)
_SHARED = (check_fairness(0.95), _LITTLE_LOST)

_ROWS = (
    # overload, on-off, short-long and shift are those of the virtual token counter (Sheng et al., OSDI 2024), with
    # lengths and rates for one card
    Workload(
        "overload",
        "two overloading tenants, one with twice the rate",
        _make_tenants("ant", "bee"),
        traffic.make_overload,
        _SHARED,
    ),
    Workload(
        "on-off",
        "a constantly busy tenant and a bursty one",
        _make_tenants("steady", "bursts"),
        traffic.make_on_off,
        _SHARED,
    ),
    Workload(
        "short-long",
        "many short requests and few long ones",
        _make_tenants("short", "long"),
        traffic.make_short_and_long,
        _SHARED,
    ),
    Workload(
        "shift",
        "tenants alternate between light and heavy load",
        _make_tenants("ant", "bee"),
        traffic.make_shift,
        _SHARED,
    ),
    Workload(
        "flood",
        "200 requests of one tenant, occasional requests of another",
        _make_tenants("flood", "one"),
        traffic.make_flood,
        (check_first_token("one", 4), _LITTLE_LOST),
    ),
    Workload(
        "interactive",
        "single interactive requests while batch work fills the slots",
        (_NIGHT, _DESK),
        traffic.make_interactive,
        (check_first_token("desk", 2), _LITTLE_LOST),
    ),
    Workload(
        "classes",
        "one request of each lower class during interactive overload",
        (_DESK, *_make_tenants("team"), _NIGHT),
        traffic.make_classes,
        (check_answer("team", 30 + 10), check_answer("night", 180 + 10)),
    ),
    Workload(
        "streams",
        "long interactive answers with batch work in all other slots",
        (_NIGHT, *_DESKS),
        traffic.make_streams,
        (check_gap_ratio(Priority.INTERACTIVE, 1.3), _LITTLE_LOST),
    ),
    Workload(
        "documents",
        "interactive answers beside 40 batch prompts of 3,000 tokens",
        (_NIGHT, _DESK),
        traffic.make_documents,
        (
            check_gap(Priority.INTERACTIVE, 0.035),
            check_gap_ratio(Priority.INTERACTIVE, 1.3),
            check_relative_speed(Priority.INTERACTIVE, 0.55),
            _LITTLE_LOST,
        ),
    ),
    Workload(
        "tenants",
        "1,000 tenants with Zipf-distributed rates",
        _make_tenants(*(f"tenant-{number}" for number in range(1000))),
        traffic.make_many_tenants,
        (_LITTLE_LOST,),
        slots=32,
    ),
    Workload(
        "long",
        "contexts of 512 to 23,000 tokens, with short questions between them",
        (Tenant("archive", Priority.BATCH), _DESK),
        traffic.make_long_context,
        (check_throughput_loss(0.12),),  # with the cost of the latency budget, which limits most steps
    ),
    Workload(
        "chat",
        "conversations of several turns as in ShareGPT, no sharing between tenants",
        _make_tenants(*(f"team-{number}" for number in range(6))),
        traffic.make_chat,
        (check_prefix_hits(0.30), _LITTLE_LOST),
    ),
    Workload(
        "pressure",
        "pages for a third of the slots' demand",
        (*_make_tenants("ant", "bee"), _DESK),
        traffic.make_pressure,
        (check_evictions(),),
        pages=250,
    ),
    Workload(
        "guarantees",
        "slots and pages guaranteed to one tenant while three others overload",
        (_GOLD, _DESK, *_make_tenants("team"), _NIGHT),
        traffic.make_guarantees,
        (check_slot("gold", 2), check_throughput_loss(0.08)),  # with the cost of the latency budget
    ),
    Workload(
        "limits",
        "a tenant for each limit (rates, slots, pages, weight), all overloading",
        (
            _PROMPTS,
            _ANSWERS,
            Tenant("narrow", slots_max=2),
            Tenant("thrifty", pages=(PageQuota(most=40),)),
            Tenant("double", weight=2.0),
            Tenant("single"),
        ),
        traffic.make_limits,
        (
            check_rate(_PROMPTS),
            check_rate(_ANSWERS),
            check_most("narrow", "slots", 2),
            check_most("thrifty", "pages", 40),
            check_share("double", "single"),
        ),
    ),
    Workload(
        "reuse",
        "turns within and beyond a time to live, pinned sessions, texts of groups",
        (
            Tenant("brief", cache_ttl_ns=_TTL_NS),
            Tenant("pinned", session_pin_pages=64),
            *(Tenant(name, pages=(PageQuota(group=0),)) for name in ("left", "right")),
            *_make_tenants("loose", "apart", "crowd"),
        ),
        traffic.make_reuse,
        (
            check_reuse("brief", (0, 1, 0)),
            check_reuse("pinned", (0, 1)),
            check_reuse("loose", (0, 0)),
            check_reuse("left", (0,)),
            check_reuse("right", (1,)),
            check_reuse("apart", (0,)),
        ),
        pages=250,
    ),
    Workload(
        "prompts",
        "short questions beside prompts of 3,000 tokens of the same class",
        _make_tenants("reader", "asker"),
        traffic.make_long_prompts,
        (check_answer("asker", 10), _LITTLE_LOST),  # a slot is free after the 7 s of a prompt
    ),
)
WORKLOADS = {row.name: row for row in _ROWS}
