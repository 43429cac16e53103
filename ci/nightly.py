#!/usr/bin/env python3
"""A nightly run: probes, validation, replay, speed, gates, and the changes since the last night, as a summary and
a page.

Each stage runs in separate processes and records its results, so that a failure hides no other stage. A killed run
is resumed by the same command. A change of the code restarts it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree import ElementTree as Xml

from nightly_card import Card
from nightly_judge import ChipExpectations, UnusableExpectations, judge, load, night_summary
from nightly_stages import (
    FLAKES,
    ROOT,
    STAGES,
    STATE,
    Night,
    NightlyStage,
    StageCommand,
    file_identities,
    last_line,
    missing_modules,
    read_json,
    read_state,
    stage_minutes,
    timestamp,
    write_atomically,
    zinc_command,
)

PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
PAGE_SECONDS = 120.0  # for the page, and for each command of the bundle
LOAD_SECONDS = 10.0  # between readings of the load: it is an average over a minute
HEADS = "heads.txt"  # of the history, night by night
EXAMPLES = """\
examples:
  python3 ci/run.py nightly --device sim
  python3 ci/run.py nightly --device hw --expect gfx1201 --model Qwen3.6-35B-A3B-Q4_K_XL.gguf Qwen3-8B-Q4_K_M.gguf
  python3 ci/run.py nightly --device sim --stages validate,gates --fresh

Milestones M0 to M8 are evaluated. With --model, their requirements for these models are measured and validated on
this machine's GPU, and a speed that could have been measured but was not is a failure. The summary contains the
head of the history: record it in a place without write access for the users of DIR.

exit codes: 0 every stage has the expected results, 1 a stage has other results, 2 wrong usage, 77 nothing ran.
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ci/run.py nightly", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--device", choices=("sim", "auto", "hw"), default="sim", help="default sim")
    parser.add_argument(
        "--expect", metavar="CHIP", help="expectations by chip or file (default: sim for --device sim)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("zinc-rt-nightly"), metavar="DIR", help="default zinc-rt-nightly"
    )
    parser.add_argument(
        "--stages", metavar="A,B", help=f"run only these stages: {', '.join(stage.name for stage in STAGES)}"
    )
    parser.add_argument(
        "--corpus", type=Path, default=ROOT / "ci" / "corpus", metavar="DIR", help="folder with logs to replay"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="start over, even if some stages are already finished"
    )
    parser.add_argument(
        "--store",
        type=Path,
        metavar="F",
        help="store for the night's bundle (default: the store of zinc-rt bundle)",
    )
    parser.add_argument(
        "--model", nargs="+", type=Path, default=[], metavar="M.gguf", help="models to measure the speed of"
    )
    parser.add_argument(
        "--require",
        metavar="A,B",
        help="stages that must not be skipped, such as lavapipe if its driver is installed",
    )
    parser.add_argument(
        "--recover", default="", metavar="CMD", help="command that resets a hung card; tried once per hang"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=1.0,
        metavar="N",
        help="multiply the time limits of the stages (default 1)",
    )
    parser.add_argument(
        "--mutants", type=int, default=0, metavar="N",
        help="also judge N mutants of the product, in addition to those of earlier nights (default 0)",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="run only a part of each stage, to test the setup")
    return parser


def main(argv: list[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    try:
        expected = load(arguments.expect or ("sim" if arguments.device == "sim" else "gfx1201"))
        stages = select_stages(arguments.stages)
        required = tuple(stage.name for stage in select_stages(arguments.require)) if arguments.require else ()
        models = existing_models(arguments.model)
    except (UnusableExpectations, ValueError) as error:
        print(f"nightly: {error}", file=sys.stderr)
        return 2
    if arguments.device == "hw" and no_gpu():
        print("nightly: --device hw: this machine has no AMD GPU, so nothing ran", file=sys.stderr)
        print("  next: --device sim simulates one, which says nothing about hardware", file=sys.stderr)
        return 77
    folder = arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    night = Night(
        arguments.device,
        folder,
        arguments.corpus.resolve(),
        arguments.quick,
        models,
        required,
        arguments.patience,
        max(0, arguments.mutants),
    )
    with lock_folder(folder) as free:
        if not free:
            print(f"nightly: another run is using {folder}", file=sys.stderr)
            return 2
        card = Card(night, arguments.recover) if arguments.device != "sim" and not no_gpu() else None
        return run(night, stages, expected, fresh=arguments.fresh, store=arguments.store, card=card)


def existing_models(models: list[Path]) -> tuple[Path, ...]:
    """Return the named models. Raise ValueError for a file that is not a model, and for two files with the same
    name.
    """
    from zinc_rt.host.errors import ZincError

    paths = tuple(model.resolve() for model in models)
    stems = [model.stem for model in paths]
    if twice := next((stem for stem in stems if stems.count(stem) > 1), None):
        raise ValueError(f"--model: two files have the name {twice}, so their reports would overwrite each other")
    try:
        file_identities(paths)
    except ZincError as error:
        raise ValueError(f"--model {error}") from error
    return paths


def no_gpu() -> bool:
    from zinc_rt.engine.devices import find_amd_gpus

    return not find_amd_gpus()


def select_stages(names: str | None) -> list[NightlyStage]:
    """Return the named stages. Raise ValueError for an unknown name."""
    requested = names.split(",") if names else [stage.name for stage in STAGES]
    known = {stage.name: stage for stage in STAGES}
    for name in requested:
        if name not in known:
            raise ValueError(f"unknown stage {name!r}; expected one of {', '.join(known)}")
    return [known[name] for name in known if name in requested]


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[bool]:
    """Lock the folder and return whether no other run uses it; the kernel releases the lock of a killed
    process.
    """
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False


def run(
    night: Night,
    stages: list[NightlyStage],
    expected: ChipExpectations,
    *,
    fresh: bool,
    store: Path | None = None,
    card: Card | None = None,
) -> int:
    key = key_of(night, stages, expected)
    begin_run(night, key, fresh=fresh)
    lost = find_lost_head(night)
    rows = []
    if card is not None:
        card.check("the start")
    for stage in stages:
        state = read_state(night.of(stage.name))
        if state.get("key") == key and state.get("status") == "done":
            print(f"{stage.name:<9} is already finished", flush=True)
        else:
            state = run_stage(night, stage, key, card)
        rows.append(judge(night, stage, state, expected))
        write_atomically(night.folder / "summary.json", night_summary(night, rows, expected, finished=False))
    whole = night_summary(night, rows, expected, finished=True, lost=lost)
    save_summary(night, rows, whole)
    write_junit(night, rows)
    write_page(night)
    archive_reports(night, store)
    write_atomically(night.folder / "summary.json", whole)
    print_summary(night, rows, whole)
    return int(whole["exit"])


def key_of(night: Night, stages: list[NightlyStage], expected: ChipExpectations) -> str:
    """Return the key of the code, including the harness, and of the options. Results with another key belong to
    another run.
    """
    from zinc_rt.host.packages import HARNESS

    digest = hashlib.sha256()
    for folder in ("zinc_rt", "ci", *HARNESS):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and not path.parent.is_symlink():
                digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    files = [(str(model), model.stat().st_size, model.stat().st_mtime_ns) for model in night.models]
    for asked in (night.device, night.corpus, night.quick, night.mutants, [stage.name for stage in stages],
                  expected.path, files):  # fmt: skip
        digest.update(repr(asked).encode())
    return digest.hexdigest()


def begin_run(night: Night, key: str, *, fresh: bool) -> None:
    """Resume an unfinished run with the same key; otherwise delete the previous run except its history."""
    before = read_json(night.folder / "run.json")
    unfinished = before.get("key") == key and not read_json(night.folder / "summary.json").get("finished")
    if unfinished and not fresh:
        print(f"resuming the run of {before['started']}", flush=True)
        return
    for stage in STAGES:
        shutil.rmtree(night.of(stage.name), ignore_errors=True)
    (night.folder / "summary.json").unlink(missing_ok=True)
    write_atomically(night.folder / "run.json", {"key": key, "started": timestamp(), "device": night.device})


def save_summary(night: Night, rows: list[dict[str, Any]], is_complete: dict[str, Any]) -> None:
    """Record data for the next night: the failure counts of flakes, and the history's head."""
    tally = read_json(night.folder / FLAKES)
    for row in rows:
        tally |= {name: list(counts) for name, counts in row["tally"].items()}
    write_atomically(night.folder / FLAKES, tally)
    if is_complete["history_head"]:
        with (night.folder / HEADS).open("a", encoding="utf-8") as file:
            file.write(f"{is_complete['ended']} {night.device} {is_complete['history_head']}\n")


def find_lost_head(night: Night) -> str:
    """Return the last head recorded by a night if the history no longer contains it, else ""."""
    try:
        noted = [line.split() for line in (night.folder / HEADS).read_text(encoding="utf-8").splitlines()]
        held = night.history.read_text(encoding="utf-8") if night.history.exists() else ""
    except OSError:
        return ""
    words = [words[2] for words in noted if len(words) == 3 and words[1] == night.device]
    return words[-1] if words and words[-1] not in held else ""


# --- running a stage: each command in a process group that ends with its time or with this run ---


def run_stage(night: Night, stage: NightlyStage, key: str, card: Card | None = None) -> dict[str, Any]:
    """Run every command of the stage in order, regardless of earlier failures. Skip a stage that uses a hung card,
    and check the card after each stage that used it.
    """
    folder = night.of(stage.name)
    shutil.rmtree(folder, ignore_errors=True)  # a partial stage does not count
    folder.mkdir(parents=True)
    state: dict[str, Any] = {
        "stage": stage.name,
        "key": key,
        "status": "running",
        "started": timestamp(),
        "commands": [],
    }
    uses = card if stage.card else None
    state["why_not"] = (uses.hung if uses is not None else "") or stage.why_not(night)
    write_atomically(folder / STATE, state)
    limit = TimeLimit(60 * stage_minutes(stage, night) * night.patience)
    start = time.monotonic()
    for command in [] if state["why_not"] else stage.commands(night):
        limit.seconds = max(1.0, limit.seconds)
        state["commands"].append(run_command(folder, command, limit))
        write_atomically(folder / STATE, state)
    if uses is not None and state["commands"]:
        state["card"] = uses.check(f"stage {stage.name}")
    state |= {"status": "done", "seconds": round(time.monotonic() - start, 1)}
    write_atomically(folder / STATE, state)
    return state


def run_command(folder: Path, command: StageCommand, limit: TimeLimit) -> dict[str, Any]:
    """Run a command with its output in a log, and record its exit code. After the time limit, kill the command
    with all its processes.
    """
    print(f"{folder.name:<9} {command.name} ...", flush=True)
    start = time.monotonic()
    allowed = limit.seconds
    log = folder / f"{command.name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command.argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=folder,
            start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
        try:
            code, note = limit.wait(process), ""
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            note = f"ran longer than {allowed:.0f} s, without the time that other programs took"
    return {
        "name": command.name,
        "argv": command.argv,
        "judged": command.judged,
        "exit": code,
        "note": note,
        "log": log.name,
        "seconds": round(time.monotonic() - start, 1),
    }


@dataclass
class TimeLimit:
    """The time left of a stage, in seconds of a machine with a processor for every task: while n tasks share each
    processor, a second counts 1/n.
    """

    seconds: float

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the process and return its exit code. Raise TimeoutExpired when no time is left."""
        while True:
            share = min(1.0, processors() / max(load_average(), 1e-3))
            start = time.monotonic()
            try:
                return process.wait(min(LOAD_SECONDS, max(self.seconds / share, 1e-3)))
            except subprocess.TimeoutExpired:
                if (time.monotonic() - start) * share >= self.seconds:
                    raise
            finally:
                self.seconds -= (time.monotonic() - start) * share


def load_average() -> float:
    """Return the number of tasks that ran or were ready to run, averaged over the last minute."""
    return os.getloadavg()[0]


def processors() -> int:
    return os.cpu_count() or 1


def die_with_parent() -> None:
    """Make child processes die with a killed nightly run, so that they cannot write into the files of the next
    run.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


# --- output of a night: the summary, JUnit, a page, and a bundle in the store ---


def print_summary(night: Night, rows: list[dict[str, Any]], is_complete: dict[str, Any]) -> None:
    """Print the summary and write summary.txt."""
    where = "a SIMULATED device: says nothing about hardware" if night.device == "sim" else "this machine's GPU"
    lines = [f"nightly on {where}", f"{'stage':<10}{'verdict':<9}{'results':<34}{'seconds':>8}"]
    for row in rows:
        counts = ", ".join(f"{count} {status}" for status, count in sorted(row["counts"].items()))
        lines.append(f"{row['stage']:<10}{row['status']:<9}{counts or row['why_not']:<34}{row['seconds']:>8.1f}")
        lines += [f"  {text[:110]}" for text in row["unexpected"][:5]]
        if len(row["unexpected"]) > 5:
            lines.append(f"  and {len(row['unexpected']) - 5} more in {row['stage']}/")
        lines += [f"  fixed: {text[:100]}" for text in row["mended"][:3]]
        lines += [f"  flake: {text[:100]}" for text in row["flakes"][:3]]
        lines += [f"  {text}" for text in row["headlines"]]
        if row["verdicts"]:
            lines.append("  " + ", ".join(f"{name} {verdict}" for name, verdict in row["verdicts"].items()))
    lines.append(f"page      {night.folder / 'index.html'}")
    if is_complete["history_lost"]:
        head = is_complete["history_lost"][:16]
        lines.append(f"FAIL      {night.history.name} does not contain the head {head} of an earlier night")
    if is_complete["history_head"]:
        lines.append(f"head      {is_complete['history_head']}")
    mark = " on a SIMULATED device: says nothing about hardware" if is_complete["simulated"] else ""
    from zinc_rt.perf.report.page import count_stages_run

    minutes = sum(row["seconds"] for row in rows) / 60
    lines.append(
        f"{is_complete['verdict']}  {count_stages_run(is_complete)}, {minutes:.1f} minutes in stages{mark}"
    )
    print("\n".join(["", *lines]), flush=True)
    (night.folder / "summary.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_junit(night: Night, rows: list[dict[str, Any]]) -> None:
    """Write a suite with one testcase per stage (its unexpected results are the failure, which CI systems show
    first), then a suite per stage with every probe, check and criterion and its time.
    """
    mark = " [SIMULATED]" if night.device == "sim" else ""
    suites = Xml.Element("testsuites", name=f"nightly{mark}")
    whole = Xml.SubElement(suites, "testsuite", name=f"nightly{mark}", tests=str(len(rows)),
                           failures=str(sum(row["status"] == "FAIL" for row in rows)))  # fmt: skip
    for row in rows:
        case = Xml.SubElement(whole, "testcase", classname="nightly", name=row["stage"], time=str(row["seconds"]))
        if row["status"] == "FAIL":
            Xml.SubElement(case, "failure", message=row["unexpected"][0]).text = "\n".join(row["unexpected"])
        elif row["status"] == "SKIP":
            Xml.SubElement(case, "skipped", message=row["why_not"])
        add_suite(suites, row, mark)
    failures = sum(int(suite.get("failures", "0")) for suite in suites)
    suites.set("failures", str(failures))
    Xml.indent(suites)
    text = Xml.tostring(suites, encoding="unicode", xml_declaration=True)
    (night.folder / "junit.xml").write_text(text, encoding="utf-8")


def add_suite(suites: Xml.Element, row: dict[str, Any], mark: str) -> None:
    """Add a suite. Results that are expected not to pass are skipped with their reason; only new ones are
    failures.
    """
    results = row["results"]
    news = {
        result["id"]
        for result in results
        if any(text.startswith(f"{result['id']}:") for text in row["unexpected"])
    }
    suite = Xml.SubElement(suites, "testsuite", name=f"nightly.{row['stage']}{mark}", tests=str(len(results)),
                           failures=str(len(news)))  # fmt: skip
    for result in results:
        group, _, name = result["id"].rpartition("/")
        text = ".".join(["nightly", row["stage"], result["command"], *([group] if group else [])])
        case = Xml.SubElement(suite, "testcase", classname=text,
                              name=f"{name}{mark}", time=f"{result['seconds']:.3f}")  # fmt: skip
        if result["id"] in news:
            Xml.SubElement(case, "failure", message=f"{result['status']}: {result['reason']}")
        elif result["status"] != "pass":
            Xml.SubElement(case, "skipped", message=f"{result['status']}: {result['reason']}")


def write_page(night: Night) -> None:
    """Write the HTML page. A failure of this step does not fail the run."""
    if missing_modules("perf"):
        return
    with (night.folder / "page.log").open("wb") as log:
        if not run_logged(zinc_command("perf", "report", night.folder, "-o", night.folder / "index.html"), log):
            print(f"nightly: no page was written: {last_line(night.folder / 'page.log')}", file=sys.stderr)


def run_logged(line: list[str], log: BinaryIO) -> bool:
    """Run a command with its output in `log`, for at most PAGE_SECONDS of a free machine. Return whether it
    succeeded.
    """
    with subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL) as process:
        try:
            return TimeLimit(PAGE_SECONDS).wait(process) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            log.write(f"\nran longer than {PAGE_SECONDS:g} s\n".encode())
            log.flush()
            return False


def archive_reports(night: Night, store: Path | None) -> None:
    """Store the night as a bundle, together with the bundles of other machines. A failure of this step does not
    fail the run.
    """
    if missing_modules("bundle"):
        return
    out = night.folder / "bundle.tar.gz"
    reports = [
        path for stage in STAGES for path in sorted(night.of(stage.name).glob("*.json")) if path.name != STATE
    ]
    bundles = [path for path in [night.of("probes") / "bundle"] if path.is_dir()]
    added = ["--add", *map(str, [*bundles, *reports])] if bundles or reports else []
    device = "sim" if night.device == "sim" else "auto"
    lines = [zinc_command("bundle", "-o", out, "--device", device, "--only-added", *added)]
    lines.append(zinc_command("bundle", "import", out, *(["--store", str(store.resolve())] if store else [])))
    with (night.folder / "bundle.log").open("wb") as log:
        for line in lines:
            if not run_logged(line, log):
                print(f"nightly: no bundle was kept: {last_line(night.folder / 'bundle.log')}", file=sys.stderr)
                return


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
