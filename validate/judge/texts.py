"""The texts of a judgement: seeded sentences, so that every prompt is different and can be made again."""

from __future__ import annotations

import random

ADJECTIVES = [
    "small",
    "old",
    "quiet",
    "green",
    "heavy",
    "early",
    "narrow",
    "bright",
    "wooden",
    "careful",
    "distant",
    "simple",
]
NOUNS = [
    "river",
    "engine",
    "teacher",
    "window",
    "market",
    "doctor",
    "letter",
    "bridge",
    "garden",
    "number",
    "table",
    "winter",
]
VERBS = [
    "finds",
    "carries",
    "repairs",
    "follows",
    "describes",
    "measures",
    "opens",
    "remembers",
    "paints",
    "counts",
]
PLACES = ["near the station", "behind the house", "in the library", "after the meeting", "on the second day"]
# Edge cases of tokenizers: scripts, combining marks, digits, spaces, code, control-like text.
DIFFICULT = (
    "Größe, naïve, façade, Škoda, Łódź.",
    "Привет, как дела? Ещё раз.",
    "今日は良い天気ですね。你好，世界。",
    "مرحبا بالعالم 123",
    "e\u0301 versus \u00e9, and \u200bzero width",
    "👩‍👩‍👧‍👦 🇩🇪 👍🏽",
    "1234567890 3.14159 1,000,000 0x1F",
    "  two spaces,\ttab,\n\n\nthree newlines  ",
    "def f(x):\n    return x**2  # comment\n",
    "I'll we've don't THEY'RE",
    "\r\nWindows line\r\n",
    "a" * 40,
    "=" * 30 + "-" * 30,
    "ﬁ ligature, Ⅳ, ½, ™",
)


def make_sentence(chance: random.Random) -> str:
    pick = chance.choice
    return (
        f"The {pick(ADJECTIVES)} {pick(NOUNS)} {pick(VERBS)} the {pick(ADJECTIVES)} {pick(NOUNS)} {pick(PLACES)}."
    )


def make_passage(chance: random.Random, sentences: int) -> str:
    return " ".join(make_sentence(chance) for _ in range(sentences))


def make_canary(chance: random.Random) -> str:
    """Return a word that no model has learned, to be recognised in another request's answer."""
    letters = "BCDFGHJKLMNPQRSTVWXZ"
    return "".join(chance.choice(letters) for _ in range(5)) + f"-{chance.randrange(1000, 10000)}"
