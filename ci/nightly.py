#!/usr/bin/env python3
"""One night's run: probes, validation, replay, speed, gates; what changed, on one screen and on one page.

Each stage runs in processes of its own and notes what it did, so one stage's failure hides no other's, and a run
that was killed goes on where it stopped: run the same command again. A change of the code starts over.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nightly_expected
from nightly_files import FLAKES, now, read_json, read_state, write
from nightly_judge import judge, summary
from nightly_run import run_stage
from nightly_show import keep, page, show, write_junit
from nightly_speeds import identities
from nightly_stages import ROOT, STAGES, Night, NightlyStage

HEADS = "heads.txt"  # of the history, night by night
EXAMPLES = """\
examples:
  python3 ci/run.py nightly --device sim
  python3 ci/run.py nightly --device hw --expect gfx1201 --model Qwen3.6-35B-A3B-Q4_K_XL.gguf Qwen3-8B-Q4_K_M.gguf
  python3 ci/run.py nightly --device sim --stages validate,gates --fresh

Milestones M0 to M8 are judged. With --model, what they ask of these models is measured and validated on this
machine's GPU; a speed that could be measured and was not is a failure then. The history's head stands in the
summary: note it where nobody who writes into DIR can write.

exit codes: 0 every stage is as expected, 1 one is not, 2 wrong usage, 77 nothing ran.
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="ci/run.py nightly", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("--device", choices=("sim", "auto", "hw"), default="sim", help="default sim")
    made.add_argument(
        "--expect", metavar="CHIP", help="expectations by chip or file (default: sim for --device sim)"
    )
    made.add_argument(
        "--out", type=Path, default=Path("zinc-rt-nightly"), metavar="DIR", help="default zinc-rt-nightly"
    )
    made.add_argument("--stages", metavar="A,B", help=f"only these of {', '.join(stage.name for stage in STAGES)}")
    made.add_argument("--corpus", type=Path, default=ROOT / "ci" / "corpus", metavar="DIR", help="logs to replay")
    made.add_argument("--fresh", action="store_true", help="start over, whatever was finished")
    made.add_argument(
        "--store",
        type=Path,
        metavar="F",
        help="where the night's bundle goes (default: zinc-rt bundle's own store)",
    )
    made.add_argument(
        "--model", nargs="+", type=Path, default=[], metavar="M.gguf", help="models whose speeds are to be shown"
    )
    made.add_argument("--quick", action="store_true", help="a part of each stage, to try the machinery")
    return made


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        expected = nightly_expected.load(arguments.expect or ("sim" if arguments.device == "sim" else "gfx1201"))
        stages = chosen(arguments.stages)
        models = named(arguments.model)
    except (nightly_expected.UnusableExpectations, ValueError) as error:
        print(f"nightly: {error}", file=sys.stderr)
        return 2
    if arguments.device == "hw" and no_gpu():
        print("nightly: --device hw: this machine has no AMD GPU, so nothing ran", file=sys.stderr)
        print("  next: --device sim simulates one, which says nothing about hardware", file=sys.stderr)
        return 77
    folder = arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    night = Night(arguments.device, folder, arguments.corpus.resolve(), arguments.quick, models)
    with alone(folder) as free:
        if not free:
            print(f"nightly: another run is using {folder}", file=sys.stderr)
            return 2
        return run(night, stages, expected, fresh=arguments.fresh, store=arguments.store)


def named(models: list[Path]) -> tuple[Path, ...]:
    """The models that were named. Raises ValueError for a file that is no model, and for two of one name."""
    from zinc_rt.errors import ZincError

    found = tuple(model.resolve() for model in models)
    stems = [model.stem for model in found]
    if twice := next((stem for stem in stems if stems.count(stem) > 1), None):
        raise ValueError(f"--model: two files are called {twice}: their reports would overwrite each other")
    try:
        identities(found)
    except ZincError as error:
        raise ValueError(f"--model {error}") from error
    return found


def no_gpu() -> bool:
    from zinc_rt.engine.devices import amd_gpus

    return not amd_gpus()


def chosen(names: str | None) -> list[NightlyStage]:
    """The stages that were named. Raises ValueError for an unknown name."""
    wanted = names.split(",") if names else [stage.name for stage in STAGES]
    known = {stage.name: stage for stage in STAGES}
    for name in wanted:
        if name not in known:
            raise ValueError(f"no stage {name!r}; stages: {', '.join(known)}")
    return [known[name] for name in known if name in wanted]


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Whether nobody else runs in this folder; the kernel forgets the lock of a process that was killed."""
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False


def run(
    night: Night,
    stages: list[NightlyStage],
    expected: nightly_expected.ChipExpectations,
    *,
    fresh: bool,
    store: Path | None = None,
) -> int:
    key = key_of(night, stages, expected)
    begin(night, key, fresh=fresh)
    lost = lost_head(night)
    rows = []
    for stage in stages:
        state = read_state(night.of(stage.name))
        if state.get("key") == key and state.get("status") == "done":
            print(f"{stage.name:<9} was done already", flush=True)
        else:
            state = run_stage(night, stage, key)
        rows.append(judge(night, stage, state, expected))
        write(night.folder / "summary.json", summary(night, rows, expected, finished=False))
    whole = summary(night, rows, expected, finished=True, lost=lost)
    note(night, rows, whole)
    write_junit(night, rows)
    page(night)
    keep(night, store)
    write(night.folder / "summary.json", whole)
    show(night, rows, whole)
    return int(whole["exit"])


def key_of(night: Night, stages: list[NightlyStage], expected: nightly_expected.ChipExpectations) -> str:
    """The key of the code, the harness included, and of what was asked: results of another key are another
    run's."""
    digest = hashlib.sha256()
    for folder in (
        "zinc_rt",
        "bringup",
        "bundle",
        "ci",
        "doctor",
        "golden",
        "perf",
        "probes",
        "replay",
        "trace",
        "validate",
    ):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and not path.parent.is_symlink():
                digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    files = [(str(model), model.stat().st_size, model.stat().st_mtime_ns) for model in night.models]
    for asked in (night.device, night.corpus, night.quick, [stage.name for stage in stages], expected.path, files):
        digest.update(repr(asked).encode())
    return digest.hexdigest()


def begin(night: Night, key: str, *, fresh: bool) -> None:
    """Go on with an unfinished run of the same key; else leave nothing of the run before but its history."""
    before = read_json(night.folder / "run.json")
    unfinished = before.get("key") == key and not read_json(night.folder / "summary.json").get("finished")
    if unfinished and not fresh:
        print(f"going on with the run of {before['started']}", flush=True)
        return
    for stage in STAGES:
        shutil.rmtree(night.of(stage.name), ignore_errors=True)
    (night.folder / "summary.json").unlink(missing_ok=True)
    write(night.folder / "run.json", {"key": key, "started": now(), "device": night.device})


def note(night: Night, rows: list[dict[str, Any]], whole: dict[str, Any]) -> None:
    """What the next night has to know: how often flakes failed, and the history's head."""
    tally = read_json(night.folder / FLAKES)
    for row in rows:
        tally |= {name: list(counts) for name, counts in row["tally"].items()}
    write(night.folder / FLAKES, tally)
    if whole["history_head"]:
        with (night.folder / HEADS).open("a", encoding="utf-8") as file:
            file.write(f"{whole['ended']} {night.device} {whole['history_head']}\n")


def lost_head(night: Night) -> str:
    """The last head that a night noted, if the history does not hold it any more; else nothing."""
    try:
        noted = [line.split() for line in (night.folder / HEADS).read_text(encoding="utf-8").splitlines()]
        held = night.history.read_text(encoding="utf-8") if night.history.exists() else ""
    except OSError:
        return ""
    mine = [words[2] for words in noted if len(words) == 3 and words[1] == night.device]
    return mine[-1] if mine and mine[-1] not in held else ""


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
