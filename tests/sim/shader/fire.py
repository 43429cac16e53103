"""Machine code that nobody wrote, decoded, linted, compiled and run by the shader engine, in processes of its own.

    python tests/sim/shader/fire.py                        1,000 programs, what became of them, and every crash
    python tests/sim/shader/fire.py --count 100000 --processes 2
    python tests/sim/shader/fire.py --first 4711 --count 1 --show     one of them: the code and its outcome

A program is made from its seed alone. One that ends its process (or raises, or runs on past its fuel) is run again
by itself, made as short as it can be, and printed as assembly with the command that shows it again.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fire_programs import FireProgram, random_program

from zinc_rt.isa import Target, decode_stream, target_of

CHILD = Path(__file__).with_name("fire_child.py")
BATCH = 250  # programs of one process
SILENT_SECONDS = 600.0  # without an answer a process is ended; each program has a limit of CPU time before that
MADE_SHORTER = 60  # times at most that a culprit is run to shorten it


@dataclass(frozen=True)
class FireFailure:
    """`before`: seeds that must run before it in the same process for it to happen."""

    seed: int
    why: str
    text: str
    before: tuple[int, ...] = ()


@dataclass
class FireCounts:
    """The results of the programs, by name; `lint` counts programs that the static sanitizer rejects, which run
    anyway; `rules` counts findings at run time.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    lint: int = 0
    longest_seconds: float = 0.0
    failures: list[FireFailure] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(self.outcomes.values())

    def add(self, answer: dict) -> None:
        self.outcomes[answer["outcome"]] += 1
        self.kinds[f"{answer['kind']}: {answer['outcome']}"] += 1
        self.rules.update(answer.get("rules", ()))
        self.lint += bool(answer.get("lint"))
        self.longest_seconds = max(self.longest_seconds, answer.get("seconds", 0.0))

    def lines(self) -> list[str]:
        shares = [
            f"{name:<20} {count:>7}  {count / self.count:6.1%}" for name, count in self.outcomes.most_common()
        ]
        return [
            *shares,
            f"{'refused by lint':<20} {self.lint:>7}  {self.lint / self.count:6.1%}  (and run all the same)",
            f"{self.count} programs, {len(self.failures)} failures; the longest ran {self.longest_seconds:.2f} s "
            "of CPU time, compiling included",
        ]


def run_in_process(requests: Sequence[dict], heard: Callable[[dict], None]) -> FireFailure | None:
    """Run programs in a child process until it crashes or finishes. The failure is the one that it was at."""
    child = subprocess.Popen(
        [sys.executable, str(CHILD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdin and child.stdout and child.stderr
    output: list[str] = []
    errors = threading.Thread(target=lambda: output.extend(child.stderr or ()), daemon=True)
    errors.start()
    watch = threading.Timer(SILENT_SECONDS, child.kill)
    watch.daemon = True
    watch.start()
    feed = threading.Thread(target=feed_child, args=(child, requests), daemon=True)
    feed.start()
    index = -1
    for line in child.stdout:
        watch.cancel()
        watch = threading.Timer(SILENT_SECONDS, child.kill)
        watch.daemon = True
        watch.start()
        answer = json.loads(line)
        if "begun" in answer:
            index = answer["begun"]
        elif answer["outcome"] == "host error":
            heard(answer)
            watch.cancel()
            child.kill()
            child.wait()
            return FireFailure(answer["seed"], "host error", answer["text"])
        else:
            index = -1
            heard(answer)
    watch.cancel()
    code = child.wait()
    errors.join(5)
    if code == 0:
        return None
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    if name == "SIGPROF":
        name = "SIGPROF: it went on past its fuel, or its compilation past 30 s of CPU time"
    return FireFailure(index, name, "".join(output[-40:]))


def feed_child(child: subprocess.Popen, requests: Sequence[dict]) -> None:
    assert child.stdin
    try:
        for item in requests:
            child.stdin.write(json.dumps(item) + "\n")
        child.stdin.close()
    except (BrokenPipeError, ValueError):
        return  # it died: who reads its answers finds out


def run_programs(
    seeds: Sequence[int],
    *,
    processes: int = 1,
    seconds: float | None = None,
    enough: int = 0,
    advance: Callable[[int], None] = lambda count: None,
) -> FireCounts:
    """Run all programs; `seconds`: start no further batch after this time, once `enough` have run."""
    batches: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
    size = BATCH if len(seeds) >= 2 * BATCH * processes else max(1, min(BATCH, -(-len(seeds) // processes)))
    for start in range(0, len(seeds), size):
        batches.put(list(seeds[start : start + size]))
    fired, lock, start_time = FireCounts(), threading.Lock(), time.monotonic()

    def count_answer(answer: dict) -> None:
        with lock:
            fired.add(answer)
            advance(fired.count)

    def run_worker() -> None:
        while True:
            late = seconds is not None and time.monotonic() - start_time > seconds and fired.count >= enough
            try:
                left = batches.get_nowait()
            except queue.Empty:
                return
            if late:
                return
            while left:
                failure = run_in_process([{"seed": seed} for seed in left], count_answer)
                if failure is None:
                    break
                index = left.index(failure.seed) if failure.seed in left else len(left) - 1
                with lock:
                    if failure.why != "host error":
                        kind = random_program(left[index]).kind
                        fired.add({"outcome": "crashed", "kind": kind})
                    fired.failures.append(FireFailure(left[index], failure.why, failure.text, tuple(left[:index])))
                left = left[index + 1 :]

    workers = [threading.Thread(target=run_worker) for _ in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return fired


# --- what a failure comes down to


def find_needed_programs(failure: FireFailure) -> FireFailure:
    """Rerun the program alone if that reproduces the failure, else with the fewest preceding programs found by
    bisection.
    """
    if is_failing([{"seed": failure.seed}]):
        return FireFailure(failure.seed, failure.why, failure.text)
    before = list(failure.before)
    while len(before) > 1:
        half = len(before) // 2
        for part in (before[half:], before[:half]):
            if is_failing([{"seed": seed} for seed in (*part, failure.seed)]):
                before = part
                break
        else:
            break
    return FireFailure(failure.seed, failure.why, failure.text, tuple(before))


def is_failing(requests: Sequence[dict]) -> bool:
    return run_in_process(requests, lambda answer: None) is not None


def minimise_program(failure: FireFailure) -> bytes:
    """Return the fewest instructions that still fail."""
    result = random_program(failure.seed)
    parts = [
        result.code[item.at : item.at + item.size_bytes]
        for item in decode_stream(result.code, target_of_program(result))
    ]
    before = [{"seed": seed} for seed in failure.before]
    tries, step = 0, max(1, len(parts) // 2)
    while tries < MADE_SHORTER:
        for start in range(0, len(parts), step):
            fewer = parts[:start] + parts[start + step :]
            tries += 1
            if fewer and is_failing([*before, {"seed": failure.seed, "code": b"".join(fewer).hex()}]):
                parts = fewer
                break
            if tries >= MADE_SHORTER:
                break
        else:
            if step == 1:
                break
            step //= 2
    return b"".join(parts)


def target_of_program(program: FireProgram) -> Target:
    return target_of("gfx1201", program.wave)


def disassemble(program: FireProgram, code: bytes) -> str:
    """Return the dwords with their disassembly, in a form that can be read and assembled."""
    launch = f"wave{program.wave}, level {program.level}, {program.vgprs} VGPRs, workgroup {program.threads}, "
    launch += f"grid {program.groups}"
    memory = f"LDS {program.lds_bytes}, scratch {program.scratch_bytes}, s[0:1]: {program.pointer}"
    about = f"// seed {program.seed}, {program.kind} ({program.about})\n// {launch}, {memory}"
    rows = []
    for item in decode_stream(code, target_of_program(program)):
        held = code[item.at : item.at + item.size_bytes].ljust(4 * -(-item.size_bytes // 4), b"\0")
        words = ", ".join(
            f"0x{int.from_bytes(held[index : index + 4], 'little'):08x}" for index in range(0, len(held), 4)
        )
        text = item.instruction.text if item.instruction is not None else "no instruction"
        rows.append(f".long {words:<36} // {item.at:#06x} {text}")
    return "\n".join([about, *rows])


def failure_report(failure: FireFailure) -> str:
    """Describe the failure, the shortest program and the command that reproduces it."""
    small = find_needed_programs(failure)
    first = min((small.seed, *small.before))
    count = max((small.seed, *small.before)) - first + 1
    return "\n".join(
        [
            f"seed {small.seed}: {small.why}" + (f", after {len(small.before)} others" if small.before else ""),
            small.text.rstrip(),
            disassemble(random_program(small.seed), minimise_program(small)),
            f"again: python tests/sim/shader/fire.py --first {first} --count {count} --show",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, metavar="N", help="programs (default 1000)")
    parser.add_argument(
        "--first", type=int, default=0, metavar="SEED", help="seed of the first program (default 0)"
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="default: every core"
    )
    parser.add_argument("--show", action="store_true", help="the programs, as assembly")
    parser.add_argument("--json", action="store_true", help="write counts and failures as JSON")
    arguments = parser.parse_args()
    if arguments.count < 1 or arguments.first < 0 or arguments.processes < 1:
        parser.error("--count and --processes want 1 or more, --first 0 or more")
    seeds = range(arguments.first, arguments.first + arguments.count)
    if arguments.show:
        for seed in seeds:
            print(disassemble(random_program(seed), random_program(seed).code))
    shown = [time.monotonic()]

    def show_progress(count: int) -> None:
        if time.monotonic() - shown[0] > 10:
            shown[0] = time.monotonic()
            print(f"{count} of {len(seeds)}", file=sys.stderr, flush=True)

    fired = run_programs(seeds, processes=arguments.processes, advance=show_progress)
    if arguments.json:
        counts = {"outcomes": fired.outcomes, "kinds": fired.kinds, "rules": fired.rules, "lint": fired.lint}
        print(json.dumps({**counts, "failures": [asdict(failure) for failure in fired.failures]}, indent=1))
    else:
        print("\n".join(fired.lines()))
    for failure in fired.failures[:8]:
        print(failure_report(failure), file=sys.stderr)
    return 1 if fired.failures else 0


if __name__ == "__main__":
    sys.exit(main())
