"""Where nights are kept outside the runner: a branch of a git repository with one folder for each chip.

CHIP/history.jsonl   the history of speeds and validations
CHIP/head.json       its head, signed with a key that only the runner holds
CHIP/state.json      the last commit that passed, the last one that ran, and its verdict
CHIP/flakes.json     nights and failures of each flake
CHIP/nights/*.json   the summaries of the last nights
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nightly_stages import FLAKES, read_json, write_atomically

BRANCH = "nightly-data"
NIGHTS = 60  # summaries that are kept
TRIES = 4  # to push while other chips push too
HISTORY, HEAD, STATE, SUMMARY = "history.jsonl", "head.json", "state.json", "summary.json"
COMMITTER = ("-c", "user.name=zinc-rt nightly", "-c", "user.email=nightly@localhost")


class StoreError(Exception):
    """The store or its contents cannot be used; the message states the next step."""


def git(folder: Path, *words: str, check: bool = True, token: str = "") -> str:
    """Run git in a folder and return its output. Raise StoreError with git's last line. `token` is for GitHub; it
    is passed in the environment, so that no file or process list contains it.
    """
    environment = dict(os.environ)
    if token:
        basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        environment |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "http.https://github.com/.extraheader",
            "GIT_CONFIG_VALUE_0": f"AUTHORIZATION: basic {basic}",
        }
    line = ["git", "-C", str(folder), *words]
    result = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    if check and result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise StoreError(f"git {words[0]}: {lines[-1] if lines else f'exit {result.returncode}'}")
    return result.stdout.strip() if result.returncode == 0 else ""


@dataclass(frozen=True)
class NightStore:
    """A branch of the repository `url`, checked out in `clone`, with the folder of `chip`."""

    url: str
    clone: Path
    chip: str
    token: str = field(default="", repr=False)
    branch: str = BRANCH

    @property
    def folder(self) -> Path:
        return self.clone / self.chip

    @property
    def state(self) -> dict[str, Any]:
        return read_json(self.folder / STATE)

    def fetch(self) -> None:
        """Check out the newest version of the branch; an empty one if the repository has none yet."""
        shutil.rmtree(self.clone, ignore_errors=True)
        self.clone.mkdir(parents=True)
        git(self.clone, "init", "--quiet", "--initial-branch", self.branch)
        git(self.clone, "remote", "add", "origin", self.url)
        if git(self.clone, "ls-remote", "--heads", "origin", self.branch, token=self.token):
            git(self.clone, "fetch", "--quiet", "--depth", "1", "origin", self.branch, token=self.token)
            git(self.clone, "reset", "--quiet", "--hard", "FETCH_HEAD")

    def restore(self, history: Path, flakes: Path, signers: Path | None) -> str:
        """Copy the history and flakes to this machine. Return what was done. Raise StoreError if the stored head
        is not signed by one of `signers`, or if the two histories contradict each other.
        """
        from zinc_rt.host.errors import ZincError
        from zinc_rt.perf.history.chain import read
        from zinc_rt.perf.history.signed_head import contains_head, read_head, verify_head

        stored = self.folder / HISTORY
        if not stored.exists():
            return f"{self.chip}: no night is stored yet"
        try:
            kept = read(stored)
            if signers is not None:
                head = read_head(self.folder / HEAD)
                verify_head(head, signers)
                if not contains_head(kept, head):
                    raise StoreError(
                        f"the stored history of {self.chip} does not contain its signed head, so it was edited"
                    )
        except ZincError as error:
            raise StoreError(f"the stored history of {self.chip}: {error}") from error
        if kept.problem:
            raise StoreError(f"the stored history of {self.chip}: {kept.problem}")
        ours, theirs = history.read_text() if history.exists() else "", stored.read_text()
        if (self.folder / FLAKES).exists():
            shutil.copy(self.folder / FLAKES, flakes)
        if ours != theirs and ours.startswith(theirs):
            return (
                f"{self.chip}: this machine has {len(ours.splitlines())} entries, {len(kept.entries)} are stored"
            )
        if not theirs.startswith(ours):
            raise StoreError(
                f"the histories of {self.chip} in {history} and in the store differ: compare them, and delete "
                f"{history} to continue with the stored one"
            )
        shutil.copy(stored, history)
        how = "the signed head verified" if signers is not None else "no signers are set, head not verified"
        return f"{self.chip}: {len(kept.entries)} entries, {how}"

    def keep(self, files: dict[str, Path], state: dict[str, Any], night: str, message: str) -> str:
        """Store a night: `files` by their names in the chip's folder, its summary as `night`. Return the commit.
        Other chips push to the same branch, so a rejected push is tried again on the newest version.
        """
        for number in range(TRIES):
            self.fetch()
            self.folder.mkdir(parents=True, exist_ok=True)
            for name, path in files.items():
                if path.exists():
                    shutil.copy(path, self.folder / name)
            nights = self.folder / "nights"
            nights.mkdir(exist_ok=True)
            if SUMMARY in files and files[SUMMARY].exists():
                (self.folder / SUMMARY).replace(nights / f"{night}.json")
            for old in sorted(nights.glob("*.json"))[:-NIGHTS]:
                old.unlink()
            write_atomically(self.folder / STATE, {**self.state, **state})
            git(self.clone, "add", "--all")
            git(self.clone, *COMMITTER, "commit", "--quiet", "--allow-empty", "-m", message)
            try:
                git(self.clone, "push", "--quiet", "origin", f"HEAD:{self.branch}", token=self.token)
            except StoreError as error:
                if number == TRIES - 1:
                    raise StoreError(f"cannot store the results of the night: {error}") from error
                continue
            return git(self.clone, "rev-parse", "HEAD")
        raise AssertionError("unreachable")
