"""Runs the commands of a stage, each in a process group of its own that ends with its time or with this run."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from nightly_files import STATE, now, write
from nightly_stages import Night, NightlyStage, StageCommand, minutes

PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h


def run_stage(night: Night, stage: NightlyStage, key: str) -> dict[str, Any]:
    """Every command of the stage, one after the other, whatever the one before came to."""
    folder = night.of(stage.name)
    shutil.rmtree(folder, ignore_errors=True)  # half a stage is none
    folder.mkdir(parents=True)
    state: dict[str, Any] = {
        "stage": stage.name,
        "key": key,
        "status": "running",
        "started": now(),
        "commands": [],
    }
    state["why_not"] = stage.why_not(night)
    write(folder / STATE, state)
    end = time.monotonic() + 60 * minutes(stage, night)
    began = time.monotonic()
    for command in [] if state["why_not"] else stage.commands(night):
        state["commands"].append(run_command(folder, command, max(1.0, end - time.monotonic())))
        write(folder / STATE, state)
    state |= {"status": "done", "seconds": round(time.monotonic() - began, 1)}
    write(folder / STATE, state)
    return state


def run_command(folder: Path, command: StageCommand, seconds: float) -> dict[str, Any]:
    """Its output in a log, its exit code noted; past its time it is killed with everything it started."""
    print(f"{folder.name:<9} {command.name} ...", flush=True)
    began = time.monotonic()
    log = folder / f"{command.name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command.argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=folder,
            start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
        try:
            code, note = process.wait(seconds), ""
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            note = f"ran longer than {seconds:.0f} s"
    return {
        "name": command.name,
        "argv": command.argv,
        "judged": command.judged,
        "exit": code,
        "note": note,
        "log": log.name,
        "seconds": round(time.monotonic() - began, 1),
    }


def die_with_parent() -> None:
    """A nightly run that is killed leaves no command behind that would write into the next one's files."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
