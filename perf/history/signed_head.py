"""Sign the head of a history with an SSH key, and verify it.

A history detects edits only if its head is stored where the writer of the file has no write access. A signed head
may be stored anywhere: `ssh-keygen -Y` (OpenSSH 8.2 or later) signs it with a private key that only the runner
holds, and verifies it with a file of allowed signers, one `NAME KEYTYPE KEY` a line (ssh-keygen(1), ALLOWED
SIGNERS).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.files import write_atomically
from zinc_rt.perf.history.chain import History

SCHEMA = "zinc-rt-head/1"
NAMESPACE = "zinc-rt-history"  # of the signatures: one made for another purpose does not verify
SECONDS = 30
NO_TOOL = "install OpenSSH 8.2 or later (Debian, Ubuntu: apt install openssh-client)"


@dataclass(frozen=True, slots=True)
class SignedHead:
    """The head of a history with `sequence` entries at a certain time, by a signer. `signature` is the signature
    of `message`.
    """

    head: str
    sequence: int
    at: str
    signer: str
    signature: str = ""

    @property
    def message(self) -> bytes:
        """Return the bytes that are signed: the other fields as canonical JSON."""
        fields = {"schema": SCHEMA, **asdict(self)}
        del fields["signature"]
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    def write(self, path: Path) -> None:
        text = json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1) + "\n"
        write_atomically(path, lambda file: file.write(text.encode()))


def sign_head(history: History, key: Path, signer: str) -> SignedHead:
    """Sign a history's head. Raise InputError for a broken or empty history or an unusable key, UsageError for an
    unusable name.
    """
    if history.problem or not history.entries:
        raise InputError(f"the history cannot be signed: {history.problem or 'it is empty'}")
    if not signer or any(character in signer for character in " \t\n,*!?"):
        raise UsageError(f"--signer {signer!r}: expected a name without spaces, commas or wildcards")
    last = history.entries[-1]
    head = SignedHead(last.hash, last.sequence, datetime.now(UTC).isoformat(timespec="seconds"), signer)
    result = _run_ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, "-", data=head.message)
    if result.returncode:
        raise InputError(f"{key}: cannot sign: {_find_reason(result)}", next="ssh-keygen -t ed25519 -N '' -f KEY")
    return SignedHead(head.head, head.sequence, head.at, signer, result.stdout.decode())


def read_head(path: Path) -> SignedHead:
    """Read a signed head, without verifying it. Raise InputError for anything else."""
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        if row.pop("schema") != SCHEMA:
            raise ValueError(f"expected schema {SCHEMA}")
        head = SignedHead(**row)
        if not isinstance(head.sequence, int) or len(head.head) != 64 or not head.signature:
            raise ValueError("the hash, entry number or signature is missing")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: not a signed head: {error}", next="zinc-rt perf history F.jsonl --sign KEY"
        ) from error
    return head


def verify_head(head: SignedHead, signers: Path) -> None:
    """Verify the signature. Raise InputError if the signature is not from an allowed signer of this name."""
    if not signers.is_file():
        raise InputError(f"{signers}: no such file", next="one NAME KEYTYPE KEY a line: ssh-keygen(1)")
    with tempfile.TemporaryDirectory(prefix="zinc-rt-head-") as folder:
        signature = Path(folder) / "head.sig"
        signature.write_text(head.signature, encoding="utf-8")
        words = ("-f", str(signers), "-I", head.signer, "-n", NAMESPACE, "-s", str(signature))
        result = _run_ssh_keygen("verify", *words, data=head.message)
    if result.returncode:
        raise InputError(
            f"the signature of head {head.head[:12]} is not from a key of {head.signer} in {signers}: "
            f"{_find_reason(result)}",
            next="fetch the head again; if it repeats, treat the history as edited",
        )


def contains_head(history: History, head: SignedHead) -> bool:
    """Return whether a history has the signed entry at its position."""
    return any(entry.hash == head.head and entry.sequence == head.sequence for entry in history.entries)


def _run_ssh_keygen(operation: str, *words: str, data: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", operation, *words],
            input=data, capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise InputError("ssh-keygen is not installed", next=NO_TOOL) from error
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"ssh-keygen did not finish within {SECONDS} s", next="use a key without passphrase"
        ) from error


def _find_reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"ssh-keygen exited with {done.returncode}"
