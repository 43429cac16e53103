"""llama.cpp as the baseline: build its benchmark programs from a pinned source package, run them, parse the
output.
peer = find(folder) or build(say)
peer.bench(model, setting, prompt=128, tokens=64, threads=2)     # {"prefill": tok/s, "decode": tok/s}
peer.slots(model, setting, slots=16, tokens=16, threads=2)       # tok/s of all together
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zinc_rt.host.errors import InputError, UnsupportedError
from zinc_rt.host.files import cache_folder
from zinc_rt.perf.bench.peers import OUTPUT_BYTES, describe_command

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"  # its sdist carries llama.cpp 0c1e57098
TARGETS = ("llama-bench", "llama-batched-bench")
NO_AMX = ("-DGGML_AMX_INT8=OFF", "-DGGML_AMX_TILE=OFF", "-DGGML_AMX_BF16=OFF")
CMAKE = ("-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF")
RUN_SECONDS = 900.0


class NoPeer(UnsupportedError):
    """There is no llama.cpp to compare with. The message has the reason and a fix."""


@dataclass(frozen=True, slots=True)
class RepackSetting:
    """The format of llama.cpp's weights: as in the file, or repacked for this CPU when they are loaded."""

    repack: bool

    @property
    def name(self) -> str:
        return "repack" if self.repack else "no repack"


SETTINGS = (RepackSetting(True), RepackSetting(False))


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """`bins` are one folder of programs, or two, the second without AMX, used if the first crashes. `said` are all
    successful commands with their output, in order, for the report.
    """

    bins: tuple[Path, ...]
    said: list[dict[str, Any]] = field(default_factory=list, compare=False, repr=False)

    def measure(
        self, model: Path, setting: RepackSetting, *, prompt: int, tokens: int, threads: int
    ) -> dict[str, float]:
        """Return tok/s of one prompt and of one stream. Raise InputError with the program's output if it fails."""
        words = ["-m", str(model), "-p", str(prompt), "-n", str(tokens), "-r", "1", "-t", str(threads)]
        return parse_bench(self._run("llama-bench", [*words, "--repack", str(int(setting.repack)), "-o", "json"]))

    def slots(
        self, model: Path, setting: RepackSetting, *, slots: int, prompt: int, tokens: int, threads: int
    ) -> float:
        """Return tok/s of `slots` concurrent streams. Raises as `measure`."""
        room = slots * (prompt + tokens)
        words = ["-m", str(model), "-c", str(room), "-npp", str(prompt), "-ntg", str(tokens), "-npl", str(slots)]
        words += ["-t", str(threads), "--output-format", "jsonl"]
        return parse_batched(
            self._run("llama-batched-bench", [*words, "--repack" if setting.repack else "--no-repack"])
        )

    def version(self) -> str:
        return self._run("llama-bench", ["--version"], both=True).strip().partition("\n")[0]

    def record(self) -> dict[str, Any]:
        """Return its record for a report: the build, the kind of file, and all output."""
        return {
            **describe_command([str(self.bins[0] / TARGETS[0])]),
            "version": self.version(),
            "outputs": list(self.said),
        }

    def _run(self, program: str, words: Sequence[str], *, both: bool = False) -> str:
        for number, folder in enumerate(self.bins):
            command = [str(folder / program), *words]
            try:
                result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise InputError(f"{program}: {error}") from error
            if result.returncode == -signal.SIGILL and number + 1 < len(self.bins):
                continue  # it announces instructions that this machine does not run
            if result.returncode != 0:
                reason = _exit_text(result.returncode)
                raise InputError(f"{' '.join(command)}: {reason}: {result.stderr.strip()[-300:]}")
            if not both:
                self.said.append({"command": [program, *words], "stdout": result.stdout[:OUTPUT_BYTES]})
            return result.stdout + result.stderr if both else result.stdout
        raise AssertionError("a peer has a folder")


def parse_bench(text: str) -> dict[str, float]:
    """Parse llama-bench -o json: one object per test. Raise InputError for anything else."""
    try:
        rows = json.loads(text)
        speeds = {"decode" if row["n_gen"] else "prefill": float(row["avg_ts"]) for row in rows}
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"llama-bench printed no valid JSON: {text.strip()[:200]!r}") from error
    if set(speeds) != {"decode", "prefill"} or min(speeds.values()) <= 0:
        raise InputError(f"llama-bench reported {speeds}, expected one decode speed and one prefill speed")
    return speeds


def parse_batched(text: str) -> float:
    """Parse llama-batched-bench --output-format jsonl, the last line that is an object."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    try:
        speed = float(json.loads(lines[-1])["speed_tg"])
    except (IndexError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"llama-batched-bench printed no JSON line: {text.strip()[-200:]!r}") from error
    if speed <= 0:
        raise InputError(f"llama-batched-bench reported {speed} tok/s")
    return speed


def find(folder: Path | None = None) -> LlamaCpp | None:
    """Return the programs in `folder`, or in the folder to which `build` installs them."""
    if folder is not None:
        bins = [item for item in (folder, folder / "bin") if _is_complete(item)]
        if not bins:
            raise NoPeer(
                f"{folder}: does not contain {' and '.join(TARGETS)}", next="name the folder that contains both"
            )
        return LlamaCpp((bins[0],))
    bins = [
        item
        for item in (build_directory() / "build" / "bin", build_directory() / "build-no-amx" / "bin")
        if _is_complete(item)
    ]
    return LlamaCpp(tuple(bins)) if bins else None


def build_directory() -> Path:
    return cache_folder() / f"llama.cpp-{VERSION}"


def build(say: Callable[[str], None]) -> LlamaCpp:
    """Fetch the source package and build its programs, which takes about 10 CPU minutes. Raise NoPeer with the
    missing tools.
    """
    missing = [name for name in ("cmake", "ninja") if shutil.which(name) is None]
    if shutil.which("c++") is None and shutil.which("clang++") is None:
        missing.append("a C++ compiler")
    if missing:
        raise NoPeer(
            f"cannot build llama.cpp for the comparison: {', '.join(missing)} not installed",
            next="apt install cmake ninja-build g++ (Debian, Ubuntu), or name a build with --llama FOLDER",
        )
    source = _fetch_source(say)
    say("building llama-bench and llama-batched-bench, some 10 CPU minutes, once ...")
    _compile(source, build_directory() / "build", CMAKE)
    if _has_amx():  # announced; where it does not run, the programs die of an illegal instruction
        _compile(source, build_directory() / "build-no-amx", [*CMAKE, *NO_AMX])
    built = find()
    if built is None:
        raise NoPeer("the build of llama.cpp produced no programs", next=f"look into {build_directory()}")
    return built


def _fetch_source(say: Callable[[str], None]) -> Path:
    folder = build_directory() / f"llama_cpp_python-{VERSION}" / "vendor" / "llama.cpp"
    if (folder / "CMakeLists.txt").is_file():
        return folder
    say(f"fetching {PACKAGE} {VERSION} ...")
    build_directory().mkdir(parents=True, exist_ok=True)
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()  # a venv may have no pip
    pip = [str(base), "-m", "pip", "--disable-pip-version-check"]
    needed = build_directory() / "needed"
    environment = {**os.environ, "PYTHONPATH": str(needed)}
    _call([*pip, "install", "-q", "--target", str(needed), "--upgrade", "scikit-build-core"], environment)
    options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-q", "-d", str(build_directory())]
    _call([*pip, "download", *options, f"{PACKAGE}=={VERSION}"], environment)
    (archive,) = build_directory().glob("llama_cpp_python-*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(build_directory(), filter="data")
    return folder


def _compile(source: Path, target: Path, flags: Sequence[str]) -> None:
    _call(["cmake", "-S", str(source), "-B", str(target), "-G", "Ninja", *flags])
    _call(["ninja", "-C", str(target), *TARGETS])


def _call(command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if result.returncode != 0:
        output = (result.stderr.strip() or result.stdout.strip())[-600:]
        raise NoPeer(
            f"{' '.join(command[:4])} ... failed: {output}", next="name another build with --llama FOLDER"
        )


def _is_complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in TARGETS)


def _has_amx() -> bool:
    try:
        return "amx_tile" in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False


def _exit_text(code: int) -> str:
    try:
        return f"died of {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
    except ValueError:
        return f"exit {code}"
