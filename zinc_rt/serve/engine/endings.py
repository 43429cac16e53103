"""What the end of a request means to the client who asked: a finish reason, or an error."""

from __future__ import annotations

from zinc_rt.serve.errors import ServeError, unavailable

DEADLINE = "deadline"
FINISHED = frozenset({"stop", "length"})
_FAILED = {  # the scheduler's reason -> what a client is told
    DEADLINE: (504, "the deadline passed before the answer was there", "timeout_error"),
    "client_too_slow": (408, "nobody read the answer for too long", "timeout_error"),
    "logits_not_finite": (
        500, "the model computed something that is no number; zinc-rt validate says in which layer", "server_error"
    ),
    "sampler_no_candidate": (400, "what was asked for leaves no token to draw", "invalid_request_error"),
    "grammar_too_slow": (
        400, "the grammar took too long to say what may follow: simplify it", "invalid_request_error"
    ),
    "grammar_too_complex": (
        400, "the grammar has too many ways to go on: simplify it", "invalid_request_error"
    ),
    "grammar_failed": (500, "the grammar could not say what may follow", "server_error"),
    "device_hang": (500, "each step that the request was in hung, at last with nobody else in it", "server_error"),
    "quota_lowered": (429, "the tenant's quota was lowered below what the request needs", "rate_limit_error"),
    "tenant_removed": (403, "the tenant was removed while the request ran", "permission_error"),
}  # fmt: skip
_UNAVAILABLE = {
    "device_lost": "the device is lost",
    "draining": "the server is shutting down",
    "model_unloaded": "the model was unloaded",
}
_CODES = {DEADLINE: "deadline_exceeded"}


def finish_reason(reason: str) -> str | None:
    """OpenAI's, of an answer that is whole or was cut; None where a reason is an error."""
    return reason if reason in FINISHED else None


def failure(reason: str, detail: str = "") -> ServeError:
    """The error of a request that ended for such a reason. `detail` goes behind the sentence."""
    code = _CODES.get(reason, reason)
    behind = f": {detail}" if detail else ""
    if reason in _UNAVAILABLE:
        return unavailable(_UNAVAILABLE[reason] + behind, code)
    status, sentence, kind = _FAILED.get(reason, (500, f"the request ended early ({reason})", "server_error"))
    return ServeError(status, sentence + behind, kind, code=code)
