#!/usr/bin/env python3
"""Test third-party clients against a server with an embedded model, each in a separate environment.

A client is installed from PyPI or npm into build/clients/NAME, and sends requests to zinc-rt serve on the
loopback. Everything else is offline: tokenizer files are generated from the GGUF, tasks and prompts are our own. A
client that cannot be installed is skipped with the last lines of pip or npm, and is not a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKS = ROOT / "ci" / "client_checks"
MODEL, CTX = "qwen3-q", 2048
LONG_MODEL, LONG_CTX = "qwen3-long", 65536
EMBEDDER = "embedder"  # made on the spot: no bundled model embeds
CONFIG = """\
version: 1
server: {{port: 0}}
device: {{tier: {tier}}}
models:  # the template knows no tools, a format does; agents send long prompts
  - {{id: {model}, path: {model}, ctx: {ctx}, format: hermes}}
  - {{id: {long_model}, path: {model}, ctx: {long_ctx}, slots: 2, format: hermes}}
  - {{id: {embedder}, path: {embedder}.gguf, ctx: 256, slots: 4}}
"""
START_SECONDS, INSTALL_SECONDS, CHECK_SECONDS = 60, 900, 600
EXAMPLES = """\
examples:
  python3 ci/run.py clients litellm instructor
  python3 ci/run.py clients --json clients.json

The last line is the verdict. exit codes: 0 all that could be installed passed, 1 one did not, 77 nothing ran.
"""


@dataclass(frozen=True)
class Client:
    """`packages` as for pip, with `ROOT` for this checkout, or as for npm. `check`: a file of ci/client_checks.
    `long`: it sends long prompts."""

    packages: tuple[str, ...]
    check: str
    npm: bool = False
    long: bool = False

    @property
    def requirements(self) -> list[str]:
        return [package.replace("ROOT", str(ROOT)) for package in self.packages]


FOLDER = ROOT / "build" / "clients"
CLIENTS = {
    "openai": Client(("openai",), "check_openai.py"),
    "langchain-openai": Client(("langchain-openai",), "check_langchain.py"),
    "instructor": Client(("instructor",), "check_instructor.py"),
    "litellm": Client(("litellm",), "check_litellm.py"),
    "anthropic": Client(("anthropic",), "check_anthropic.py"),
    "openai-agents": Client(("openai-agents",), "check_openai_agents.py"),
    "claude-code": Client(("@anthropic-ai/claude-code",), "check_claude_code.py", npm=True, long=True),
    "codex": Client(("@openai/codex",), "check_codex.py", npm=True, long=True),
    "aider": Client(("aider-chat",), "check_aider.py", long=True),
    "lm-eval": Client(("lm-eval[api]", "transformers"), "check_lm_eval.py"),
    "guidellm": Client(("guidellm",), "check_guidellm.py"),
    "aiperf": Client(("aiperf",), "check_aiperf.py"),
    "ray": Client(("ray[serve]", "--editable", "ROOT[serve]"), "check_ray.py"),  # deploy/ray_serve.py
}
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "DO_NOT_TRACK": "1",
}
UNSET = {"aiperf": ("HF_HUB_OFFLINE",)}  # takes a folder for a name of the hub where it is set


@dataclass
class ClientResult:
    """`status` is pass, fail or skip. `checks` are those that passed, in order."""

    client: str
    status: str
    version: str = ""
    seconds: float = 0.0
    reason: str = ""
    checks: list[str] = field(default_factory=list)


def main(argv: list[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    names = arguments.names or list(CLIENTS)
    with start_server() as (url, tokenizer):
        results = [check_client(name, url, tokenizer) for name in names]
    for result in results:
        print(
            f"{result.client:<17} {result.status:<5} {result.version:<9} {result.seconds:6.1f} s  "
            f"{result_line(result)}"
        )
    if arguments.json:
        write_report(arguments.json, results)
    counts = {status: sum(result.status == status for result in results) for status in ("pass", "fail", "skip")}
    words = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    print(f"{'FAIL' if counts['fail'] else 'PASS' if counts['pass'] else 'NOTHING RAN'}  {words}")
    return 1 if counts["fail"] else 0 if counts["pass"] else 77


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ci/run.py clients", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "names", nargs="*", choices=[*CLIENTS, []], metavar="NAME", help=f"of {', '.join(CLIENTS)}"
    )
    parser.add_argument("--json", type=Path, metavar="F", help="the results as JSON")
    return parser


def write_report(path: Path, results: list[ClientResult]) -> None:
    """Write the report in the format of every command, for the nightly run."""
    from zinc_rt.cli.report import Report, Result, write_text

    report = Report("clients", details={"clients": [asdict(result) for result in results]})
    for result in results:
        reason = "" if result.status == "pass" else result_line(result)
        report.results.append(Result(f"clients/{result.client}", "client", result.status, reason=reason))  # type: ignore[arg-type]
    write_text(path, report.to_json())


def result_line(result: ClientResult) -> str:
    return result.reason.strip().splitlines()[-1] if result.reason else f"{len(result.checks)} checks"


@contextlib.contextmanager
def start_server() -> Iterator[tuple[str, Path]]:
    """Start zinc-rt serve on a free port. Yield the server's URL and the model's tokenizer in Hugging Face's
    format.
    """
    from hugging_face_files import write_files

    folder = FOLDER
    tokenizer = folder / "tokenizer"
    write_files(ROOT / "golden" / f"{MODEL}.gguf", tokenizer)
    write_embedder(folder / f"{EMBEDDER}.gguf")
    command = Path(sys.executable).parent / "zinc-rt-serve"
    config = folder / "serve.yaml"
    config.write_text(
        CONFIG.format(
            model=MODEL, ctx=CTX, long_model=LONG_MODEL, long_ctx=LONG_CTX, embedder=EMBEDDER, tier=native_tier()
        )
    )
    argv = [str(command), "--config", str(config)]
    with (folder / "server.log").open("w") as log:
        running = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder)
        try:
            yield server_url(running), tokenizer
        finally:
            running.terminate()
            running.wait()


def write_embedder(file: Path) -> None:
    """Write a tiny decoder with random weights and last-token pooling."""
    from zinc_rt.golden.tiny_models.writer import build_tiny, write_content

    content = build_tiny("qwen3")
    write_content(file, replace(content, metadata={**content.metadata, "pooling_type": 3}))


def native_tier() -> str:
    """Return t_cpu_native if there is a C compiler for it, else the oracle."""
    from zinc_rt.engine.devices import choose_tier
    from zinc_rt.host.errors import ZincError

    try:
        return choose_tier("t_cpu_native", "auto").tier
    except ZincError:
        return "t_cpu"


def server_url(running: subprocess.Popen[str]) -> str:
    """Return the URL that it prints when it is ready. Raise RuntimeError if it ends before."""
    assert running.stdout is not None
    start = time.monotonic()
    for line in running.stdout:
        if match := re.match(r"ready +(\S+)", line):
            return match[1]
        if time.monotonic() - start > START_SECONDS:
            break
    raise RuntimeError("the server did not start; see build/clients/server.log")


def check_client(name: str, url: str, tokenizer: Path) -> ClientResult:
    client, folder = CLIENTS[name], FOLDER / name
    start = time.monotonic()
    python = folder / "venv" / "bin" / "python"
    if why_not := install_client(client, folder, python):
        return ClientResult(name, "skip", reason=why_not)
    scratch = folder / "check"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    environment.update(OFFLINE, HF_HOME=str(folder / "hf"), OPENAI_API_KEY="none", NO_PROXY="127.0.0.1")
    environment.update(
        SERVER_URL=url,
        MODEL=LONG_MODEL if client.long else MODEL,
        EMBEDDER=EMBEDDER,
        CHECK_FOLDER=str(scratch),
        TOKENIZER_FOLDER=str(tokenizer),
        PYTHONUTF8="1",
    )
    if client.npm:
        environment.update(HOME=str(scratch), NODE_TOOLS=str(folder / "node_modules" / ".bin"))
    for key in UNSET.get(name, ()):
        environment.pop(key, None)
    try:
        argv = [str(python), str(CHECKS / client.check)]
        result = subprocess.run(
            argv, env=environment, cwd=scratch, capture_output=True, text=True, timeout=CHECK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return ClientResult(name, "fail", reason=f"not done after {CHECK_SECONDS} s")
    took = time.monotonic() - start
    if result.returncode:
        print(result.stdout + result.stderr, file=sys.stderr)
        return ClientResult(name, "fail", seconds=took, reason=result.stderr or f"exit code {result.returncode}")
    last = json.loads(result.stdout.strip().splitlines()[-1])
    return ClientResult(name, "pass", last["version"], took, checks=last["checks"])


def ready_clients() -> list[str]:
    """Return the clients with an existing environment."""
    return [name for name in CLIENTS if (FOLDER / name / "installed").exists()]


def install_client(client: Client, folder: Path, python: Path) -> str:
    """Install a client. Return "" on success, else the last lines of pip or npm."""
    stamp, expected = folder / "installed", json.dumps(client.requirements)
    if stamp.exists() and stamp.read_text() == expected:
        return ""
    shutil.rmtree(folder / "venv", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    base = getattr(sys, "_base_executable", sys.executable)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    npm = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder)]
    if client.npm and shutil.which("npm") is None:
        return "npm is not installed"
    for argv in (
        [base, "-m", "venv", str(folder / "venv")],
        [*(npm if client.npm else pip), *client.requirements],
    ):
        try:
            result = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return f"not installed after {INSTALL_SECONDS} s"
        if result.returncode:
            return (result.stderr or result.stdout).strip() or f"{argv[2]}: exit code {result.returncode}"
    stamp.write_text(expected)
    return ""


if __name__ == "__main__":
    sys.exit(main())
