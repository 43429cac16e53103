"""Functions shared by the checks. They run in a client's environment, in which this project is not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Any

URL = os.environ["SERVER_URL"]
MODEL = os.environ["MODEL"]
EMBEDDER = os.environ["EMBEDDER"]
FOLDER = Path(os.environ["CHECK_FOLDER"])  # to write to
TOKENIZER = os.environ["TOKENIZER_FOLDER"]  # Hugging Face's files of the model's tokenizer
KEY = "none"
MESSAGES = [{"role": "user", "content": "Say something."}]

_done: list[str] = []


def post(path: str, **body: Any) -> Any:
    """Send a request to the same server without any client."""
    request = urllib.request.Request(
        f"{URL}{path}", json.dumps({"model": MODEL, **body}).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def answer_text(max_tokens: int, **body: Any) -> str:
    """Return the chat answer to MESSAGES at temperature 0."""
    answer = post("/v1/chat/completions", messages=MESSAGES, max_tokens=max_tokens, temperature=0, **body)
    text: str = answer["choices"][0]["message"]["content"]
    return text


def check(description: str, condition: bool, seen: object = "") -> None:
    if not condition:
        sys.exit(f"{description}: {seen!r}")
    _done.append(description)


def run(*argv: str) -> str:
    """Run a client's command. If it fails, raise with its output."""
    result = subprocess.run(
        argv, cwd=FOLDER, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
    )
    if result.returncode:
        sys.exit(f"{argv[0]}: exit code {result.returncode}\n{(result.stdout + result.stderr)[-3000:]}")
    return result.stdout + result.stderr


def tool_path(name: str) -> str:
    """Return the path of a command of this environment."""
    return str(Path(sys.executable).parent / name)


def print_result(package: str) -> None:
    print(json.dumps({"version": version(package), "checks": _done}))


def print_npm_result(package: str) -> None:
    about = json.loads((Path(os.environ["NODE_TOOLS"]).parent / package / "package.json").read_text())
    print(json.dumps({"version": about["version"], "checks": _done}))
