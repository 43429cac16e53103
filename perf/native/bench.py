"""Measure t_cpu_native against llama.cpp in one run, alternating, on models of real shapes. Its bits are checked
by zinc-rt validate.

    python3 ci/run.py perf native --help          the command (native/command.py)

Each round: read bandwidth and load, then ours and llama.cpp's settings, who begins alternating. native/paired.py
says what is made of the samples and when a verdict is refused. The oracle decodes a few tokens in each round for
the ratio to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from zinc_rt.backends import registry
from zinc_rt.cli.report import Result, Status
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.host.errors import NothingRan, ZincError
from zinc_rt.mem.traffic import list_decode_traffic
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.perf.native.llama_cpp import SETTINGS, LlamaCpp
from zinc_rt.perf.native.memory import measure_in_child
from zinc_rt.perf.native.paired import LOAD_BESIDE_US, RunConditions, find_blocking_reasons, make_pair_results
from zinc_rt.perf.native.speculation import SpeculationPair
from zinc_rt.perf.structure.lab import make_prompt

C1, Q8 = "canonical-1", "canonical-1-q8"
CTX = 512
SLOT_PROMPT = 8  # tokens of each slot before it decodes
NODE_LIMIT_US = 0.5
RSS_SPARE = 0.10  # of the file


@dataclass(frozen=True, slots=True)
class NativeCase:
    """A shape of synthetic.SHAPES. `tokens` is the length of a decode run. `slots` 0: no concurrent measurement.
    `oracle` is the number of tokens that t_cpu decodes in each round, and `oracle_prompt` whether it runs a prompt
    in the first round. `speculation`: whether decoding with drafts is measured.
    """

    model: str
    orderings: tuple[str, ...]
    tokens: int = 64
    prompt: int = 128
    slots: int = 0
    oracle: int = 0
    oracle_prompt: bool = False
    speculation: bool = False


CASES = (
    NativeCase("qwen3-0.6b-q8_0", (Q8, C1), slots=16, oracle=2, oracle_prompt=True, speculation=True),
    NativeCase("qwen3-0.6b-q4_0", (Q8,)),
    NativeCase("qwen3-0.6b-q4_k_m", (Q8, C1)),
    NativeCase("qwen35moe-3b-q4_k_m", (Q8,), tokens=32),
    NativeCase("gemma4-3b-q4_k_m", (Q8,), tokens=32),
    NativeCase("qwen3-8b-q4_k_m", (Q8,), tokens=16, oracle=1),
)


@dataclass(slots=True)
class NativeSamples:
    """tok/s by round: ours by ordering and figure, theirs by figure and setting, the oracle's by ordering and
    figure.
    """

    ours: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    theirs: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    oracle: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    read_gbs: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    peer_problem: str = ""


@dataclass(frozen=True, slots=True)
class NativeBench:
    """The tools of one run. If `peer` is None, `peer_problem` is the reason. `look` returns the current GB/s and
    load average.
    """

    tier: str
    threads: int
    rounds: int
    peer: LlamaCpp | None
    peer_problem: str
    look: Callable[[], tuple[float, float]]
    say: Callable[[str], None] = lambda line: None


def measure_case(case: NativeCase, path: Path, bench: NativeBench) -> Iterator[Result]:
    """Return every result of one model."""
    gguf = read_gguf(path)
    with ExitStack() as stack:
        try:
            engines = {
                o: stack.enter_context(_open_engine(gguf, bench, bench.tier, o, case)) for o in case.orderings
            }
            for engine in engines.values():
                _warm_up(engine, case)
        except ZincError as error:
            text = f"{bench.tier}: {str(error).partition(chr(10))[0]}"
            yield Result(f"{case.model}/decode", "native", "blocked", tier=bench.tier, reason=text)
            return
        oracles = {
            o: stack.enter_context(_open_engine(gguf, bench, registry.ORACLE, o, case))
            for o in case.orderings
            if case.oracle
        }
        samples = NativeSamples(peer_problem=bench.peer_problem)
        pairs = {o: SpeculationPair(engine, case.tokens) for o, engine in engines.items() if case.speculation}
        for number in range(bench.rounds):
            bench.say(f"{case.model}: round {number + 1} of {bench.rounds} ...")
            _run_round(number, case, path, bench, engines, oracles, samples)
            for pair in pairs.values():
                pair.run_round(number)
        _take_sample(bench, samples)
        for ordering, engine in engines.items():
            yield from _make_results(case, ordering, engine, bench, samples)
        for ordering, pair in pairs.items():
            yield _make_speculation_result(case, ordering, pair, bench, samples)
    yield _measure_resident(case, bench, gguf, path)


def _open_engine(gguf: GGUFFile, bench: NativeBench, tier: str, ordering: str, case: NativeCase) -> Engine:
    backend = open_backend(choose_tier(tier, "cpu"), ordering, threads=bench.threads)
    try:
        return Engine(gguf, backend, ctx=CTX, slots=max(1, case.slots if tier == bench.tier else 1))
    except BaseException:
        backend.close()
        raise


def _warm_up(engine: Engine, case: NativeCase) -> None:
    """Read the pages and build every variant."""
    measure_decode(engine, 2)
    measure_prefill(engine, case.prompt)
    if case.slots:
        measure_slots(engine, case.slots, 1)


def _run_round(
    number: int,
    case: NativeCase,
    path: Path,
    bench: NativeBench,
    engines: dict[str, Engine],
    oracles: dict[str, Engine],
    samples: NativeSamples,
) -> None:
    _take_sample(bench, samples)
    turns: list[Callable[[], None]] = [lambda: _measure_ours(case, engines, samples)]
    if bench.peer is not None:
        turns.append(lambda: _measure_theirs(case, path, bench, samples))
    for turn in turns[:: -1 if number % 2 else 1]:  # so that drift affects both equally
        turn()
    for ordering, engine in oracles.items():
        _add_sample(samples.oracle, (ordering, "decode"), measure_decode(engine, case.oracle))
        if case.oracle_prompt and not number:
            _add_sample(samples.oracle, (ordering, "prefill"), measure_prefill(engine, case.prompt))


def _take_sample(bench: NativeBench, samples: NativeSamples) -> None:
    read_gbs, load = bench.look()
    samples.read_gbs.append(read_gbs)
    samples.load.append(load)


def _measure_ours(case: NativeCase, engines: dict[str, Engine], samples: NativeSamples) -> None:
    for ordering, engine in engines.items():
        _add_sample(samples.ours, (ordering, "prefill"), measure_prefill(engine, case.prompt))
        _add_sample(samples.ours, (ordering, "decode"), measure_decode(engine, case.tokens))
        if case.slots:
            _add_sample(samples.ours, (ordering, "slots"), measure_slots(engine, case.slots, case.tokens // 4))


def _measure_theirs(case: NativeCase, path: Path, bench: NativeBench, samples: NativeSamples) -> None:
    """Measure llama.cpp. A setting that fails is excluded, with its reason."""
    assert bench.peer is not None
    load: dict[str, int] = {"prompt": case.prompt, "tokens": case.tokens, "threads": bench.threads}
    together = {**load, "prompt": SLOT_PROMPT, "tokens": case.tokens // 4, "slots": case.slots}
    for setting in SETTINGS:
        try:
            peer_speed = bench.peer.measure(path, setting, **load)
            if case.slots:
                peer_speed["slots"] = bench.peer.slots(path, setting, **together)
        except ZincError as error:
            samples.peer_problem = f"llama.cpp, {setting.name}: {str(error).partition(chr(10))[0]}"
            continue
        for name, speed in peer_speed.items():
            samples.theirs.setdefault(name, {}).setdefault(setting.name, []).append(speed)


def _add_sample(to: dict[tuple[str, str], list[float]], key: tuple[str, str], value: float) -> None:
    to.setdefault(key, []).append(value)


# --- timed parts, in tokens a second ---


def measure_prefill(engine: Engine, count: int) -> float:
    """Run a prompt in one pass, from an empty sequence, like llama-bench's pp test."""
    sequence = engine.open()
    tokens = make_prompt(engine.model.vocab, count)
    started = time.perf_counter()
    engine.extend(sequence, tokens, rows="last")
    seconds = time.perf_counter() - started
    engine.release(sequence)
    return count / seconds


def measure_decode(engine: Engine, count: int) -> float:
    """Decode token by token from an empty sequence, like llama-bench's tg test."""
    sequence = engine.open()
    token = 1
    started = time.perf_counter()
    for _ in range(count):
        token = int(engine.advance([(sequence, [token])], [0]).tokens[0])
    seconds = time.perf_counter() - started
    engine.release(sequence)
    return count / seconds


def measure_slots(engine: Engine, count: int, tokens: int) -> float:
    """Decode `count` sequences together, each after a short prompt."""
    sequences = [engine.open() for _ in range(count)]
    for number, sequence in enumerate(sequences):
        engine.extend(
            sequence, [(7 * index + number) % engine.model.vocab for index in range(SLOT_PROMPT)], rows="last"
        )
    last = list(range(1, count + 1))
    rows = list(range(count))
    started = time.perf_counter()
    for _ in range(tokens):
        batch = [(sequence, [token]) for sequence, token in zip(sequences, last, strict=True)]
        last = engine.advance(batch, rows).tokens.tolist()
    seconds = time.perf_counter() - started
    for sequence in sequences:
        engine.release(sequence)
    return count * tokens / seconds


# --- results ---


def _make_results(
    case: NativeCase, ordering: str, engine: Engine, bench: NativeBench, samples: NativeSamples
) -> Iterator[Result]:
    conditions = RunConditions(samples.read_gbs, samples.load, bench.threads)
    for (of, figure), ours in samples.ours.items():
        if of != ordering:
            continue
        theirs = {n: s for n, s in samples.theirs.get(figure, {}).items() if len(s) == len(ours)}
        measure = make_pair_results(ours, theirs)
        if figure == "decode":
            weights = sum(row.read_bytes for row in list_decode_traffic(engine.graph("decode"), position=0))
            share = weights * max(ours) / (max(samples.read_gbs) * 1e9)
            measure |= {"bytes_a_token": weights, "read_gbs": max(samples.read_gbs), "bandwidth_share": share}
        known = samples.oracle.get((ordering, figure))
        if known:
            measure |= {"oracle": known, "oracle_ratio": max(ours) / max(known)}
        problem = "" if theirs else samples.peer_problem or "llama.cpp gave no figure in every round"
        reason = find_blocking_reasons(conditions, bench.rounds, problem, needs_peer=True)
        measure["conditions"] = asdict(conditions)
        name = f"{case.model}/{ordering}/{figure}"
        yield Result(
            name, "native", "blocked" if reason else "pass", bench.tier, "llama.cpp", reason, measure,
            repro=f"zinc-rt perf native --models {case.model}",
        )  # fmt: skip
    for (of, figure), speeds in samples.oracle.items():
        if of == ordering:
            measure = {"runs": speeds, "seconds_a_token": 1 / max(speeds), "tokens_per_second": max(speeds)}
            yield Result(f"{case.model}/{of}/oracle-{figure}", "native", "pass", registry.ORACLE, measure=measure)


def _make_speculation_result(
    case: NativeCase, ordering: str, pair: SpeculationPair, bench: NativeBench, samples: NativeSamples
) -> Result:
    conditions = RunConditions(samples.read_gbs, samples.load, bench.threads)
    reason = find_blocking_reasons(conditions, bench.rounds, "", needs_peer=False)
    measure = {**pair.figures(), "conditions": asdict(conditions)}
    return Result(
        f"{case.model}/{ordering}/speculation", "native", "blocked" if reason else "pass", bench.tier,
        "plain decoding", reason, measure, repro=f"zinc-rt perf native --models {case.model}",
    )  # fmt: skip


def _measure_resident(case: NativeCase, bench: NativeBench, gguf: GGUFFile, path: Path) -> Result:
    """Measure resident memory. Weights are in the mapped file; the rest of the memory is caches, activations and
    the program.
    """
    name = f"{case.model}/memory"
    try:
        memory = measure_in_child(path, bench.tier, case.orderings[0], bench.threads, max(1, case.slots), CTX)
    except NothingRan as error:
        return Result(name, "native", "blocked", bench.tier, reason=str(error))
    allowed = gguf.file_bytes * (1 + RSS_SPARE) + memory.cache_bytes
    measure = {**asdict(memory), "file_bytes": gguf.file_bytes, "of_allowed": memory.resident_bytes / allowed}
    kept = memory.resident_bytes <= allowed
    reason = "" if kept else f"{memory.resident_bytes} bytes resident, allowed {allowed:.0f}"
    return Result(name, "native", "pass" if kept else "fail", bench.tier, "", reason, measure)


def make_empty_node_result(us: float | None, threads: int, load: float) -> Result:
    """Return the result for an empty node. `load` is the load average of the measurement. A slow result on a busy
    machine gives no verdict.
    """
    limit = {"us": NODE_LIMIT_US}
    measure: dict[str, Any] = {"us": us, "threads": threads, "load": load} if us is not None else {}
    status: Status = "pass"
    reason = ""
    if us is None:
        status, reason = "blocked", f"{threads} threads never alternated: the machine is busy"
    elif us > NODE_LIMIT_US:
        status, reason = "fail", f"{us:.2f} µs, allowed {NODE_LIMIT_US}"
        if load > threads + LOAD_BESIDE_US:
            status, reason = "blocked", f"{reason}; load average {load:.2f}, allowed {threads + LOAD_BESIDE_US:g}"
    return Result("empty-node", "native", status, "t_cpu_native", "", reason, measure, limit)


def read_clock_mhz() -> float | None:
    frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    return round(frequency.current, 1) if frequency is not None and frequency.current else None
