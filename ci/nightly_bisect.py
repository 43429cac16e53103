"""Find the first bad commit between a night that passed and one that failed."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nightly_store import git

Outcome = bool | None  # good, bad, or not testable


def bisect(commits: Sequence[str], is_good: Callable[[str], Outcome], until: float) -> tuple[str, str]:
    """Search `commits`, oldest first, of which the last one is bad. Return the first bad commit and "", or "" and
    why there is none. A commit that cannot be tested is skipped. `until`: monotonic time of the last test's start.
    """
    low, high = 0, len(commits) - 1  # the first bad one is in low..high
    untestable: set[int] = set()
    while low < high:
        middle = (low + high) // 2
        tries = sorted(
            (index for index in range(low, high) if index not in untestable), key=lambda p: abs(p - middle)
        )
        if not tries:
            names = ", ".join(commits[index][:12] for index in range(low, high + 1))
            return "", f"one of {names}: the others cannot be tested"
        if time.monotonic() > until:
            return "", f"stopped by its time limit between {commits[low][:12]} and {commits[high][:12]}"
        location = min(tries, key=lambda item: abs(item - middle))
        outcome = is_good(commits[location])
        if outcome is None:
            untestable.add(location)
        elif outcome:
            low = location + 1
        else:
            high = location
    return (commits[high], "") if commits else ("", "no commits")


def find_first_bad(repository: Path, good: str, bad: str, line: Sequence[str], minutes: float) -> str:
    """Run a command in a worktree of each tested commit: exit 0 is good, 1 bad, anything else not testable. Return
    the first bad commit with its subject, or why it is not known.
    """
    commits = git(repository, "rev-list", "--reverse", "--first-parent", f"{good}..{bad}").splitlines()
    until = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="zinc-rt-bisect-") as folder:
        tree = Path(folder) / "tree"
        git(repository, "worktree", "add", "--quiet", "--detach", str(tree), bad)
        try:

            def is_good(commit: str) -> Outcome:
                git(tree, "checkout", "--quiet", "--force", commit)
                left = max(1.0, until - time.monotonic())
                try:
                    code = subprocess.run(
                        line, cwd=tree, timeout=left, check=False, capture_output=True
                    ).returncode
                except (OSError, subprocess.TimeoutExpired):
                    return None
                return {0: True, 1: False}.get(code)

            commit, reason = bisect(commits, is_good, until)
        finally:
            git(repository, "worktree", "remove", "--force", str(tree), check=False)
    return git(repository, "log", "-1", "--oneline", "--no-decorate", commit) if commit else reason
