"""Run programs of other projects under `zinc-rt sanitize` (Triton's tutorials, kernels from wheels), and kernels
that other compilers compile (clang).

    python3 ci/run.py outside [NAME ...] [--chip NAME] [--files FOLDER] [--offline] [--json F]

The packages of outside_programs/requirements.txt are installed by version and SHA-256 into build/outside/venv, and
the programs run in it; `tests` runs the tests of zinc-rt that need triton there. Files are fetched by address and
SHA-256 into build/outside and never committed; --files takes them from a folder instead. --offline downloads
nothing. True findings in a project are listed with their explanation in outside_programs/PROJECT.yaml. A program
without its files or packages is skipped with the reason.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from zinc_rt.cli.report import Report, Result, Status, write_text
from zinc_rt.host.terminal import Table, show
from zinc_rt.isa.target import CHIPS, DEFAULT_ARCH

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "outside"
PYTHON = CACHE / "venv" / "bin" / "python"
TORCH = "https://download.pytorch.org/whl/cpu"
CORPUS = ROOT / "tests" / "compiled_corpus" / "corpus_command.py"
PROGRAMS = Path(__file__).with_name("outside_programs")
TRITON = "https://raw.githubusercontent.com/triton-lang/triton/6cc4505027d7b39fe18a44a7f89085b8babb7400/python/tutorials/"
TIMEOUT_SECONDS = 1800
REQUIREMENTS = PROGRAMS / "requirements.txt"
HELPERS = (  # that the packages above and the tests import
    "pytest", "pytest-xdist", "pytest-benchmark", "hypothesis", "mpmath", "matplotlib", "pandas", "sympy",
    "networkx", "filelock", "fsspec", "einops", "transformers", "msgspec", "pyzmq", "cloudpickle", "cachetools",
    "pybase64", "cbor2", "aiohttp", "openai-harmony", "openai", "uvloop", "prometheus-client", "xgrammar",
    "fastapi", "partial-json-parser", "llguidance",
)  # fmt: skip
TESTS = [f"tests/launching/test_{name}.py" for name in ("triton", "pytest_plugin", "public_bugs")]


@dataclass(frozen=True, slots=True)
class OutsideFile:
    """A file with its URL and hash. `sizes`: (pattern, replacement) of problem sizes, the only edits."""

    url: str
    sha256: str
    sizes: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class OutsideProgram:
    """A program. `words` follow `python`; FILE stands for the fetched file. `right`: a pattern in the output whose
    matches are counted as right results; without it, the exit code decides. `sanitized`: it runs under `zinc-rt
    sanitize`; else it launches kernels itself, and takes --json for a report of the same form.
    """

    project: str
    name: str
    words: tuple[str, ...]
    file: OutsideFile | None = None
    packages: tuple[str, ...] = ()
    right: str = ""
    wrong: str = ""
    refused: str = ""
    sanitized: bool = True

    @property
    def compiler(self) -> str:
        package = "triton" if self.sanitized else self.packages[0]
        return f"{package} {find_version(package)}"


@dataclass(slots=True)
class OutsideRow:
    """What came of a program."""

    project: str
    name: str
    result: str = "skipped"
    reason: str = ""
    kernels: int = 0
    code_objects: int = 0  # a kernel has one for each combination of types and constants
    launches: int = 0
    right: int = 0
    wrong: int = 0
    refused: int = 0
    findings: list[str] = field(default_factory=list)
    known: int = 0  # findings that PROJECT.yaml explains
    seconds: float = 0.0
    compiler: str = ""
    instructions: list[str] = field(default_factory=list)  # that the simulated device refuses


def _compare_operations(project: str, file: str, package: str) -> OutsideProgram:
    """Return a program of outside_programs/, whose operations.py prints the lines that are counted."""
    return OutsideProgram(
        project, "operations", (str(PROGRAMS / file),), packages=(package,),
        right=r"^right ", wrong=r"^wrong ", refused=r"^refused ",
    )  # fmt: skip


BENCHMARK = (r"show_plots=True", "show_plots=False")
PROGRAMS_OF = (
    OutsideProgram(
        "triton", "01-vector-add", ("FILE",),
        OutsideFile(TRITON + "01-vector-add.py",
                    "842430949e0ccde4fbce07606cce3ac4bac36bf21b2b12619a31b795ca4029b3",
                    ((r"for i in range\(12, 28, 1\)", "for i in range(12, 13, 1)"), BENCHMARK)),
        packages=("matplotlib", "pandas"), right=r"between torch and triton is 0\.0",
    ),
    OutsideProgram(
        "triton", "02-fused-softmax", ("FILE",),
        OutsideFile(TRITON + "02-fused-softmax.py",
                    "8a65b696d5b02a3900380395ecd883671afeb66328db108f55622ed8853a05da",
                    ((r"1823, 781", "23, 781"), (r"range\(2, 100\)", "range(2, 3)"),
                     (r"'M': 4096", "'M': 32"), BENCHMARK)),
        packages=("matplotlib", "pandas"),
    ),
    OutsideProgram(
        "triton", "03-matrix-multiplication", ("FILE",),
        OutsideFile(TRITON + "03-matrix-multiplication.py",
                    "f88a9506694c58d483ad3cdb4aa672c23df0300803bcfaca13b9396184825008",
                    ((r"range\(2, 33\)", "range(1, 2)"), BENCHMARK)),
        packages=("matplotlib", "pandas"), right="Triton and Torch match", wrong="Triton and Torch differ",
    ),
    OutsideProgram(
        "triton", "05-layer-norm", ("FILE",),
        OutsideFile(TRITON + "05-layer-norm.py",
                    "31cda7bf7bb9b637ea662b789188d37ff5981c3973626d4e2a293db633f3bb87",
                    ((r"test_layer_norm\(1151, 8192, torch\.float16\)", "test_layer_norm(31, 512, torch.float16)"),
                     (r"range\(2, 32\)", "range(2, 3)"), (r"'M': 4096", "'M': 32"))),
        packages=("matplotlib", "pandas"),
    ),
    OutsideProgram(
        "triton", "06-fused-attention", ("-m", "pytest", "-q", "-p", "no:cacheprovider", "FILE"),
        OutsideFile(TRITON + "06-fused-attention.py",
                    "5b16be48b7b781ef018931c789b191f3390886ac479bb5df8a3418e5612ab317",
                    ((r'"Z", \[1, 4\]', '"Z", [1]'), (r'"H", \[2, 48\]', '"H", [2]'),
                     (r'"N_CTX", \[[^]]*\]', '"N_CTX", [128]'), (r'"HEAD_DIM", \[64, 128\]', '"HEAD_DIM", [64]'))),
        packages=("pytest", "matplotlib", "pandas"),
    ),
    _compare_operations("flash-linear-attention", "flash_linear_attention.py", "fla"),
    _compare_operations("amd-aiter", "aiter.py", "aiter"),
    _compare_operations("liger-kernel", "liger.py", "liger_kernel"),
    _compare_operations("vllm", "vllm_kernels.py", "vllm"),
    replace(_compare_operations("iree", "iree_kernels.py", "iree-base-compiler"), sanitized=False),
    replace(_compare_operations("flydsl", "flydsl_kernels.py", "flydsl"), sanitized=False),
)  # fmt: skip


NIGHTLY = ("01-vector-add", "02-fused-softmax", "05-layer-norm", "liger-kernel")  # a minute of a nightly run


def list_ready_programs() -> list[str]:
    """Return the names in NIGHTLY of programs that can run without a download."""
    if set_up(offline=True):
        return []
    ready = [item for item in PROGRAMS_OF if item.file is None or find_kept(item.file).exists()]
    return [name for name in NIGHTLY if any(name in (item.name, item.project) for item in ready)]


def find_kept(file: OutsideFile) -> Path:
    """Return the path of a fetched file."""
    return CACHE / file.sha256[:16] / file.name


def fetch_file(file: OutsideFile, folder: Path | None, *, offline: bool) -> Path:
    """Return the unedited file in the cache. Raise OSError with the reason if it cannot be fetched."""
    kept = find_kept(file)
    if not kept.exists():
        if folder is not None:
            data = (folder / file.name).read_bytes()
        elif offline:
            raise OSError(f"{file.name} is not in {CACHE}, and --offline prevents downloading it")
        else:
            try:
                with urllib.request.urlopen(file.url, timeout=30) as answer:
                    data = answer.read()
            except urllib.error.URLError as error:
                raise OSError(f"{file.url}: {error.reason}") from None
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(data)
    digest = hashlib.sha256(kept.read_bytes()).hexdigest()
    if digest != file.sha256:
        kept.unlink()
        raise OSError(f"{file.name}: SHA-256 is {digest}, expected {file.sha256}")
    return kept


def replace_sizes(text: str, file: OutsideFile) -> str:
    """Return the text with its problem sizes replaced. Raise ValueError if one is not there."""
    for pattern, replacement in file.sizes:
        text, count = re.subn(pattern, replacement, text)
        if not count and (pattern, replacement) != BENCHMARK:
            raise ValueError(f"{file.name}: nothing to replace: {pattern!r} does not occur")
    return text


def find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def run_program(program: OutsideProgram, arguments: argparse.Namespace) -> OutsideRow:
    """Run one program."""
    row = OutsideRow(program.project, program.name, compiler=program.compiler)
    if program.sanitized:
        missing = [package for package in ("triton", "torch", *program.packages) if find_spec(package) is None]
    else:
        missing = [package for package in program.packages if not find_version(package)]
    if missing:
        row.reason = f"the package {missing[0]} is not installed"
        return row
    with tempfile.TemporaryDirectory(prefix="zinc-rt-outside-") as name:
        folder = Path(name)
        words = list(program.words)
        if program.file is not None:
            try:
                source = fetch_file(program.file, arguments.files, offline=arguments.offline)
            except OSError as error:
                row.reason = str(error)
                return row
            copy = folder / program.file.name
            copy.write_text(replace_sizes(source.read_text(encoding="utf-8"), program.file), encoding="utf-8")
            words = [str(copy) if word == "FILE" else word for word in words]
        report = folder / "report.json"
        known = PROGRAMS / f"{program.project}.yaml"
        suppress = ["--suppress", str(known)] if known.exists() else []
        options = ["--chip", arguments.chip, "--json", str(report)]
        sanitize = [sys.executable, "-m", "zinc_rt.cli", "sanitize", *options, *suppress]
        command = [*sanitize, "--", sys.executable, *words]
        if not program.sanitized:
            command = [sys.executable, *words, *options]
        start = time.monotonic()
        try:
            result = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            row.result, row.reason = "stopped", f"did not end within {TIMEOUT_SECONDS} s"
            return row
        row.seconds = time.monotonic() - start
        if report.exists():
            judge_output(row, program, result.stdout, report)
        else:
            row.result = "failed"
        if row.result != "right" and not row.reason:
            problems = re.findall(r"^(?:refused|wrong) .*", result.stdout, re.MULTILINE)
            row.reason = next(iter([*row.findings, *problems, *reversed(result.stderr.strip().splitlines())]), "")
    return row


def judge_output(row: OutsideRow, program: OutsideProgram, output: str, report: Path) -> None:
    """Set the result from the output and the report of `zinc-rt sanitize`."""
    [result] = json.loads(report.read_text(encoding="utf-8"))["results"]
    measure = result["measure"]
    row.launches, row.kernels = measure["launches"], len(measure["kernels"])
    row.code_objects = sum(kernel["code_objects"] for kernel in measure["kernels"])
    row.known = len(measure["suppressed"])
    row.findings = [f"{finding['line']}: {finding['rule']}" for finding in measure["findings"]]

    def count_matches(pattern: str) -> int:
        return len(re.findall(pattern, output, re.MULTILINE)) if pattern else 0

    row.right = count_matches(program.right) if program.right else int(measure["exit_code"] == 0)
    row.wrong, row.refused = count_matches(program.wrong), count_matches(program.refused)
    refused = re.findall(r"does not support: (.+)", output)
    row.instructions = sorted({name for names in refused for name in re.findall(r"\w+(?= \()", names)})
    failed = measure["exit_code"] or row.wrong or row.refused or not row.right
    row.result = "failed" if failed else "findings" if row.findings else "right"


def set_up(*, offline: bool) -> str:
    """Install the packages into build/outside/venv. Return "", or why they are not installed."""
    stamp, requirements = CACHE / "installed", REQUIREMENTS.read_text() + " ".join(HELPERS)
    if stamp.exists() and stamp.read_text() == requirements:
        return ""
    if offline:
        return f"the packages are not in {CACHE / 'venv'}, and --offline prevents downloading them"
    shutil.rmtree(CACHE / "venv", ignore_errors=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    base = getattr(sys, "_base_executable", sys.executable)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pinned = ["--no-deps", "--require-hashes", "--extra-index-url", TORCH, "--retries", "1", "--timeout", "20"]
    for command in (
        [base, "-m", "venv", str(CACHE / "venv")],
        [*pip, *pinned, "--requirement", str(REQUIREMENTS)],
        [*pip, "--editable", f"{ROOT}[launch,asm]", *HELPERS],
    ):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            return (result.stderr or result.stdout).strip().splitlines()[-1]
    stamp.write_text(requirements)
    return ""


def run_tests() -> OutsideRow:
    """Run the tests that are skipped without triton."""
    row = OutsideRow("zinc-rt", "tests", compiler=f"triton {find_version('triton')}")
    if not find_version("triton"):
        row.reason = "the package triton is not installed"
        return row
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zinc-rt-outside-") as name:
        report = Path(name) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--all", *TESTS, f"--junit-xml={report}"]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        if report.exists():
            for suite in ElementTree.parse(report).iter("testsuite"):
                counts = {key: count + int(suite.get(key, 0)) for key, count in counts.items()}
    row.seconds = time.monotonic() - start
    row.wrong, row.refused = counts["failures"] + counts["errors"], counts["skipped"]
    row.right = counts["tests"] - row.wrong - row.refused
    if result.returncode:
        failed = re.findall(r"^FAILED .*", result.stdout, re.MULTILINE)
        row.reason = next(iter([*failed, *reversed((result.stderr or result.stdout).strip().splitlines())]), "")
    row.result = "right" if result.returncode == 0 and row.right else "failed"
    return row


def run_compilers(each: int, chip: str) -> list[OutsideRow]:
    """Run the kernels of tests/compiled_corpus, each source in `each` variants: the compilers that are installed,
    O0 to O3, both wave sizes. Return a row per compiler.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zinc-rt-outside-") as name:
        report = Path(name) / "report.json"
        words = [str(CORPUS), "--arch", chip, "--each", str(each), "--mutants", "0", "--levels", *"0123"]
        result = subprocess.run(
            [sys.executable, *words, "--json", str(report)], capture_output=True, text=True, check=False
        )
        if not report.exists():
            output = (result.stdout + result.stderr).strip()
            return [OutsideRow("clang", "OpenCL C and C", reason=output.splitlines()[-1] if output else "")]
        kernels = json.loads(report.read_text())["kernels"]
    rows = []
    for compiler in sorted({kernel["compiler"] for kernel in kernels}):
        own = [kernel for kernel in kernels if kernel["compiler"] == compiler]
        row = OutsideRow("clang", compiler, compiler=f"clang {own[0]['clang']}", code_objects=len(own))
        row.kernels, row.launches = len({kernel["source"] for kernel in own}), len(own)
        row.findings = [
            f"{kernel['key']}: {text}" for kernel in own for text in (*kernel["lint"], *kernel["findings"])
        ]
        row.refused = sum(bool(kernel["stopped"]) for kernel in own)
        row.wrong = sum(bool(kernel["wrong"]) for kernel in own)
        row.right = len(own) - row.refused - row.wrong
        row.result = "right" if row.right == len(own) and not row.findings else "failed"
        row.reason = next(iter([*row.findings, *(kernel["stopped"] for kernel in own if kernel["stopped"])]), "")
        row.seconds = (time.monotonic() - start) * len(own) / len(kernels)  # its share
        rows.append(row)
    return rows


COLUMNS = (
    "project", "program", "compiler", "result", "kernels", "code objects", "launches", "right", "wrong", "refused",
    "findings", "known", "seconds",
)  # fmt: skip


STATUSES: dict[str, Status] = {"right": "pass", "skipped": "skip"}


def write_report(path: Path, rows: Sequence[OutsideRow]) -> None:
    """Write the report in the format of every command, for the nightly run."""
    report = Report("outside", details={"rows": [asdict(row) for row in rows]})
    for row in rows:
        status = STATUSES.get(row.result, "fail")
        report.results.append(Result(f"{row.project}/{row.name}", "outside", status, reason=row.reason))
    write_text(path, report.to_json())


def _format_row(row: OutsideRow) -> tuple[str | int, ...]:
    return (
        row.project, row.name, row.compiler, row.result, row.kernels, row.code_objects, row.launches, row.right,
        row.wrong, row.refused, len(row.findings), row.known, round(row.seconds),
    )  # fmt: skip


def _add_up(rows: Sequence[OutsideRow]) -> tuple[str | int, ...]:
    ran = [_format_row(row) for row in rows if row.result != "skipped"]
    sums = [sum(int(row[index]) for row in ran) for index in range(COLUMNS.index("kernels"), len(COLUMNS))]
    return f"{len({row[0] for row in ran})} projects", f"{len(ran)} programs", "", "", *sums


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ci/run.py outside", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs or projects (default: all)")
    parser.add_argument(
        "--files", type=Path, metavar="FOLDER", help="use the files in this folder instead of downloading them"
    )
    parser.add_argument(
        "--each", type=int, default=3, metavar="N", help="of clang: variants of every source (default 3)"
    )
    parser.add_argument(
        "--chip", default=DEFAULT_ARCH, choices=[row.name for row in CHIPS], help=f"default {DEFAULT_ARCH}"
    )
    parser.add_argument("--offline", action="store_true", help="fetch nothing")
    parser.add_argument("--json", type=Path, metavar="F", help="the results as JSON")
    parser.add_argument(
        "--here", action="store_true", help="use the packages of this Python instead of installing them"
    )
    arguments = parser.parse_args(argv)
    if not arguments.here:
        if reason := set_up(offline=arguments.offline):
            print(f"SKIP  {reason}")
            return 77
        os.execv(PYTHON, [str(PYTHON), __file__, "--here", *(sys.argv[1:] if argv is None else argv)])
    chosen = [
        item for item in PROGRAMS_OF if not arguments.names or {item.name, item.project} & set(arguments.names)
    ]
    has_clang, has_tests = (not arguments.names or name in arguments.names for name in ("clang", "tests"))
    if not (chosen or has_clang or has_tests):
        parser.error(f"no such program: {', '.join(item.name for item in PROGRAMS_OF)}, clang, tests")
    rows = [run_tests()] if has_tests else []
    rows += run_compilers(arguments.each, arguments.chip) if has_clang else []
    for row in rows:
        print(f"{row.project} {row.name}: {row.result} {row.reason}", file=sys.stderr)
    for program in chosen:
        rows.append(run_program(program, arguments))
        last = rows[-1]
        print(f"{last.project} {last.name}: {last.result} {last.reason}", file=sys.stderr)
        if last.instructions:
            print(f"{last.project} {last.name}: refused {', '.join(last.instructions)}", file=sys.stderr)
    show(Table(COLUMNS, [*map(_format_row, rows), _add_up(rows)]))
    if arguments.json:
        write_report(arguments.json, rows)
    ran = [row for row in rows if row.result != "skipped"]
    return 1 if any(item.result != "right" for item in ran) else 0 if ran else 77


if __name__ == "__main__":
    sys.exit(main())
