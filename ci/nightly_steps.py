#!/usr/bin/env python3
"""The steps of the nightly workflow: `python3 ci/run.py nightly-step NAME`.

.github/workflows/nightly.yml runs nothing but these steps, so a test or a person runs the same ones without GitHub
(ci/workflow.py runs a whole job). docs/ci.md explains how to set up a runner.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nightly_bisect import find_first_bad
from nightly_issue import NightOutcome, update_issue
from nightly_stages import FLAKES, ROOT, read_json
from nightly_store import HEAD, HISTORY, SUMMARY, NightStore, StoreError, git

EXAMPLES = """\
steps, in the order of the workflow:
  restore   bring history and head of the chip from the store, and verify the head's signature
  run       run the night: python3 ci/run.py nightly
  publish   sign the history's head and store the night
  summary   add the night's summary to the page of the run
  issue     open, update or close the issue of a regression

environment, all of it optional:
  NIGHTLY_CHIP       folder in the store, and expectations; "sim" (default) is the simulated device
  NIGHTLY_OUT        folder of the night (default: nightly)
  NIGHTLY_MODELS     models: one path a line, or JSON by chip: {"gfx1201": ["/models/A.gguf"]}
  NIGHTLY_OPTIONS    more options of ci/run.py nightly
  NIGHTLY_RECOVER    command that resets a hung card
  NIGHTLY_STORE      git repository of the branch nightly-data (default: the checkout's origin)
  GH_TOKEN           token for GitHub: to push to the store and to open issues
  NIGHTLY_KEY        private SSH key, or its file, that signs the head
  NIGHTLY_SIGNERS    allowed signers, or their file; then a head that is not signed fails the night
  NIGHTLY_BISECT     minutes to search for the first bad commit (default 0: no search)

exit codes: 0 done, 1 the night or a step failed, 2 wrong settings.
"""


NO_STORE = "NIGHTLY_STORE is not set and the checkout has no origin: the history stays on this machine"


class SettingsError(Exception):
    """A variable cannot be used."""


@dataclass(frozen=True)
class StepSettings:
    """The environment's variables, read once."""

    chip: str
    out: Path
    models: tuple[str, ...]
    options: tuple[str, ...]
    recover: str
    store: str
    key: str
    signers: str
    bisect_minutes: float
    commit: str
    repository: str
    run_url: str
    summary_page: str
    token: str = field(default="", repr=False)

    @property
    def device(self) -> str:
        return "sim" if self.chip == "sim" else "hw"

    @property
    def history(self) -> Path:
        return self.out / f"history-{self.device}.jsonl"

    def night_store(self) -> NightStore:
        return NightStore(self.store, self.out.with_name(f"{self.out.name}-store"), self.chip, self.token)


def read_settings(environment: Mapping[str, str]) -> StepSettings:
    """Read the settings. Raise SettingsError for a value that does not parse."""
    get = environment.get
    chip = get("NIGHTLY_CHIP") or "sim"
    if not chip.replace("-", "").replace("_", "").isalnum():
        raise SettingsError(f"NIGHTLY_CHIP={chip!r}: expected a name like gfx1201")
    try:
        minutes = float(get("NIGHTLY_BISECT") or 0)
        options = tuple(shlex.split(get("NIGHTLY_OPTIONS") or ""))
    except ValueError as error:
        raise SettingsError(f"NIGHTLY_BISECT or NIGHTLY_OPTIONS: {error}") from error
    server, repository, number = (get(f"GITHUB_{name}") or "" for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    return StepSettings(
        chip=chip,
        out=Path(get("NIGHTLY_OUT") or "nightly").resolve(),
        models=parse_models(get("NIGHTLY_MODELS") or "", chip),
        options=options,
        recover=get("NIGHTLY_RECOVER") or "",
        store=get("NIGHTLY_STORE") or git(ROOT, "remote", "get-url", "origin", check=False),
        key=get("NIGHTLY_KEY") or "",
        signers=get("NIGHTLY_SIGNERS") or "",
        bisect_minutes=minutes,
        commit=get("GITHUB_SHA") or git(ROOT, "rev-parse", "HEAD", check=False),
        repository=repository,
        run_url=f"{server}/{repository}/actions/runs/{number}" if server and repository and number else "",
        summary_page=get("GITHUB_STEP_SUMMARY") or "",
        token=get("GH_TOKEN") or "",
    )


def parse_models(text: str, chip: str) -> tuple[str, ...]:
    """Return the models of a chip from one path per line, a JSON list, or a JSON object by chip."""
    if not text.strip().startswith(("{", "[")):
        return tuple(line.strip() for line in text.splitlines() if line.strip())
    try:
        value = json.loads(text)
        rows = value.get(chip, []) if isinstance(value, dict) else value
        if not isinstance(rows, list) or not all(isinstance(row, str) for row in rows):
            raise ValueError("expected a list of paths")
    except ValueError as error:
        raise SettingsError(f'NIGHTLY_MODELS: {error}; expected {{"gfx1201": ["/models/A.gguf"]}}') from error
    return tuple(rows)


@contextlib.contextmanager
def write_secret_file(value: str, name: str) -> Iterator[Path | None]:
    """Yield a path for a value that is a path or the text of a file; None if there is no value."""
    is_path = not any(character.isspace() for character in value.strip())
    if is_path:
        yield Path(value).expanduser() if value else None
        return
    with tempfile.TemporaryDirectory(prefix="zinc-rt-nightly-") as folder:
        path = Path(folder) / name
        path.touch(mode=0o600)
        path.write_text(value.strip() + "\n", encoding="utf-8")
        yield path


def restore_night(settings: StepSettings) -> int:
    if not settings.store:
        print(f"restore: {NO_STORE}")
        return 0
    settings.out.mkdir(parents=True, exist_ok=True)
    store = settings.night_store()
    store.fetch()
    with write_secret_file(settings.signers, "signers") as signers:
        must_verify = signers if signers is not None and must_sign(settings, signers) else None
        print(f"restore: {store.restore(settings.history, settings.out / FLAKES, must_verify)}")
    return 0


def must_sign(settings: StepSettings, signers: Path) -> bool:
    """Return whether the head must be signed: always for a card once there are signers, and for the simulated
    device if it is a signer.
    """
    try:
        names = [line.split()[0] for line in signers.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise SettingsError(f"NIGHTLY_SIGNERS: {signers}: {error.strerror}") from error
    return settings.device != "sim" or settings.chip in names


def nightly_line(settings: StepSettings) -> list[str]:
    line = [
        sys.executable,
        str(ROOT / "ci" / "nightly.py"),
        "--device",
        settings.device,
        "--out",
        str(settings.out),
    ]
    line += ["--expect", settings.chip, *settings.options]
    line += ["--recover", settings.recover] if settings.recover else []
    return [*line, *(["--model", *settings.models] if settings.models else [])]


def run_night(settings: StepSettings) -> int:
    line = nightly_line(settings)
    print(f"run: {shlex.join(line[1:])}", flush=True)
    return subprocess.run(line, check=False).returncode


def publish_night(settings: StepSettings) -> int:
    from zinc_rt.perf.history.chain import read
    from zinc_rt.perf.history.signed_head import sign_head

    summary = read_json(settings.out / SUMMARY)
    if not summary.get("finished"):
        print("publish: the night is not finished, so nothing is stored")
        return 1
    if not settings.store:
        print(f"publish: {NO_STORE}")
        return 0
    files = {HISTORY: settings.history, FLAKES: settings.out / FLAKES, SUMMARY: settings.out / SUMMARY}
    if settings.key and settings.history.exists():
        with write_secret_file(settings.key, "key") as key:
            assert key is not None
            sign_head(read(settings.history), key, settings.chip).write(settings.out / HEAD)
        files[HEAD] = settings.out / HEAD
    elif settings.signers:
        with write_secret_file(settings.signers, "signers") as signers:
            if signers is not None and must_sign(settings, signers):
                print(
                    "publish: NIGHTLY_SIGNERS is set and NIGHTLY_KEY is not: the next night would refuse this head"
                )
                return 1
    passed = summary["exit"] == 0
    state = {"last": settings.commit, "verdict": summary["verdict"], "ended": summary["ended"]}
    state |= {"good": settings.commit} if passed else {}
    name = str(summary["ended"]).replace(":", "").replace("+0000", "")
    message = f"{settings.chip}: {summary['verdict']} at {settings.commit[:12]}"
    print(f"publish: {settings.night_store().keep(files, state, name, message)[:12]} {message}")
    return 0


def print_summary(settings: StepSettings) -> int:
    path = settings.out / "summary.txt"
    if not path.exists():
        print("summary: the night wrote none")
        return 1
    text = path.read_text(encoding="utf-8")
    if settings.summary_page:
        with Path(settings.summary_page).open("a", encoding="utf-8") as file:
            file.write(f"### nightly {settings.chip}\n\n```\n{text}```\n")
    print(text, end="")
    return 0


def issue(settings: StepSettings) -> int:
    """Compare with the last commit that passed, according to the store."""
    night = read_json(settings.out / SUMMARY)
    if not night.get("finished"):
        night = {"exit": 1, "device": settings.device, "stages": []}
    if not settings.repository:
        print("issue: GITHUB_REPOSITORY is not set, so no issue is opened")
        return 0
    good = str(settings.night_store().state.get("good", ""))
    case = NightOutcome(settings.chip, night, good, settings.commit, settings.run_url)
    failed = [row["stage"] for row in night.get("stages", []) if row["status"] == "FAIL"]
    if case.failed and good and good != settings.commit and failed and settings.bisect_minutes:
        line = ["python3", "ci/run.py", "nightly", "--device", settings.device, "--expect", settings.chip]
        line += ["--stages", ",".join(failed), "--fresh", *settings.options]
        line += ["--model", *settings.models] if settings.models else []
        result = find_first_bad(ROOT, good, settings.commit, line, settings.bisect_minutes)
        case = NightOutcome(settings.chip, night, good, settings.commit, settings.run_url, result)
    print(f"issue: {update_issue(case, settings.repository, ROOT)}")
    return 0


STEPS: Mapping[str, Callable[[StepSettings], int]] = {
    "restore": restore_night,
    "run": run_night,
    "publish": publish_night,
    "summary": print_summary,
    "issue": issue,
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="ci/run.py nightly-step", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("step", choices=tuple(STEPS))
    arguments = parser.parse_args(argv)
    from zinc_rt.host.errors import ZincError

    try:
        return STEPS[arguments.step](read_settings(os.environ))
    except SettingsError as error:
        print(f"{arguments.step}: {error}", file=sys.stderr)
        return 2
    except (StoreError, ZincError) as error:
        print(f"{arguments.step}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
