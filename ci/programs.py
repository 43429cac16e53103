"""Run programs of Debian's packages, and HIP programs of our own, unchanged on the simulated card.

    python3 ci/run.py programs [NAME ...] [--suite sid] [--offline] [--json F]

The packages are fetched with apt from the Debian mirror that this machine is configured for, which checks their
signatures and hashes, and unpacked into build/programs/SUITE with the C library that they need. Nothing is
installed into the system. packages.json there lists names, versions and SHA-256. --offline fetches nothing.
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
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import InputError, NothingRan
from zinc_rt.host.terminal import Table, show

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "programs"
HIP_SOURCES = ROOT / "tests/sim/clients/hip"
APT_FOLDERS = ("state/lists/partial", "cache/archives/partial", "etc")
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PROGRAM_SECONDS, FETCH_SECONDS = 600, 1800
LLAMA_PACKAGES = ("llama.cpp-tools", "libggml0-backend-hip")
HIP_PACKAGES = ("libamdhip64-6", "libhiprtc6", "libhiprtc-builtins6", "libamdhip64-dev", "libhsa-runtime-dev")


@dataclass(frozen=True)
class PackagedProgram:
    """`words`: the command line; the first word is a path in the packages. `right`: a pattern of its output.
    `chip`: the simulated card.
    """

    name: str
    packages: tuple[str, ...]
    words: tuple[str, ...]
    right: str
    chip: str = "r9700"


PROGRAMS = (
    PackagedProgram("rocminfo", ("rocminfo",), ("usr/bin/rocminfo",), r"amdgcn-amd-amdhsa--gfx1201"),
    PackagedProgram(
        "vulkaninfo",
        ("vulkan-tools", "mesa-vulkan-drivers"),
        ("usr/bin/vulkaninfo", "--summary"),
        r"deviceName += .*GFX1201",
    ),
    PackagedProgram("clinfo", ("clinfo", "rocm-opencl-icd"), ("usr/bin/clinfo",), r"gfx1201"),
    PackagedProgram("hip", HIP_PACKAGES, ("hip_programs",), r"^ok "),
    # libggml-hip.so has code for gfx1100, not for gfx1201
    PackagedProgram("llama", LLAMA_PACKAGES, ("usr/bin/llama-completion",), "", "rx7900xtx"),
)


KNOWN = {  # true findings in the packages: by program and rule, the explanation
    "hip/hsa_copy_and_fill": {"sgpr-read": "the fill kernel inside ROCr 6.4.3 lacks waits that gfx12 needs"},
    "llama": {
        "wait": "ROCr's copy kernel waits for VMCNT alone after flat loads, which count in LGKMCNT too",
        "mask-write-valu": "ROCr's copy kernel lacks s_waitcnt_depctr, which LLVM inserts from release 20 on",
    },
}


@dataclass
class ProgramResult:
    """`status`: pass, fail or skip. `findings`: what the device reported, one sentence each."""

    name: str
    status: str
    reason: str = ""
    seconds: float = 0.0
    findings: tuple[str, ...] = ()


class PackageFolder:
    """The unpacked packages of one suite, and their package manager's files."""

    def __init__(self, suite: str) -> None:
        self.suite, self.at = suite, FOLDER / suite
        self.root, self.list = self.at / "root", self.at / "packages.json"

    def names(self) -> set[str]:
        """Return the packages that are unpacked."""
        return {row["name"] for row in json.loads(self.list.read_text())} if self.list.is_file() else set()

    def install(self, packages: Sequence[str], *, offline: bool) -> None:
        """Fetch and unpack the packages with all that they depend on. Raises NothingRan where that cannot be."""
        missing = sorted(set(packages) - self.names())
        if not missing:
            return
        if offline:
            raise NothingRan(f"not in {self.at}: {', '.join(missing)}", next="run it once without --offline")
        for tool in ("apt-get", "dpkg-deb"):
            if shutil.which(tool) is None:
                raise NothingRan(f"no {tool}: the programs are packages of Debian", next="use Debian or Ubuntu")
        for name in APT_FOLDERS:
            (self.at / name).mkdir(parents=True, exist_ok=True)
        (self.at / "state/status").touch()
        (self.at / "etc/debian.sources").write_text(
            f"Types: deb\nURIs: {find_mirror()}\nSuites: {self.suite}\nComponents: main\n"
            f"Architectures: amd64\nSigned-By: {KEYS}\n"
        )
        self._run_apt("update")
        shutil.rmtree(self.at / "cache/archives", ignore_errors=True)
        (self.at / APT_FOLDERS[1]).mkdir(parents=True)
        self._run_apt("--yes", "--download-only", "install", *sorted(self.names() | set(packages)), "libc6")
        self._unpack(sorted((self.at / "cache/archives").glob("*.deb")))

    def _run_apt(self, *words: str) -> None:
        options = {
            "Dir::State": self.at / "state",
            "Dir::State::status": self.at / "state/status",
            "Dir::Cache": self.at / "cache",
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": self.at / "etc",
            "Dir::Etc::preferencesparts": "/dev/null",
            "APT::Architecture": "amd64",
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Debug::NoLocking": "true",
        }
        line = ["apt-get", "--quiet", *(f"-o{key}={value}" for key, value in options.items()), *words]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS)
        errors = [text for text in done.stderr.splitlines() if text.startswith("E:")]
        if done.returncode or errors:
            reason = errors[-1] if errors else f"exit code {done.returncode}"
            raise NothingRan(f"apt-get {' '.join(words)}: {reason}", next="check the mirror, then run it again")

    def _unpack(self, archives: Sequence[Path]) -> None:
        rows = []
        for archive in archives:
            subprocess.run(["dpkg-deb", "--extract", archive, self.root], check=True)
            line = ["dpkg-deb", "--field", str(archive), "Package", "Version"]
            text = subprocess.run(line, check=True, capture_output=True, text=True).stdout
            name, version = (field.partition(": ")[2] for field in text.splitlines())
            digest = hashlib.sha256(archive.read_bytes()).hexdigest()
            rows.append({"name": name, "version": version, "sha256": digest})
        self.list.write_text(json.dumps(rows, indent=1) + "\n")
        shutil.rmtree(self.at / "cache/archives")

    @property
    def libraries(self) -> Path:
        return self.root / "usr/lib/x86_64-linux-gnu"

    def command(self, program: Path, *words: str) -> list[str]:
        """Return the command line that runs a program with the C library of the packages."""
        loader = self.libraries / "ld-linux-x86-64.so.2"
        return [str(loader), "--library-path", str(self.libraries), str(program), *words]

    def environment(self) -> dict[str, str]:
        libraries = {"OCL_ICD_VENDORS": str(self.root / "etc/OpenCL/vendors")}
        drivers = sorted((self.root / "usr/share/vulkan/icd.d").glob("radeon_icd*.json"))
        if not drivers:
            return libraries
        own = self.at / "radeon.json"  # with the path of this folder
        described = json.loads(drivers[0].read_text())
        described["ICD"]["library_path"] = str(self.libraries / "libvulkan_radeon.so")
        own.write_text(json.dumps(described))
        return {**libraries, "VK_DRIVER_FILES": str(own)}


def find_mirror(folder: Path = Path("/etc/apt")) -> str:
    """Return the URI of the Debian mirror in apt's configuration. Raises NothingRan if there is none."""
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    for file in files:
        text = file.read_text() if file.is_file() else ""
        for line in text.splitlines():
            match = re.match(r"(?:URIs:|deb(?: \[.*\])?)\s+(\S+/debian)/?(?:\s|$)", line)
            if match:
                return match[1]
    raise NothingRan("apt is not configured for a Debian mirror", next="use Debian, or add its mirror to apt")


def build_hip_programs(packages: PackageFolder) -> Path:
    """Compile tests/sim/clients/hip against the packages. Raises NothingRan without a compiler."""
    compiler = shutil.which("c++")
    if compiler is None:
        raise NothingRan("no C++ compiler (c++)", next="install g++")
    program = packages.at / "hip_programs"
    sources = [str(path) for path in sorted(HIP_SOURCES.glob("*.cpp"))]
    line = [
        compiler, "-O1", "-g", "-std=c++17", "-w", "-D__HIP_PLATFORM_AMD__",
        f"-isystem{packages.root}/usr/include", *sources, "-o", str(program), f"-L{packages.libraries}",
        "-lamdhip64", "-lhiprtc", "-lhsa-runtime64",
        "-pthread", "-Wl,--unresolved-symbols=ignore-in-shared-libs",
    ]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"{HIP_SOURCES.name} does not compile: {done.stderr.strip()[:500]}")
    return program


def run_on_device(
    name: str,
    words: Sequence[str],
    right: str,
    environment: dict[str, str],
    options: Sequence[str] = (),
    *,
    folder: Path | None = None,
    log: str = "",
) -> ProgramResult:
    """Run a command line with the simulated card; `options` of `zinc-rt sim`.

    `right` and `log` are patterns of its output and its error output. `folder`: where it starts.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        line = [sys.executable, "-m", "zinc_rt.cli", "sim", *options, "--json", str(report), "--", *words]
        environment = {**os.environ, **environment}
        try:
            done = subprocess.run(
                line, env=environment, cwd=folder, capture_output=True, text=True, errors="replace",
                check=False, timeout=PROGRAM_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return ProgramResult(name, "fail", f"ran longer than {PROGRAM_SECONDS} s", float(PROGRAM_SECONDS))
        found = json.loads(report.read_text())["details"]["findings"] if report.is_file() else []
    findings = tuple(f"{item['rule']}: {item['first']}" for item in found)
    result = ProgramResult(name, "pass", "", time.monotonic() - started, findings)
    missing = [] if re.search(right, done.stdout, re.MULTILINE) else [f"no {right!r} in its output"]
    missing += [] if re.search(log, done.stderr) else [f"no {log!r} in its log"]
    if done.returncode or missing:
        said = done.stdout + done.stderr if done.returncode else done.stdout
        lines = [line for line in said.splitlines() if line.strip()] or ["no output"]
        reason = f"exit code {done.returncode}: {lines[-1][:200]}"
        result.status, result.reason = "fail", "; ".join((reason, *missing))
    elif findings:
        known = KNOWN.get(name.partition(":")[0], {})
        result.reason = "; ".join(f"{rule}: {why}" for rule, why in known.items())
        unknown = [text for text in findings if text.partition(":")[0] not in known]
        if unknown:
            result.status, result.reason = "fail", f"{len(unknown)} findings: {unknown[0][:200]}"
    return result


def run_program(program: PackagedProgram, packages: PackageFolder) -> list[ProgramResult]:
    """Run one program; of the HIP programs each in a separate process."""
    if program.name == "llama":
        floats = packages.at / "qwen3-f32.gguf"
        write_tiny(floats, "qwen3")
        return [run_llama(program, packages, model) for model in (floats, ROOT / "golden/gemma4-q.gguf")]
    if program.name != "hip":
        words = packages.command(packages.root / program.words[0], *program.words[1:])
        environment = packages.environment()
        return [run_on_device(program.name, words, program.right, environment, ("--chip", program.chip))]
    built = build_hip_programs(packages)
    listed = subprocess.run(packages.command(built, "--list"), capture_output=True, text=True, check=True)
    results = []
    planted = subprocess.run(packages.command(built, "--planted"), capture_output=True, text=True, check=True)
    rules = dict(row.split() for row in planted.stdout.splitlines())
    for name in (*listed.stdout.split(), *rules):
        options = ("--sanitizer", "full") if name in rules else ()  # racecheck is in full
        result = run_on_device(f"hip/{name}", packages.command(built, name), program.right, {}, options)
        results.append(judge_planted(result, rules[name]) if name in rules else result)
        print(f"{results[-1].name}: {results[-1].status} {results[-1].reason}", file=sys.stderr)
    return results


def run_llama(program: PackagedProgram, packages: PackageFolder, model: Path) -> ProgramResult:
    """Complete a prompt with all layers on the card. The text must be the one of llama.cpp's CPU backend."""
    folder = packages.libraries / "ggml/backends0"  # where it finds its backends
    words = packages.command(packages.root / program.words[0], *program.words[1:])
    libraries = ":".join(str(packages.libraries / name) for name in ("", "llama", "ggml"))
    words[words.index("--library-path") + 1] = libraries
    options = "--prompt Hello --predict 6 --temp 0 --ctx-size 64 --threads 1 -no-cnv --no-warmup"
    words += ["--model", str(model), *options.split()]
    name = f"{program.name}:{model.stem}"
    line = [*words, "--device", "none"]
    done = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, errors="replace", check=False, timeout=PROGRAM_SECONDS
    )
    text = done.stdout.strip()
    if done.returncode or not text:
        return ProgramResult(name, "fail", f"the CPU backend: exit code {done.returncode}: {done.stderr[-200:]}")
    words += ["--device", "ROCm0", "--gpu-layers", "99", "--verbosity", "4"]
    log = r"offloaded (\d+)/\1 layers to GPU"
    return run_on_device(name, words, re.escape(text), {}, ("--chip", program.chip), folder=folder, log=log)


LAUNCHED = r", launched at \w+\.\w+:\d+"
NAMED = {  # what the finding of a planted error names: the launch, of two launches both, and the allocation
    "out-of-bounds": re.compile(rf"{LAUNCHED}.*\bhip\w+ of \d+ bytes at \w+\.\w+:\d+"),
    "missing-barrier": re.compile(rf"{LAUNCHED}.*{LAUNCHED}"),
}


def judge_planted(result: ProgramResult, rule: str) -> ProgramResult:
    """Return the verdict on a program with an error: every finding is of this rule and names the program's code by
    FILE:LINE."""
    pattern = NAMED.get(rule, re.compile(LAUNCHED))
    others = [text for text in result.findings if not (text.startswith(f"{rule}: ") and pattern.search(text))]
    if result.findings and not others:
        return replace(result, status="pass", reason=f"{rule} found")
    return replace(result, status="fail", reason=f"{rule} not found: {(*others, result.reason)[0][:300]}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ci/run.py programs", description=(__doc__ or "").splitlines()[0])
    names = [item.name for item in PROGRAMS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--suite", default="sid", choices=("sid", "trixie"), help="Debian suite (default sid)")
    parser.add_argument("--offline", action="store_true", help="fetch nothing; name what is missing")
    parser.add_argument("--json", type=Path, metavar="F", help="write the results")
    arguments = parser.parse_args(argv)
    unknown = set(arguments.names) - set(names)
    if unknown:
        parser.error(f"no such program: {', '.join(sorted(unknown))}; choose from {', '.join(names)}")
    packages, results = PackageFolder(arguments.suite), list[ProgramResult]()
    for program in PROGRAMS:
        if arguments.names and program.name not in arguments.names:
            continue
        try:
            packages.install(program.packages, offline=arguments.offline)
            results += run_program(program, packages)
        except (NothingRan, InputError) as error:
            status = "skip" if isinstance(error, NothingRan) else "fail"
            results.append(ProgramResult(program.name, status, " ".join(str(error).split())))
    rows = [(row.name, row.status, f"{row.seconds:.1f}", len(row.findings), row.reason) for row in results]
    show(Table(("program", "result", "seconds", "findings", "reason"), rows))
    if arguments.json:
        report = {"suite": arguments.suite, "programs": [asdict(row) for row in results]}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    counts = {status: sum(row.status == status for row in results) for status in ("pass", "fail", "skip")}
    verdict = "FAIL" if counts["fail"] else "PASS" if counts["pass"] else "NOTHING RAN"
    print(f"{verdict}  {', '.join(f'{count} {status}' for status, count in counts.items() if count)}")
    return 1 if counts["fail"] else 0 if counts["pass"] else 77


if __name__ == "__main__":
    sys.exit(main())
