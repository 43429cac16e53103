"""The chat page in Chromium: what a reader does with it, over an API that says what the test wants it to say."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from headless_chromium import SHIFT, Browser, Tab, open_tab
from scripted_api import (
    WAIT,
    ApiScript,
    ScriptedSite,
    data_line,
    delta_line,
    end_lines,
    listening_site,
    text_chunks,
    usage_record,
)

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
LAST = "li.turn:last-child"
MARKDOWN = [
    ("a\nb", "<p>a\nb</p>"),
    ("# One\ntwo", "<h3>One</h3><p>two</p>"),
    (
        "**a** *b* _c_ ~~d~~ `e*f*`",
        "<p><strong>a</strong> <em>b</em> <em>c</em> <del>d</del> <code>e*f*</code></p>",
    ),
    ("2*3*4 snake_case_name \\*a\\*", "<p>2*3*4 snake_case_name *a*</p>"),
    ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
    ("- a\n- b\n  - c\n\n  d\n- e", "<ul><li>a</li><li>b<ul><li>c</li></ul><p>d</p></li><li>e</li></ul>"),
    ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
    ("text\n- a", "<p>text</p><ul><li>a</li></ul>"),
    ("> a\n> b", "<blockquote><p>a\nb</p></blockquote>"),
    ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
    ("a & b < c", "<p>a &amp; b &lt; c</p>"),
]


@pytest.fixture(scope="module")
def chat_site() -> Iterator[ScriptedSite]:
    with listening_site() as result:
        yield result


@pytest.fixture
def chat_script(chat_site: ScriptedSite) -> ApiScript:
    chat_site.script = ApiScript()
    return chat_site.script


@pytest.fixture
def chat_page(chrome_browser: Browser, chat_site: ScriptedSite, chat_script: ApiScript) -> Iterator[Tab]:
    with open_tab(chrome_browser) as result:
        result.open_url(chat_site.url)
        result.wait_until("models.length")
        yield result
        assert result.complaints == []
        assert [url for url in result.fetched if not url.startswith((chat_site.url, "data:", "blob:"))] == []


def send_message(page: Tab, text: str, *, until: str = "!running") -> None:
    """Type into the field and press Enter, like a user."""
    before = page.count("li.turn")
    page.ask("at('prompt').focus()")
    page.type(text)
    page.press("Enter")
    page.wait_until(f"chat.turns.length > {before} && ({until})")


def test_answer_is_shown_while_it_is_generated(chat_page: Tab, chat_script: ApiScript) -> None:
    first = [delta_line(role="assistant", content="A **bold"), WAIT]
    chat_script.answers["Go"] = [
        *first,
        delta_line(content="** word"),
        *end_lines("length", usage=usage_record(31, 7, 16)),
    ]
    send_message(chat_page, "Go", until="chat.turns.at(-1).content")
    assert chat_page.wait_until(f"document.querySelector('{LAST} .body').innerText") == "A **bold"
    assert chat_page.ask(f"document.querySelector('{LAST}').getAttribute('aria-busy')") == "true"
    chat_script.going = True
    chat_page.wait_until("!running")
    assert chat_page.text(f"{LAST} .body") == "A bold word"
    assert chat_page.count(f"{LAST} .body strong") == 1
    figures = chat_page.text(f"{LAST} .stats")
    assert (
        "7 tokens" in figures and "prompt 31, 16 cached" in figures and "truncated at the token limit" in figures
    )
    assert chat_page.text("#status") == "Answer: A **bold** word"


def test_request_contains_the_settings(chat_page: Tab, chat_script: ApiScript) -> None:
    chat_script.answers["Go"] = text_chunks("Yes")
    for field, value in {"system": "Be brief.", "temperature": "0.5", "top_k": "40", "seed": "7"}.items():
        chat_page.click(f"#{field}")
        chat_page.type(value)
    chat_page.click("#schema")
    chat_page.type('{"type": "object"}')
    send_message(chat_page, "Go")
    (body,) = chat_script.asked
    assert body["model"] == "scripted" and body["stream"]
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go"}]
    assert (body["temperature"], body["top_k"], body["seed"]) == (0.5, 40, 7)
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert "top_p" not in body and "logprobs" not in body
    chat_page.click("#schema")
    chat_page.type("?")
    send_message(chat_page, "Go")
    assert "The schema in the settings is not JSON" in chat_page.text(f"{LAST} .error")
    assert len(chat_script.asked) == 1


def test_escape_cancels_an_answer_on_the_server(chat_page: Tab, chat_script: ApiScript) -> None:
    chat_script.answers["Go"] = [delta_line(content="So far"), WAIT, *text_chunks("never")]
    send_message(chat_page, "Go", until="chat.turns.at(-1).content")
    chat_page.press("Escape")
    chat_page.wait_until("!running")
    assert chat_page.text(f"{LAST} .body") == "So far" and "stopped" in chat_page.text(f"{LAST} .stats")
    wait_expression(lambda: chat_script.gone == 1)
    send_message(chat_page, "Go", until="chat.turns.at(-1).content")
    chat_page.click("#stop")
    chat_page.wait_until("!running")
    wait_expression(lambda: chat_script.gone == 2)


def wait_expression(condition: Any) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("never true")


def test_editing_a_message_drops_the_later_ones(chat_page: Tab, chat_script: ApiScript) -> None:
    chat_script.answers |= {"One": text_chunks("1"), "Two": text_chunks("2"), "Three": text_chunks("3")}
    send_message(chat_page, "One")
    send_message(chat_page, "Two")
    chat_page.click("li.turn:first-child .foot button")
    chat_page.ask("document.activeElement.select()")
    chat_page.type("Three")
    chat_page.press("Enter")
    chat_page.wait_until("chat.turns.length === 2 && !running")
    assert chat_script.asked[-1]["messages"] == [{"role": "user", "content": "Three"}]
    assert chat_page.text(f"{LAST} .body") == "3"


def test_answer_can_be_regenerated(chat_page: Tab, chat_script: ApiScript) -> None:
    chat_script.answers |= {"One": text_chunks("1"), "Two": text_chunks("2")}
    send_message(chat_page, "One")
    send_message(chat_page, "Two")
    chat_page.click("li.turn:nth-child(2) .foot button")
    chat_page.wait_until("chat.turns.length === 2 && !running")
    assert chat_script.asked[-1]["messages"] == chat_script.asked[0]["messages"]
    assert chat_script.asked[-1]["seed"] != chat_script.asked[0]["seed"]


def test_reasoning_is_requested_streamed_and_then_folded(chat_page: Tab, chat_script: ApiScript) -> None:
    thinking = [delta_line(reasoning_content="Let me"), WAIT]
    chat_script.answers["Go"] = [*thinking, delta_line(reasoning_content=" see."), *text_chunks("42")]
    send_message(chat_page, "Go", until="chat.turns.at(-1).reasoning")
    assert chat_page.wait_until(f"document.querySelector('{LAST} details').open")
    assert chat_page.text(f"{LAST} summary") == "Thinking…"
    chat_script.going = True
    chat_page.wait_until("!running")
    assert not chat_page.ask(f"document.querySelector('{LAST} details').open")
    chat_page.click(f"{LAST} summary")
    assert chat_page.text(f"{LAST} details div") == "Let me see." and chat_page.text(f"{LAST} .body") == "42"
    chat_page.click("#think")
    send_message(chat_page, "Go")
    assert [body["chat_template_kwargs"] for body in chat_script.asked] == [
        {"enable_thinking": True},
        {"enable_thinking": False},
    ]
    assert chat_script.asked[1]["messages"][1] == {"role": "assistant", "content": "42"}


def logprob_record(token: str, probability: float, **others: float) -> dict[str, Any]:
    tops = [{"token": item, "logprob": math.log(p)} for item, p in {token: probability, **others}.items()]
    return {"token": token, "logprob": math.log(probability), "top_logprobs": tops}


def test_token_inspector_shows_alternatives(chat_page: Tab, chat_script: ApiScript) -> None:
    chat_script.answers["Go"] = [
        delta_line(content="The", logprobs=[logprob_record("The", 0.9)]),
        delta_line(content="ring\n", logprobs=[logprob_record("ring", 0.04, bell=0.6), logprob_record("\n", 0.3)]),
        *end_lines(),
    ]
    chat_page.click("#inspect")
    send_message(chat_page, "Go")
    assert chat_script.asked[0]["logprobs"] and chat_script.asked[0]["top_logprobs"] == 5
    chat_page.click(f"{LAST} .foot [aria-pressed]")
    tokens = "[...document.querySelectorAll('.tokens > .token')]"
    assert chat_page.ask(f"{tokens}.map(each => each.className)") == ["token p4", "token p0", "token p2"]
    chat_page.hover(".tokens > .token:nth-of-type(2)")
    assert chat_page.text("#tip").split("\n") == ['"ring"\t4.0 %\t-3.219', '"bell"\t60.0 %\t-0.511']
    chat_page.ask(f"{tokens}[1].focus()")
    chat_page.press("ArrowRight")
    assert chat_page.text("#tip").startswith('"\\n"\t30.0 %')
    chat_page.click(f"{LAST} .foot [aria-pressed]")
    assert chat_page.text(f"{LAST} .body") == "Thering"


def test_tool_call_is_shown_and_its_result_is_sent(chat_page: Tab, chat_script: ApiScript) -> None:
    def tool_call_delta(**function: str) -> list[dict[str, Any]]:
        return [{"index": 0, **({"id": "call_1"} if "name" in function else {}), "function": function}]

    chat_script.answers["Go"] = [
        delta_line(content="Let me look."),
        delta_line(tool_calls=tool_call_delta(name="weather", arguments="")),
        delta_line(tool_calls=tool_call_delta(arguments='{"city": ')),
        delta_line(tool_calls=tool_call_delta(arguments='"Oslo"}')),
        *end_lines("tool_calls"),
    ]
    chat_script.answers["4 degrees"] = text_chunks("It is cold.")
    chat_page.click("#tools")
    chat_page.type('[{"type": "function", "function": {"name": "weather"}}]')
    send_message(chat_page, "Go")
    assert chat_page.text(".call h3") == "call weather" and chat_page.text(".call pre") == '{\n  "city": "Oslo"\n}'
    chat_page.click(".call textarea")
    chat_page.type("4 degrees")
    chat_page.click(f"{LAST} .call + button")
    chat_page.wait_until("chat.turns.length === 4 && !running")
    assert chat_script.asked[1]["tools"] == [{"type": "function", "function": {"name": "weather"}}]
    assert chat_script.asked[1]["tool_choice"] == "auto"
    assert chat_script.asked[1]["messages"][1:] == [
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "4 degrees"},
    ]
    assert chat_page.text(f"{LAST} .body") == "It is cold." and chat_page.count(".call textarea") == 0


def test_prompt_progress_is_shown_until_the_first_token(chat_page: Tab, chat_script: ApiScript) -> None:
    progress = data_line(choices=[], prompt_progress={"total": 400, "cache": 64, "processed": 200})
    chat_script.answers["Go"] = [progress, WAIT, ": preempted", delta_line(content="Yes"), *end_lines()]
    send_message(chat_page, "Go", until="chat.turns.at(-1).progress")
    assert chat_page.wait_until(f"document.querySelector('{LAST} progress')?.value") == 200
    assert chat_page.text(f"{LAST} .progress") == "200 of 400 prompt tokens, 64 cached"
    chat_script.going = True
    chat_page.wait_until("!running")
    assert chat_page.count(f"{LAST} .progress:not([hidden])") == 0


def test_simulated_device_and_random_weights_are_marked_in_red(chat_page: Tab, chat_script: ApiScript) -> None:
    chat_script.models = [
        {"id": "m", "zinc_rt": {"simulated": True, "random_weights": True, "tier": "t1", "ctx": 4096}}
    ]
    chat_script.answers["Go"] = [delta_line(content="Yes"), *end_lines(usage=usage_record(3, 9))]
    chat_page.ask("loadModels()")
    assert chat_page.text("#facts").split() == ["simulated", "random", "weights", "t1", "4,096", "tokens"]
    send_message(chat_page, "Go")
    assert chat_page.text(f"{LAST} .stats").startswith("simulated · 9 tokens")
    red = chat_page.ask(f"getComputedStyle(document.querySelector('{LAST} .stats strong')).color")
    assert (
        red == chat_page.ask("getComputedStyle(document.querySelector('.badge.bad')).color") != "rgb(27, 33, 38)"
    )


def test_model_output_never_executes(chat_page: Tab, chat_script: ApiScript) -> None:
    text = "\n\n".join(
        (
            HOSTILE,
            f"`{HOSTILE}`",
            f"```{HOSTILE}\n{HOSTILE}\n```",
            f"# {HOSTILE}",
            f"- {HOSTILE}",
            f"| {HOSTILE} | b |\n|---|---|\n| {HOSTILE} | d |",
            "> " * 3000 + "- " * 3000,
            "x" + "`" * 3000 + "[" * 3000,
            "[a](javascript:document.title='owned') [b](data:text/html,owned) ![c](https://example.org/leak.png)",
        )
    )
    chat_script.answers["Go"] = [
        delta_line(reasoning_content=HOSTILE),
        delta_line(content=text, logprobs=[logprob_record(HOSTILE, 0.5)]),
        delta_line(tool_calls=[{"index": 0, "id": "1", "function": {"name": HOSTILE, "arguments": HOSTILE}}]),
        *end_lines("tool_calls"),
    ]
    chat_script.models = [{"id": HOSTILE}]
    chat_page.ask("loadModels()")
    chat_page.click("#inspect")
    send_message(chat_page, "Go")
    chat_page.click(f"{LAST} .foot [aria-pressed]")
    chat_page.hover(".tokens > .token")
    assert HOSTILE[:20] in chat_page.text(f"{LAST} .tokens")
    chat_page.click(f"{LAST} .foot [aria-pressed]")
    assert chat_page.count("main img, main script, main iframe, main [onerror], #tip img") == 0
    assert chat_page.ask("[...document.querySelectorAll('.turn a')].map(a => a.href)") == [
        "https://example.org/leak.png"
    ]
    chat_page.ask("new Promise(done => setTimeout(done, 50))")
    assert chat_page.ask("document.title") == "ZINC_RT · chat"


def test_content_security_policy_blocks_injected_script(chat_page: Tab) -> None:
    with pytest.raises(AssertionError, match="TrustedHTML"):
        chat_page.ask(f"document.body.innerHTML = {json.dumps(HOSTILE)}")
    chat_page.ask("document.body.append(h('script', null, 'document.title = 1'))")
    chat_page.ask("fetch('https://example.org/').catch(() => 'refused')")
    assert chat_page.ask("document.title") == "ZINC_RT · chat"
    assert len(chat_page.complaints) >= 3  # the browser's words about what it refused
    chat_page.complaints.clear()
    chat_page.fetched.clear()


def test_key_is_requested_and_kept_only_in_the_tab(chat_page: Tab, chat_script: ApiScript) -> None:
    chat_script.key, chat_script.answers["Go"] = "zrt_k1_secret", text_chunks("Yes")
    chat_page.ask("loadModels()")
    assert chat_page.text("#greeting") == "This server wants a key. Enter an API key in the settings."
    assert chat_page.ask("document.activeElement.id") == "key"
    chat_page.type(chat_script.key)
    chat_page.press("Enter")
    chat_page.wait_until("models.length")
    send_message(chat_page, "Go")
    assert chat_page.text(f"{LAST} .body") == "Yes"
    assert chat_page.ask("JSON.stringify({...localStorage})").count("secret") == 0
    chat_page.complaints.clear()  # of the 401


def test_errors_and_broken_streams_are_shown(chat_page: Tab, chat_script: ApiScript) -> None:
    send_message(chat_page, "Nobody knows")
    assert chat_page.text(f"{LAST} .error") == "The queue is full. Try again in 3 s."
    chat_script.answers["Go"] = [delta_line(content="So"), data_line(error={"message": "The device is lost."})]
    send_message(chat_page, "Go")
    assert chat_page.text(f"{LAST} .body") == "So" and chat_page.text(f"{LAST} .error") == "The device is lost."
    chat_script.answers["Go"] = [delta_line(content="So")]
    send_message(chat_page, "Go")
    assert chat_page.text(f"{LAST} .error") == "The stream ended before the answer was complete."
    chat_page.complaints.clear()  # of the 503


def test_theme_follows_the_system_and_can_be_overridden(chat_page: Tab, chat_site: ScriptedSite) -> None:
    def background_colour() -> str:
        return str(chat_page.ask("getComputedStyle(document.body).backgroundColor"))

    light = background_colour()
    chat_page.set_viewport(scheme="dark")
    dark = background_colour()
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 23, 26)")
    chat_page.click("#theme")
    assert chat_page.text("#theme") == "○ Light" and background_colour() == light
    chat_page.click("#theme")
    chat_page.set_viewport(scheme="light")
    chat_page.open_url(chat_site.url)
    chat_page.wait_until("models.length")
    assert chat_page.text("#theme") == "● Dark" and background_colour() == dark


def test_page_is_usable_by_keyboard(chat_page: Tab, chat_script: ApiScript) -> None:
    chat_script.answers |= {"One\nmore": text_chunks("1"), "Two": text_chunks("2")}
    assert chat_page.ask("document.activeElement.id") == "prompt"
    chat_page.type("One")
    chat_page.press("Enter", modifiers=SHIFT)
    chat_page.type("more")
    chat_page.press("Enter")
    chat_page.wait_until("chat.turns.length === 2 && !running")
    chat_page.press("ArrowUp")
    chat_page.wait_until("document.activeElement.closest('.editor')")
    chat_page.press("Escape")
    assert chat_page.ask("document.activeElement.id") == "prompt" and chat_page.count(".editor") == 0
    chat_page.press("ArrowUp")
    chat_page.ask("document.activeElement.select()")
    chat_page.type("Two")
    chat_page.press("Enter")
    chat_page.wait_until("chat.turns.at(-1).content === '2' && !running")
    seen = set()
    for _ in range(45):
        chat_page.press("Tab")
        name, outline = chat_page.ask(
            "(e => e === document.body ? ['', 'past the end'] :"
            " [e.id || e.textContent.trim(), getComputedStyle(e).outlineStyle])(document.activeElement)"
        )
        assert name == "prompt" or outline != "none", f"no focus to see on {name}"
        seen.add(name)
    wanted = {"model", "new", "export", "theme", "settings-button", "Edit", "Regenerate", "Copy", "think", "key"}
    assert wanted <= seen


def test_every_control_has_an_accessible_name(chat_page: Tab, chat_script: ApiScript) -> None:
    chat_script.answers["Go"] = [delta_line(reasoning_content="Hm"), *text_chunks("```\ncode\n```")]
    send_message(chat_page, "Go")
    roles = {"button", "textbox", "combobox", "link", "spinbutton", "progressbar"}
    unnamed = [
        node["role"]["value"]
        for node in chat_page.call("Accessibility.getFullAXTree")["nodes"]
        if not node["ignored"] and node["role"]["value"] in roles and not node["name"]["value"].strip()
    ]
    assert unnamed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["", "engine"])
def test_every_colour_has_sufficient_contrast(
    chat_page: Tab, chat_site: ScriptedSite, scheme: str, path: str
) -> None:
    """A contrast of 4.5 and more, WCAG's AA."""
    chat_page.set_viewport(scheme=scheme)
    chat_page.open_url(chat_site.url + path)
    for ink, ground in (*product(("ink", "soft", "accent", "bad"), ("paper", "panel")), ("bad", "bad-paper")):
        lighter, darker = sorted(
            (colour_luminance(chat_page, ink), colour_luminance(chat_page, ground)), reverse=True
        )
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (ink, ground)
    chat_page.complaints.clear()  # of what the engine page finds nothing at


def colour_luminance(page: Tab, name: str) -> float:
    """Return WCAG's relative luminance of a colour of the page's palette."""
    rgb = page.ask(
        f"(e => {{ e.style.color = 'var(--{name})'; document.body.append(e); const c = getComputedStyle(e).color;"
        " e.remove(); return c.match(/[0-9]+/g).map(Number) })(document.createElement('i'))"
    )
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (item / 255 for item in rgb)]
    return sum(weight * item for weight, item in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_needs_no_horizontal_scrolling(
    chat_page: Tab, chat_script: ApiScript, chat_site: ScriptedSite, scheme: str
) -> None:
    wide = "x" * 300
    text = f"{wide}\n\n```\n{wide}\n```\n\n|{'a|' * 30}\n|{'-|' * 30}\n|{'wide|' * 30}\n\n- `{wide}`\n\n# {wide}"
    chat_script.models = [
        {"id": "a-model-with-a-long-name" * 3, "zinc_rt": {"simulated": True, "tier": "t_cpu_native"}}
    ]
    chat_script.answers[wide] = [
        delta_line(reasoning_content=wide),
        delta_line(content=text),
        *end_lines(usage=usage_record(3, 9)),
    ]
    chat_page.set_viewport(width=380, height=800, scheme=scheme)
    chat_page.open_url(chat_site.url)
    chat_page.wait_until("models.length")
    send_message(chat_page, wide)
    for _ in range(2):
        assert chat_page.ask("document.documentElement.scrollWidth") == 380
        for area in ("scroll", "settings"):
            assert chat_page.ask(f"at('{area}').scrollWidth - at('{area}').clientWidth") == 0, area
        chat_page.click("#settings-button")


def test_chat_survives_reload_and_can_be_exported(
    chat_page: Tab, chat_script: ApiScript, chat_site: ScriptedSite, tmp_path: Path
) -> None:
    chat_script.answers["Go"] = [
        delta_line(reasoning_content="Hm"),
        delta_line(content="Yes"),
        *end_lines(usage=usage_record(3, 9)),
    ]
    send_message(chat_page, "Go")
    chat_page.open_url(chat_site.url)
    chat_page.wait_until("models.length")
    assert chat_page.text(f"{LAST} .body") == "Yes"
    behaviour = {"behavior": "allow", "downloadPath": str(tmp_path), "browserContextId": chat_page.context}
    chat_page.browser.call("Browser.setDownloadBehavior", **behaviour)
    chat_page.click("#export")
    wait_expression(lambda: list(tmp_path.glob("chat-*.json")))
    (file,) = tmp_path.glob("chat-*.json")
    wait_expression(lambda: file.read_text().endswith("}"))
    document = json.loads(file.read_text())
    assert document["request"]["messages"] == [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": "Yes"},
    ]
    (answer,) = document["answers"]
    assert answer["seed"] == chat_script.asked[0]["seed"] and answer["usage"]["completion_tokens"] == 9
    assert answer["reasoning_content"] == "Hm"
    chat_page.click("#new")
    assert chat_page.count("li.turn") == 0


def test_markdown_is_rendered(chat_page: Tab) -> None:
    result = [chat_page.ask(f"h('div', null, markdown({json.dumps(text)})).innerHTML") for text, _ in MARKDOWN]
    assert result == [elements for _, elements in MARKDOWN]


def test_growing_text_keeps_finished_blocks(chat_page: Tab) -> None:
    chat_page.ask("(window.box = h('div'), show(box, 'one\\n\\ntwo'), window.first = box.firstChild)")
    chat_page.ask("show(box, 'one\\n\\ntwo three')")
    assert chat_page.ask("box.firstChild === first && box.textContent") == "onetwo three"
