"""Run a model on a prompt and stream the generated text."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TextIO

from zinc_rt.cli.command import Command
from zinc_rt.cli.options import (
    add_budgets,
    add_engine,
    add_graphs,
    add_prefill_ordering,
    add_speculation,
    make_classes,
    open_engine,
    parse_tokens,
    print_status,
    read_model,
    read_settings_once,
)
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, start_report
from zinc_rt.cli.progress import show_progress, show_stages
from zinc_rt.host.arguments import Parser, add_models
from zinc_rt.host.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.engine.answering import Answer, Answering
    from zinc_rt.engine.engine import Engine
    from zinc_rt.engine.prefill import PrefillCheck
    from zinc_rt.host.settings import Settings
    from zinc_rt.model.gguf import GGUFFile
    from zinc_rt.model.tokenizer import Tokenizer
    from zinc_rt.sched.sampling import Sampling

DEFAULT_MAX_TOKENS = 128
SAMPLING: tuple[tuple[str, type, str, float | None, str], ...] = (  # of `run`: the parameters of Sampling
    ("--temperature", float, "T", 0.0, "sampling temperature; 0 is greedy (default 0)"),
    ("--top-k", int, "K", 0, "sample from the K most likely tokens; 0: off (default 0)"),
    ("--top-p", float, "P", 1.0, "sample from the top tokens whose probabilities sum to P; 1: off (default 1)"),
    ("--min-p", float, "P", 0.0, "minimum probability relative to the most likely token; 0: off (default 0)"),
    ("--repetition-penalty", float, "R", 1.0, "divide logits of tokens so far by R; 1: off (default 1)"),
    ("--presence-penalty", float, "X", 0.0, "subtract X from logits of generated tokens (default 0)"),
    ("--frequency-penalty", float, "X", 0.0, "subtract X for each time that a token was generated (default 0)"),
    ("--logprobs", int, "N", None, "with --json: log-probabilities of each token and of N alternatives"),
    ("--seed", int, "N", 0, "seed of the random draws (default 0)"),
)
EXAMPLES = """\
examples:
  zinc-rt run --model M.gguf --prompt "The capital of France is"
  zinc-rt run --model M.gguf --chat --system "Answer briefly." --prompt "Why is the sky blue?"
  zinc-rt run --model M.gguf --prompt - --temperature 0.8 --top-p 0.95 --seed 7 < prompt.txt
  zinc-rt run --model M.gguf --tokens 1,2,3 --max-tokens 16
  zinc-rt run --probe-tier
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        description="Run a model on a prompt. Generated text is streamed to stdout, all messages go to stderr.",
        epilog=EXAMPLES,
    )
    add_models(parser, required=False)  # --probe-tier needs none
    prompt = parser.add_argument_group("the prompt")
    which = prompt.add_mutually_exclusive_group()
    which.add_argument("-p", "--prompt", metavar="TEXT", help="text of the prompt; - reads stdin")
    which.add_argument(
        "--tokens",
        type=parse_tokens,
        metavar="IDS",
        help="token ids instead of text, e.g. 1,2,3; needs no tokenizer",
    )
    prompt.add_argument("--chat", action="store_true", help="format the prompt with the model's chat template")
    prompt.add_argument("--system", metavar="TEXT", help="with --chat: the system message")
    stop = parser.add_argument_group("when to stop")
    stop.add_argument(
        "-n",
        "--max-tokens",
        type=int,
        metavar="N",
        default=DEFAULT_MAX_TOKENS,
        help=f"maximum number of tokens to generate (default {DEFAULT_MAX_TOKENS})",
    )
    stop.add_argument("--ignore-eos", action="store_true", help="continue after an end-of-generation token")
    sampling = parser.add_argument_group(
        "sampling", "The default is greedy decoding, which gives the same text for the same prompt."
    )
    for flag, kind, metavar, default, text in SAMPLING:
        sampling.add_argument(flag, type=kind, metavar=metavar, default=default, help=text)
    add_engine(parser)
    add_prefill_ordering(parser, "decoded tokens keep --ordering")
    add_graphs(parser)
    latency = parser.add_argument_group("latency")
    add_budgets(latency)
    add_speculation(latency)
    parser.add_argument("--chrome", metavar="FILE", help="write a timeline of the steps for Chrome or Perfetto")
    parser.add_argument(
        "--probe-tier", action="store_true", help="show whether each tier is usable, the reason and the next step"
    )
    add_json(parser, tables=False)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    if arguments.probe_tier:
        from zinc_rt.cli.probe_tier import probe

        return probe(arguments)
    if arguments.model is None:
        raise UsageError("no model was given", next="--model FILE.gguf, or --probe-tier")
    if arguments.max_tokens < 1:
        raise UsageError(f"--max-tokens {arguments.max_tokens}: expected 1 or more")
    if arguments.chat and arguments.prompt is None:
        raise UsageError("--chat needs --prompt TEXT", next="--tokens are used unchanged, without a template")
    if arguments.system is not None and not arguments.chat:
        raise UsageError("--system needs --chat", next="put the text into --prompt, or add --chat")
    if arguments.prompt is None and not arguments.tokens:
        raise UsageError("no prompt was given", next="use --prompt TEXT or --tokens 1,2,3")
    return _generate(arguments, read_settings_once())


@dataclass(slots=True)
class _GeneratedAnswer:
    """The outcome of a generation. `stopped`: end, context or max_tokens. `per_token`: the host's submissions and
    waits per token after the first; empty if there are none.
    """

    answer: Answer
    stopped: str
    load_seconds: float
    prompt_seconds: float
    seconds: float
    per_token: dict[str, float]


def _generate(arguments: argparse.Namespace, knobs: Settings) -> int:
    from zinc_rt.backends.base import read_findings
    from zinc_rt.cli.describe import (
        DrawCounts,
        count_expanded_weights,
        describe_executed,
        describe_model,
        describe_prefill,
        describe_run,
        fail_for_findings,
        format_prefill,
    )
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.engine.answering import Answering
    from zinc_rt.engine.devices import choose_tier
    from zinc_rt.engine.speculating import open_drafter
    from zinc_rt.host.facts import find_assumed_facts, format_dependency_suffix, report_rows
    from zinc_rt.host.files import check_writable
    from zinc_rt.host.machine import read_process_memory
    from zinc_rt.sched.sampling import Sampling
    from zinc_rt.sched.speculation import OFF, parse_speculation
    from zinc_rt.sched.state import describe_limit_changes

    classes = make_classes(arguments)
    max_tokens = min(arguments.max_tokens, knobs.max_decode_tokens or arguments.max_tokens)
    chosen = {name: getattr(arguments, name) for name in (flag[2:].replace("-", "_") for flag, *_ in SAMPLING)}
    sampling = Sampling(max_tokens=max_tokens, ignore_eos=arguments.ignore_eos, **chosen)
    sampling.check(lambda name: f"--{name.replace('_', '-')}")
    speculation = parse_speculation(arguments.speculate or OFF)
    both = knobs.batched_prefill == "validate"
    if both and arguments.chrome:
        raise UsageError(
            "--chrome: ZINC_BATCHED_PREFILL=validate does not use the scheduler", next="remove one of them"
        )
    check_writable(arguments.chrome, report=arguments.json)
    cause = choose_tier(arguments.tier or knobs.tier, arguments.device, unchecked=arguments.unchecked).why
    report = start_report(Report("run"), arguments)
    gguf = read_model(arguments.model)
    tokenizer = _load_tokenizer(gguf, needed=arguments.prompt is not None)
    tokens = _choose_prompt_ids(arguments, gguf, tokenizer)
    text = _Stream(tokenizer, choose_output_stream(arguments))
    started = time.monotonic()
    one_by_one = knobs.batched_prefill == "off"
    if both or one_by_one:
        speculation = None
    with open_engine(
        gguf, arguments, knobs, slots=2 if both else 1, stored=True, speculation=speculation
    ) as engine:
        print_status(f"tier      {cause}")
        if arguments.prefill_ordering:
            described = describe_prefill(engine.model.graph, arguments.prefill_ordering)
            print_status(f"prefill   {format_prefill(described)}")
        for clamp in (*knobs.list_shortcuts(), engine.backend.device.unchecked):
            if clamp:
                print_status(f"shortcut  {clamp}")
        for expanded in count_expanded_weights(engine):
            print_status(f"expanded  {expanded}")
        check = _validate_prefill(engine, tokens) if both else None
        drafter = None
        if speculation is not None:
            drafter = open_drafter(
                engine,
                speculation,
                lambda file: open_engine(
                    read_model(file),
                    argparse.Namespace(**{**vars(arguments), "prefill_ordering": None, "graphs": None}),
                    knobs,
                    stored=True,
                ),
            )
        asking = Answering(
            engine,
            step_tokens=1 if one_by_one else 0,
            classes=classes,
            drafter=drafter,
            drafts=0 if speculation is None else speculation.drafts,
        )
        shortcuts = describe_limit_changes(asking.scheduler.limits)
        for shortcut in shortcuts:
            print_status(f"shortcut  {shortcut}")
        answer = _generate_answer(asking, tokens, sampling, text, started, chrome=arguments.chrome)
        submission = engine.runner.submission
        instrument = engine.backend.instrument
        leans = find_assumed_facts(instrument.consulted()) if instrument is not None else ()
        graphs = engine.variants.stored
        describe_run(report, engine)
        drawn = DrawCounts(device=len(text.ids))
        describe_executed(report, engine, drawn)
        report.shortcuts += shortcuts
        findings = read_findings(engine.backend)
    stopped, load_seconds, prompt_seconds, seconds = (
        answer.stopped,
        answer.load_seconds,
        answer.prompt_seconds,
        answer.seconds,
    )
    reason = _format_reason(stopped, arguments, max_tokens, report.ctx)
    tier, memory = str(report.device["tier"]), read_process_memory()
    steps = len(text.ids) - 1  # the first token is drawn from the prompt's logits
    print_status(f"load      {load_seconds:.2f} s until weights and graphs were ready, not included in the speeds")
    if engine.variants.residency is not None:
        print_status(f"memory    {engine.variants.residency.text}")
    if graphs is not None:
        print_status(f"graphs    {graphs.starts.text}")
    print_status(
        f"prompt    {len(tokens)} tokens in {prompt_seconds:.2f} s{_format_speed(len(tokens), prompt_seconds)}"
    )
    print_status(
        f"generated {len(text.ids)} tokens in {seconds:.2f} s{_format_speed(steps, seconds)} "
        f"({_describe_location(report, engine)})"
    )
    print_status(f"sampled   {drawn.text}")
    if (speculating := asking.scheduler.speculation) is not None:
        print_status(f"drafted   {speculating.describe()}")
    print_status(f"stopped   {reason}")
    if leans:
        print_status(f"device    simulated{format_dependency_suffix([lean.id for lean in leans])}")
    report.results.append(
        Result(
            "generate",
            "generate",
            "pass",
            tier=tier,
            reason=reason,
            measure={
                "load_seconds": load_seconds,
                "prompt_seconds": prompt_seconds,
                "prompt_tokens": len(tokens),
                "prompt_tokens_per_second": len(tokens) / max(prompt_seconds, 1e-9),
                "generate_seconds": seconds,
                "tokens": len(text.ids),
                "steps": steps,
                "tokens_per_second": steps / max(seconds, 1e-9),
                **answer.per_token,
                **({} if speculating is None else speculating.figures()),
            },
            limit={"max_tokens": max_tokens},
        )
    )
    if check is not None:
        report.results.append(_make_prefill_result(check, tier))
    fail_for_findings(report, findings, arguments.model)
    if arguments.json:
        report.model = describe_model(gguf)
        report.details |= {
            "tier_choice": cause,
            "submission": submission,
            "step_cost": [asdict(row) for row in asking.scheduler.cost.report()],
            "prompt_ids": tokens,
            "generated_ids": text.ids,
            "text": text.text,
            **(
                {}
                if sampling.logprobs is None
                else {"logprobs": [asdict(logprob) for logprob in answer.answer.logprobs]}
            ),
            "stopped": stopped,
            "batched_prefill": knobs.batched_prefill,
            "memory": asdict(memory),
            "sampling": asdict(sampling),
            **({"graphs": asdict(graphs.starts)} if graphs is not None else {}),
            **({"assumptions": report_rows(leans)} if leans else {}),
        }
    return finish_report(report, arguments)


def _generate_answer(
    front: Answering,
    tokens: list[int],
    sampling: Sampling,
    text: _Stream,
    started: float,
    *,
    chrome: str | None,
) -> _GeneratedAnswer:
    """Generate the answer through the scheduler, as one request of one tenant."""
    with show_stages() as stage:
        stage.say("building graphs")
        front.build(len(tokens), sampling)
    ready = time.monotonic()
    asked = front.submit(tokens, sampling)
    (answer,) = asked.answers
    with show_progress(len(tokens), "prompt") as advance:
        computed = 0
        while not (answer.token_ids or answer.ended):
            front.step()
            count = len(tokens) if answer.token_ids else asked.computed
            advance(count - computed)
            computed = count
    prompted, before = time.monotonic(), front.engine.runner.submission
    try:
        text.show(answer)
        while not answer.ended:
            front.step()
            text.show(answer)
    finally:
        front.cancel(asked)
        text.show(answer)
        text.close()
    ended = time.monotonic()
    if answer.ended == "logits_not_finite":
        raise CheckFailed(
            f"position {len(tokens) + len(answer.token_ids)}: the logits contain a NaN",
            next="zinc-rt validate shows the layer in which it starts",
        )
    if chrome:
        front.trace(chrome)
        print_status(f"wrote     {chrome}; open it in https://ui.perfetto.dev or chrome://tracing")
    full = len(answer.token_ids) < sampling.max_tokens
    stopped = "end" if answer.ended == "stop" else "context" if full else "max_tokens"
    after, tokens_after = front.engine.runner.submission, len(answer.token_ids) - 1
    per_token = {
        f"{name}_per_token": (after[name] - before[name]) / tokens_after
        for name in ("submissions", "waits")
        if tokens_after
    }
    return _GeneratedAnswer(answer, stopped, ready - started, prompted - ready, ended - prompted, per_token)


def _validate_prefill(engine: Engine, tokens: list[int]) -> PrefillCheck:
    """Compute the prompt in one pass and token by token, and report the difference of the last logits."""
    from zinc_rt.engine.prefill import prefill_sequence, prepare

    sequence = engine.open()
    with show_stages() as stage:
        stage.say("building graphs")
        prepare(engine, sequence, tokens, "validate", decode=False)
    with show_progress(len(tokens), "prompt") as advance:
        _, check = prefill_sequence(engine, sequence, tokens, "validate", advance=advance)
    engine.release(sequence)
    assert check is not None
    print_status(check.line())
    return check


def _format_speed(steps: int, seconds: float) -> str:
    return f", {steps / max(seconds, 1e-9):.2f} tokens/s" if steps else ""


def _describe_location(report: Report, engine: Engine) -> str:
    """Describe the device of a speed. Speeds of the oracle and of a simulated device are not meaningful."""
    from zinc_rt.backends import registry

    tier, name = report.device["tier"], report.device["name"]
    if report.device["simulated"]:
        return f"wall time of this machine, {tier} on a simulated device, not a performance figure"
    if report.device["software"]:
        return f"{tier} in software, {name}, {report.ordering}: no GPU's speed"
    if tier == registry.ORACLE:
        return f"wall time of this machine, {engine.backend.spec.title}, not a performance figure"
    return f"{tier}, {name}, {report.ordering}"


def _make_prefill_result(check: PrefillCheck, tier: str) -> Result:
    from zinc_rt.cli.report import Result

    location = {"index": check.index, "reference": check.reference, "batched": check.batched}
    return Result(
        "prefill",
        "prefill-validate",
        "pass" if check.ok else "fail",
        tier=tier,
        reference="token by token",
        measure={"max_abs_diff": check.max_abs_diff, "prompt_tokens": check.prompt_tokens, **location},
        limit={"max_abs_diff": check.tolerance},
        first_bad={} if check.ok else location,
    )


def _format_reason(stopped: str, arguments: argparse.Namespace, max_tokens: int, ctx: int) -> str:
    if stopped == "end":
        return "at an end-of-generation token"
    if stopped == "context":
        return f"the context of {ctx} tokens is full (a larger --ctx is possible up to the model's trained length)"
    if max_tokens < arguments.max_tokens:
        return f"after {max_tokens} tokens: ZINC_RT_MAX_DECODE_TOKENS clamps --max-tokens {arguments.max_tokens}"
    return f"after --max-tokens {max_tokens}"


def _load_tokenizer(gguf: GGUFFile, *, needed: bool) -> Tokenizer | None:
    """Return the file's tokenizer, or None if this version cannot read it and it is not required."""
    from zinc_rt.host.errors import ZincError
    from zinc_rt.model.tokenizer import Tokenizer

    try:
        tokenizer = Tokenizer.from_metadata(gguf.metadata)
    except ZincError as error:
        if needed:
            raise
        print_status(f"tokenizer none, ids are printed: {str(error).splitlines()[0]}")
        return None
    for warning in tokenizer.warnings:
        print_status(f"tokenizer {warning}")
    return tokenizer


def _choose_prompt_ids(arguments: argparse.Namespace, gguf: GGUFFile, tokenizer: Tokenizer | None) -> list[int]:
    from zinc_rt.cli.text_input import read_text

    if tokenizer is None or arguments.prompt is None:
        return list(arguments.tokens)
    prompt = read_text(arguments.prompt)
    if not arguments.chat:
        ids = tokenizer.encode(prompt)
    else:
        from zinc_rt.model.chat import find_chat_template, make_chat_prompt

        system = [] if arguments.system is None else [{"role": "system", "content": arguments.system}]
        template, messages = find_chat_template(gguf.metadata), [*system, {"role": "user", "content": prompt}]
        _, ids = make_chat_prompt(tokenizer, template, messages)
    if not ids:
        raise UsageError("the prompt has no tokens", next="use a longer --prompt, or --tokens 1,2,3")
    return ids


class _Stream:
    """Print tokens as text in complete characters, or as ids without a tokenizer."""

    def __init__(self, tokenizer: Tokenizer | None, out: TextIO) -> None:
        self.ids: list[int] = []
        self.text = ""
        self._decoder = None if tokenizer is None else tokenizer.stream_decoder()
        self._out = out

    def feed(self, token: int, *, end: bool) -> None:
        """Show one token; an end token counts but is not shown."""
        self.ids.append(token)
        if self._decoder is None:
            self._write(f"{',' if len(self.ids) > 1 else ''}{token}")
        elif not end:
            self._write(self._decoder.feed(token))

    def show(self, answer: Answer) -> None:
        """Show the new part of an answer."""
        piece = answer.take_piece()
        if piece is None:
            return
        if self._decoder is None:
            for token in piece.token_ids:
                self.feed(token, end=False)
        else:
            self.ids += piece.token_ids
            self._write(piece.text)

    def close(self) -> None:
        """End the text with a line break, also after Ctrl-C."""
        self._write(self._decoder.flush() if self._decoder is not None else "")
        if self.ids and not self.text.endswith("\n"):
            print(file=self._out, flush=True)

    def _write(self, text: str) -> None:
        self.text += text
        print(text, end="", file=self._out, flush=True)


main = Command("run", parser, _run)
