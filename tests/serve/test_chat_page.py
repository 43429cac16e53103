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
from headless_chromium import SHIFT, Browser, Tab, tab
from scripted_api import WAIT, Script, ScriptedSite, data, delta, end, listening_site, says, usage

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
def site() -> Iterator[ScriptedSite]:
    with listening_site() as result:
        yield result


@pytest.fixture
def script(site: ScriptedSite) -> Script:
    site.script = Script()
    return site.script


@pytest.fixture
def page(chrome: Browser, site: ScriptedSite, script: Script) -> Iterator[Tab]:
    with tab(chrome) as result:
        result.go(site.url)
        result.until("models.length")
        yield result
        assert result.complaints == []
        assert [url for url in result.fetched if not url.startswith((site.url, "data:", "blob:"))] == []


def say(page: Tab, text: str, *, until: str = "!running") -> None:
    """Type into the field and press Enter, like a user."""
    before = page.count("li.turn")
    page.ask("at('prompt').focus()")
    page.type(text)
    page.press("Enter")
    page.until(f"chat.turns.length > {before} && ({until})")


def test_answer_is_shown_while_it_is_generated(page: Tab, script: Script) -> None:
    first = [delta(role="assistant", content="A **bold"), WAIT]
    script.answers["Go"] = [*first, delta(content="** word"), *end("length", usage=usage(31, 7, 16))]
    say(page, "Go", until="chat.turns.at(-1).content")
    assert page.until(f"document.querySelector('{LAST} .body').innerText") == "A **bold"
    assert page.ask(f"document.querySelector('{LAST}').getAttribute('aria-busy')") == "true"
    script.going = True
    page.until("!running")
    assert page.text(f"{LAST} .body") == "A bold word"
    assert page.count(f"{LAST} .body strong") == 1
    figures = page.text(f"{LAST} .stats")
    assert (
        "7 tokens" in figures and "prompt 31, 16 cached" in figures and "truncated at the token limit" in figures
    )
    assert page.text("#status") == "Answer: A **bold** word"


def test_request_contains_the_settings(page: Tab, script: Script) -> None:
    script.answers["Go"] = says("Yes")
    for field, value in {"system": "Be brief.", "temperature": "0.5", "top_k": "40", "seed": "7"}.items():
        page.click(f"#{field}")
        page.type(value)
    page.click("#schema")
    page.type('{"type": "object"}')
    say(page, "Go")
    (body,) = script.asked
    assert body["model"] == "scripted" and body["stream"]
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go"}]
    assert (body["temperature"], body["top_k"], body["seed"]) == (0.5, 40, 7)
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert "top_p" not in body and "logprobs" not in body
    page.click("#schema")
    page.type("?")
    say(page, "Go")
    assert "The schema in the settings is not JSON" in page.text(f"{LAST} .error")
    assert len(script.asked) == 1


def test_escape_cancels_an_answer_on_the_server(page: Tab, script: Script) -> None:
    script.answers["Go"] = [delta(content="So far"), WAIT, *says("never")]
    say(page, "Go", until="chat.turns.at(-1).content")
    page.press("Escape")
    page.until("!running")
    assert page.text(f"{LAST} .body") == "So far" and "stopped" in page.text(f"{LAST} .stats")
    until_true(lambda: script.gone == 1)
    say(page, "Go", until="chat.turns.at(-1).content")
    page.click("#stop")
    page.until("!running")
    until_true(lambda: script.gone == 2)


def until_true(condition: Any) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("never true")


def test_editing_a_message_drops_the_later_ones(page: Tab, script: Script) -> None:
    script.answers |= {"One": says("1"), "Two": says("2"), "Three": says("3")}
    say(page, "One")
    say(page, "Two")
    page.click("li.turn:first-child .foot button")
    page.ask("document.activeElement.select()")
    page.type("Three")
    page.press("Enter")
    page.until("chat.turns.length === 2 && !running")
    assert script.asked[-1]["messages"] == [{"role": "user", "content": "Three"}]
    assert page.text(f"{LAST} .body") == "3"


def test_answer_can_be_regenerated(page: Tab, script: Script) -> None:
    script.answers |= {"One": says("1"), "Two": says("2")}
    say(page, "One")
    say(page, "Two")
    page.click("li.turn:nth-child(2) .foot button")
    page.until("chat.turns.length === 2 && !running")
    assert script.asked[-1]["messages"] == script.asked[0]["messages"]
    assert script.asked[-1]["seed"] != script.asked[0]["seed"]


def test_reasoning_is_requested_streamed_and_then_folded(page: Tab, script: Script) -> None:
    thinking = [delta(reasoning_content="Let me"), WAIT]
    script.answers["Go"] = [*thinking, delta(reasoning_content=" see."), *says("42")]
    say(page, "Go", until="chat.turns.at(-1).reasoning")
    assert page.until(f"document.querySelector('{LAST} details').open")
    assert page.text(f"{LAST} summary") == "Thinking…"
    script.going = True
    page.until("!running")
    assert not page.ask(f"document.querySelector('{LAST} details').open")
    page.click(f"{LAST} summary")
    assert page.text(f"{LAST} details div") == "Let me see." and page.text(f"{LAST} .body") == "42"
    page.click("#think")
    say(page, "Go")
    assert [body["chat_template_kwargs"] for body in script.asked] == [
        {"enable_thinking": True},
        {"enable_thinking": False},
    ]
    assert script.asked[1]["messages"][1] == {"role": "assistant", "content": "42"}


def logprob(token: str, probability: float, **others: float) -> dict[str, Any]:
    tops = [{"token": item, "logprob": math.log(p)} for item, p in {token: probability, **others}.items()]
    return {"token": token, "logprob": math.log(probability), "top_logprobs": tops}


def test_token_inspector_shows_alternatives(page: Tab, script: Script) -> None:
    script.answers["Go"] = [
        delta(content="The", logprobs=[logprob("The", 0.9)]),
        delta(content="ring\n", logprobs=[logprob("ring", 0.04, bell=0.6), logprob("\n", 0.3)]),
        *end(),
    ]
    page.click("#inspect")
    say(page, "Go")
    assert script.asked[0]["logprobs"] and script.asked[0]["top_logprobs"] == 5
    page.click(f"{LAST} .foot [aria-pressed]")
    tokens = "[...document.querySelectorAll('.tokens > .token')]"
    assert page.ask(f"{tokens}.map(each => each.className)") == ["token p4", "token p0", "token p2"]
    page.hover(".tokens > .token:nth-of-type(2)")
    assert page.text("#tip").split("\n") == ['"ring"\t4.0 %\t-3.219', '"bell"\t60.0 %\t-0.511']
    page.ask(f"{tokens}[1].focus()")
    page.press("ArrowRight")
    assert page.text("#tip").startswith('"\\n"\t30.0 %')
    page.click(f"{LAST} .foot [aria-pressed]")
    assert page.text(f"{LAST} .body") == "Thering"


def test_tool_call_is_shown_and_its_result_is_sent(page: Tab, script: Script) -> None:
    def call(**function: str) -> list[dict[str, Any]]:
        return [{"index": 0, **({"id": "call_1"} if "name" in function else {}), "function": function}]

    script.answers["Go"] = [
        delta(content="Let me look."),
        delta(tool_calls=call(name="weather", arguments="")),
        delta(tool_calls=call(arguments='{"city": ')),
        delta(tool_calls=call(arguments='"Oslo"}')),
        *end("tool_calls"),
    ]
    script.answers["4 degrees"] = says("It is cold.")
    page.click("#tools")
    page.type('[{"type": "function", "function": {"name": "weather"}}]')
    say(page, "Go")
    assert page.text(".call h3") == "call weather" and page.text(".call pre") == '{\n  "city": "Oslo"\n}'
    page.click(".call textarea")
    page.type("4 degrees")
    page.click(f"{LAST} .call + button")
    page.until("chat.turns.length === 4 && !running")
    assert script.asked[1]["tools"] == [{"type": "function", "function": {"name": "weather"}}]
    assert script.asked[1]["tool_choice"] == "auto"
    assert script.asked[1]["messages"][1:] == [
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
    assert page.text(f"{LAST} .body") == "It is cold." and page.count(".call textarea") == 0


def test_prompt_progress_is_shown_until_the_first_token(page: Tab, script: Script) -> None:
    progress = data(choices=[], prompt_progress={"total": 400, "cache": 64, "processed": 200})
    script.answers["Go"] = [progress, WAIT, ": preempted", delta(content="Yes"), *end()]
    say(page, "Go", until="chat.turns.at(-1).progress")
    assert page.until(f"document.querySelector('{LAST} progress')?.value") == 200
    assert page.text(f"{LAST} .progress") == "200 of 400 prompt tokens, 64 cached"
    script.going = True
    page.until("!running")
    assert page.count(f"{LAST} .progress:not([hidden])") == 0


def test_simulated_device_and_random_weights_are_marked_in_red(page: Tab, script: Script) -> None:
    script.models = [
        {"id": "m", "zinc_rt": {"simulated": True, "random_weights": True, "tier": "t1", "ctx": 4096}}
    ]
    script.answers["Go"] = [delta(content="Yes"), *end(usage=usage(3, 9))]
    page.ask("loadModels()")
    assert page.text("#facts").split() == ["simulated", "random", "weights", "t1", "4,096", "tokens"]
    say(page, "Go")
    assert page.text(f"{LAST} .stats").startswith("simulated · 9 tokens")
    red = page.ask(f"getComputedStyle(document.querySelector('{LAST} .stats strong')).color")
    assert red == page.ask("getComputedStyle(document.querySelector('.badge.bad')).color") != "rgb(27, 33, 38)"


def test_model_output_never_executes(page: Tab, script: Script) -> None:
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
    script.answers["Go"] = [
        delta(reasoning_content=HOSTILE),
        delta(content=text, logprobs=[logprob(HOSTILE, 0.5)]),
        delta(tool_calls=[{"index": 0, "id": "1", "function": {"name": HOSTILE, "arguments": HOSTILE}}]),
        *end("tool_calls"),
    ]
    script.models = [{"id": HOSTILE}]
    page.ask("loadModels()")
    page.click("#inspect")
    say(page, "Go")
    page.click(f"{LAST} .foot [aria-pressed]")
    page.hover(".tokens > .token")
    assert HOSTILE[:20] in page.text(f"{LAST} .tokens")
    page.click(f"{LAST} .foot [aria-pressed]")
    assert page.count("main img, main script, main iframe, main [onerror], #tip img") == 0
    assert page.ask("[...document.querySelectorAll('.turn a')].map(a => a.href)") == [
        "https://example.org/leak.png"
    ]
    page.ask("new Promise(done => setTimeout(done, 50))")
    assert page.ask("document.title") == "ZINC_RT · chat"


def test_content_security_policy_blocks_injected_script(page: Tab) -> None:
    with pytest.raises(AssertionError, match="TrustedHTML"):
        page.ask(f"document.body.innerHTML = {json.dumps(HOSTILE)}")
    page.ask("document.body.append(h('script', null, 'document.title = 1'))")
    page.ask("fetch('https://example.org/').catch(() => 'refused')")
    assert page.ask("document.title") == "ZINC_RT · chat"
    assert len(page.complaints) >= 3  # the browser's words about what it refused
    page.complaints.clear()
    page.fetched.clear()


def test_key_is_requested_and_kept_only_in_the_tab(page: Tab, script: Script) -> None:
    script.key, script.answers["Go"] = "zrt_k1_secret", says("Yes")
    page.ask("loadModels()")
    assert page.text("#greeting") == "This server wants a key. Enter an API key in the settings."
    assert page.ask("document.activeElement.id") == "key"
    page.type(script.key)
    page.press("Enter")
    page.until("models.length")
    say(page, "Go")
    assert page.text(f"{LAST} .body") == "Yes"
    assert page.ask("JSON.stringify({...localStorage})").count("secret") == 0
    page.complaints.clear()  # of the 401


def test_errors_and_broken_streams_are_shown(page: Tab, script: Script) -> None:
    say(page, "Nobody knows")
    assert page.text(f"{LAST} .error") == "The queue is full. Try again in 3 s."
    script.answers["Go"] = [delta(content="So"), data(error={"message": "The device is lost."})]
    say(page, "Go")
    assert page.text(f"{LAST} .body") == "So" and page.text(f"{LAST} .error") == "The device is lost."
    script.answers["Go"] = [delta(content="So")]
    say(page, "Go")
    assert page.text(f"{LAST} .error") == "The stream ended before the answer was complete."
    page.complaints.clear()  # of the 503


def test_theme_follows_the_system_and_can_be_overridden(page: Tab, site: ScriptedSite) -> None:
    def paper() -> str:
        return str(page.ask("getComputedStyle(document.body).backgroundColor"))

    light = paper()
    page.look(scheme="dark")
    dark = paper()
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 23, 26)")
    page.click("#theme")
    assert page.text("#theme") == "○ Light" and paper() == light
    page.click("#theme")
    page.look(scheme="light")
    page.go(site.url)
    page.until("models.length")
    assert page.text("#theme") == "● Dark" and paper() == dark


def test_page_is_usable_by_keyboard(page: Tab, script: Script) -> None:
    script.answers |= {"One\nmore": says("1"), "Two": says("2")}
    assert page.ask("document.activeElement.id") == "prompt"
    page.type("One")
    page.press("Enter", modifiers=SHIFT)
    page.type("more")
    page.press("Enter")
    page.until("chat.turns.length === 2 && !running")
    page.press("ArrowUp")
    page.until("document.activeElement.closest('.editor')")
    page.press("Escape")
    assert page.ask("document.activeElement.id") == "prompt" and page.count(".editor") == 0
    page.press("ArrowUp")
    page.ask("document.activeElement.select()")
    page.type("Two")
    page.press("Enter")
    page.until("chat.turns.at(-1).content === '2' && !running")
    seen = set()
    for _ in range(45):
        page.press("Tab")
        name, outline = page.ask(
            "(e => e === document.body ? ['', 'past the end'] :"
            " [e.id || e.textContent.trim(), getComputedStyle(e).outlineStyle])(document.activeElement)"
        )
        assert name == "prompt" or outline != "none", f"no focus to see on {name}"
        seen.add(name)
    wanted = {"model", "new", "export", "theme", "settings-button", "Edit", "Regenerate", "Copy", "think", "key"}
    assert wanted <= seen


def test_every_control_has_an_accessible_name(page: Tab, script: Script) -> None:
    script.answers["Go"] = [delta(reasoning_content="Hm"), *says("```\ncode\n```")]
    say(page, "Go")
    roles = {"button", "textbox", "combobox", "link", "spinbutton", "progressbar"}
    unnamed = [
        node["role"]["value"]
        for node in page.call("Accessibility.getFullAXTree")["nodes"]
        if not node["ignored"] and node["role"]["value"] in roles and not node["name"]["value"].strip()
    ]
    assert unnamed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["", "engine"])
def test_every_colour_has_sufficient_contrast(page: Tab, site: ScriptedSite, scheme: str, path: str) -> None:
    """A contrast of 4.5 and more, WCAG's AA."""
    page.look(scheme=scheme)
    page.go(site.url + path)
    for ink, ground in (*product(("ink", "soft", "accent", "bad"), ("paper", "panel")), ("bad", "bad-paper")):
        lighter, darker = sorted((luminance(page, ink), luminance(page, ground)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (ink, ground)
    page.complaints.clear()  # of what the engine page finds nothing at


def luminance(page: Tab, name: str) -> float:
    """Return WCAG's relative luminance of a colour of the page's palette."""
    rgb = page.ask(
        f"(e => {{ e.style.color = 'var(--{name})'; document.body.append(e); const c = getComputedStyle(e).color;"
        " e.remove(); return c.match(/[0-9]+/g).map(Number) })(document.createElement('i'))"
    )
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (item / 255 for item in rgb)]
    return sum(weight * item for weight, item in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_needs_no_horizontal_scrolling(page: Tab, script: Script, site: ScriptedSite, scheme: str) -> None:
    wide = "x" * 300
    text = f"{wide}\n\n```\n{wide}\n```\n\n|{'a|' * 30}\n|{'-|' * 30}\n|{'wide|' * 30}\n\n- `{wide}`\n\n# {wide}"
    script.models = [
        {"id": "a-model-with-a-long-name" * 3, "zinc_rt": {"simulated": True, "tier": "t_cpu_native"}}
    ]
    script.answers[wide] = [delta(reasoning_content=wide), delta(content=text), *end(usage=usage(3, 9))]
    page.look(width=380, height=800, scheme=scheme)
    page.go(site.url)
    page.until("models.length")
    say(page, wide)
    for _ in range(2):
        assert page.ask("document.documentElement.scrollWidth") == 380
        for area in ("scroll", "settings"):
            assert page.ask(f"at('{area}').scrollWidth - at('{area}').clientWidth") == 0, area
        page.click("#settings-button")


def test_chat_survives_reload_and_can_be_exported(
    page: Tab, script: Script, site: ScriptedSite, tmp_path: Path
) -> None:
    script.answers["Go"] = [delta(reasoning_content="Hm"), delta(content="Yes"), *end(usage=usage(3, 9))]
    say(page, "Go")
    page.go(site.url)
    page.until("models.length")
    assert page.text(f"{LAST} .body") == "Yes"
    behaviour = {"behavior": "allow", "downloadPath": str(tmp_path), "browserContextId": page.context}
    page.browser.call("Browser.setDownloadBehavior", **behaviour)
    page.click("#export")
    until_true(lambda: list(tmp_path.glob("chat-*.json")))
    (file,) = tmp_path.glob("chat-*.json")
    until_true(lambda: file.read_text().endswith("}"))
    document = json.loads(file.read_text())
    assert document["request"]["messages"] == [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": "Yes"},
    ]
    (answer,) = document["answers"]
    assert answer["seed"] == script.asked[0]["seed"] and answer["usage"]["completion_tokens"] == 9
    assert answer["reasoning_content"] == "Hm"
    page.click("#new")
    assert page.count("li.turn") == 0


def test_markdown_is_rendered(page: Tab) -> None:
    result = [page.ask(f"h('div', null, markdown({json.dumps(text)})).innerHTML") for text, _ in MARKDOWN]
    assert result == [elements for _, elements in MARKDOWN]


def test_growing_text_keeps_finished_blocks(page: Tab) -> None:
    page.ask("(window.box = h('div'), show(box, 'one\\n\\ntwo'), window.first = box.firstChild)")
    page.ask("show(box, 'one\\n\\ntwo three')")
    assert page.ask("box.firstChild === first && box.textContent") == "onetwo three"
