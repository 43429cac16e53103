"""Arrivals of the built-in workloads: functions from a random generator to requests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from zinc_rt.sched.simulation.arrival import Arrival

Generator = np.random.Generator

# Turns a conversation: ShareGPT's 330,239 turns of 94,145 conversations (ShareChat, arXiv 2512.17843, table 1).
# Tokens a turn: means of the same set (WildChat, arXiv 2405.01470, table 2). The spread, the time to read and to
# write the next message, are assumed.
CHAT_TURNS, CHAT_ASKED, CHAT_ANSWERED = 3.51, 94.46, 348.45
CHAT_SPREAD, CHAT_PAUSE_S = 1.0, 30.0


def draw_poisson_times(random: Generator, rate: float, start: float, end: float) -> Iterator[float]:
    """Return the event times in seconds of a Poisson process with `rate` events per second."""
    at = start + random.exponential(1 / rate)
    while at < end:
        yield at
        at += random.exponential(1 / rate)


def draw_lengths(random: Generator, mean: float, count: int) -> np.ndarray:
    """Return log-normal token counts with this mean, at least 1."""
    drawn = random.lognormal(np.log(mean) - CHAT_SPREAD**2 / 2, CHAT_SPREAD, count)
    return np.maximum(1, drawn).astype(int)


def make_overload(random: Generator) -> list[Arrival]:
    rates = {"ant": 1.5, "bee": 3.0}
    return [Arrival(index, who, 128, 128) for who, rate in rates.items() for index in np.arange(0, 60, 1 / rate)]


def make_on_off(random: Generator) -> list[Arrival]:
    arrivals = [Arrival(index, "steady", 128, 128) for index in np.arange(0, 120, 0.4)]
    for start in (10, 50, 90):
        arrivals += [Arrival(start + index, "bursts", 128, 128) for index in np.arange(0, 20, 0.25)]
    return arrivals


def make_short_and_long(random: Generator) -> list[Arrival]:
    arrivals = [Arrival(at, "short", 64, 32) for at in draw_poisson_times(random, 8.0, 0, 60)]
    return arrivals + [Arrival(at, "long", 256, 256) for at in draw_poisson_times(random, 1.2, 0, 60)]


def make_shift(random: Generator) -> list[Arrival]:
    """Four phases: both light, one heavy, the other heavy, both heavy."""
    phases = [(0.4, 0.4), (3.0, 0.4), (0.4, 3.0), (3.0, 3.0)]
    return [
        Arrival(at, who, 128, 128)
        for phase, rates in enumerate(phases)
        for who, rate in zip(("ant", "bee"), rates, strict=True)
        for at in draw_poisson_times(random, rate, 40 * phase, 40 * phase + 40)
    ]


def make_flood(random: Generator) -> list[Arrival]:
    arrivals = [Arrival(0, "flood", 100, 300) for _ in range(200)]
    return arrivals + [Arrival(at, "one", 100, 20) for at in (5, 30, 60, 90, 120)]


def make_interactive(random: Generator) -> list[Arrival]:
    arrivals = [Arrival(0, "night", 200, 500) for _ in range(64)]
    return arrivals + [Arrival(float(index), "desk", 100, 20) for index in 10 + 3.7 * np.arange(20)]


def make_classes(random: Generator) -> list[Arrival]:
    """One request of each lower class during minutes of interactive overload."""
    arrivals = [Arrival(0, "desk", 60, 1200) for _ in range(80)]
    return [*arrivals, Arrival(5, "team", 60, 20), Arrival(5, "night", 60, 20)]


def make_streams(random: Generator) -> list[Arrival]:
    arrivals = [Arrival(0, "night", 200, 500) for _ in range(96)]
    return arrivals + [Arrival(5 + 0.8 * n, f"desk-{n % 4}", 40, 400) for n in range(4)]


def make_documents(random: Generator) -> list[Arrival]:
    arrivals = [Arrival(0, "night", 3000, 100) for _ in range(40)]
    return arrivals + [Arrival(1, "desk", 100, 400) for _ in range(4)]


def make_many_tenants(random: Generator) -> list[Arrival]:
    rank = np.arange(1, 1001)
    popular = 1 / rank / (1 / rank).sum()
    who = random.choice(1000, 2500, p=popular)
    when = np.sort(random.uniform(0, 400, 2500))
    asked, answered = draw_lengths(random, 60, 2500), draw_lengths(random, 60, 2500)
    return [
        Arrival(float(index), f"tenant-{tenant}", int(prompt), int(output))
        for index, tenant, prompt, output in zip(when, who, asked, answered, strict=True)
    ]


def make_long_context(random: Generator) -> list[Arrival]:
    arrivals = [
        Arrival(at, "archive", int(2 ** random.uniform(9, 14.5)), int(random.integers(64, 257)))
        for at in draw_poisson_times(random, 0.1, 0, 240)
    ]
    return arrivals + [Arrival(at, "desk", 60, 60) for at in draw_poisson_times(random, 0.25, 0, 240)]


def make_chat(random: Generator) -> list[Arrival]:
    result = []
    for number, begins in enumerate(draw_poisson_times(random, 0.25, 0, 300)):
        turns = random.geometric(1 / CHAT_TURNS)
        asked, answered = draw_lengths(random, CHAT_ASKED, turns), draw_lengths(random, CHAT_ANSWERED, turns)
        index, before = begins, 0
        for prompt, output in zip(asked, np.minimum(answered, 2000), strict=True):
            before += int(min(prompt, 2000))
            if before + output > 16_384:
                break
            result.append(Arrival(index, f"team-{number % 6}", before, int(output), prefix=f"chat-{number}"))
            before += int(output)
            index += 0.05 * output + random.exponential(CHAT_PAUSE_S)
    return result


def make_pressure(random: Generator) -> list[Arrival]:
    arrivals = [
        Arrival(at, who, int(random.integers(50, 400)), int(random.integers(200, 900)))
        for who in ("ant", "bee")
        for at in draw_poisson_times(random, 0.35, 0, 120)
    ]
    return arrivals + [Arrival(at, "desk", 60, 40) for at in draw_poisson_times(random, 0.2, 0, 120)]


def make_guarantees(random: Generator) -> list[Arrival]:
    arrivals = [Arrival(0, "night", 150, 400) for _ in range(80)]
    arrivals += [Arrival(at, "team", 150, 200) for at in draw_poisson_times(random, 1.0, 0, 90)]
    arrivals += [Arrival(at, "desk", 50, 60) for at in draw_poisson_times(random, 0.4, 5, 90)]
    for start in np.arange(8, 90, 17.3):  # as many at once as it is guaranteed, and time to end before the next
        arrivals += [Arrival(float(start), "gold", 100, 60) for _ in range(4)]
    return arrivals


def make_limits(random: Generator) -> list[Arrival]:
    """Tenants of one class that each ask for more than one limit of theirs gives, and one without a limit."""
    rates = {"prompts": 1.0, "answers": 0.5, "narrow": 0.5, "thrifty": 0.5, "double": 2.0, "single": 1.0}
    sizes = {"prompts": (400, 8), "answers": (32, 60)}
    return [
        Arrival(at, who, *sizes.get(who, (128, 64)))
        for who, rate in rates.items()
        for at in draw_poisson_times(random, rate, 0, 60)
    ]


def make_reuse(random: Generator) -> list[Arrival]:
    """Turns of conversations: `brief` again within its time to live and after it, `pinned` and `loose` after
    others have taken all pages, and one text of two tenants that may share it, and of one that may not.
    """
    arrivals = [Arrival(at, "brief", 256, 8, prefix="turn") for at in (0, 2, 12)]
    arrivals += [Arrival(at, who, 256, 8, prefix=who) for who in ("pinned", "loose") for at in (0.5, 50)]
    arrivals += [
        Arrival(at, who, 320, 8, prefix="handbook") for at, who in ((1, "left"), (3, "right"), (5, "apart"))
    ]
    return arrivals + [Arrival(at, "crowd", 700, 16) for at in np.arange(8, 48, 2.5)]


def make_long_prompts(random: Generator) -> list[Arrival]:
    """Prompts of 3,000 tokens in a queue, and short questions of another tenant of the same class."""
    arrivals = [Arrival(at, "reader", 3000, 8) for at in np.arange(0, 30, 1.0)]
    return arrivals + [Arrival(at, "asker", 48, 4) for at in draw_poisson_times(random, 0.1, 2, 150)]
