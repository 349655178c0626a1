"""A session's name, made from its first exchange.

Knows text only; asks no model, so a name costs nothing and is there at once. Invariant: the name is one line, at most
`MAX_CHARACTERS` long, and never empty.
"""

from __future__ import annotations

import re

MAX_CHARACTERS = 48

_GREETINGS = re.compile(
    r"^(hi|hello|hey|hiya|yo|hallo|moin|servus|hola|salut|bonjour|ciao|ok|okay|please"
    r"|good (morning|afternoon|evening|day)|guten (morgen|tag|abend)|thanks|thank you"
    r"|how are you( doing)?( today)?|how('s| is) it going|what'?s up|are you there|wie geht'?s( dir)?)"
    r"(?!\w)( (there|all|everyone|again|bot|assistant|friend)(?!\w))?(?=$|[\s,.!?:;]|-(?!\w))[\s,.!?:;-]*",
    re.IGNORECASE,
)
"""Small talk, and the small words in front of a wish."""
_TRIALS = re.compile(r"^(test(ing)?|ping|foo|bar|asdf)[\s.!?]*$", re.IGNORECASE)
"""What is typed to see whether anything answers."""
_MARKUP = re.compile(r"^\s*(#{1,6}\s+|[-*+>]\s+|\d+[.)]\s+)|[`*_]{1,3}")
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+")


def name_from_exchange(question: str, answer: str = "") -> str:
    """A short name for a conversation that begins with `question`, and if that says nothing, with `answer`."""
    return name_from_text(question) or name_from_text(answer) or _shorten(_printable(question)) or "New chat"


def name_from_text(text: str) -> str:
    """The first line of the text that says something, as a name; empty if none does ("hi")."""
    return next((title for title in map(_title, text.splitlines()) if len(title) > 2), "")


def _title(line: str) -> str:
    line = _MARKUP.sub("", _printable(line)).strip()
    without = _GREETINGS.sub("", line)
    while without != line:
        line, without = without, _GREETINGS.sub("", without)
    if _TRIALS.match(line):
        return ""
    line = _SENTENCE_END.split(line, maxsplit=1)[0].rstrip(" .:;,!")
    return _shorten(line[:1].upper() + line[1:])


def _printable(text: str) -> str:
    """The text on one line, without control characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _shorten(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    cut = text[: MAX_CHARACTERS - 1]
    if " " in cut[MAX_CHARACTERS // 2 :]:
        cut = cut[: cut.rindex(" ")]
    return cut.rstrip(" ,;:") + "…"
