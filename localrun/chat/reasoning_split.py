"""A model's output, split into reasoning and answer while it streams.

Knows the tags of a `ReasoningFormat`; knows no tokens and no template. Tags may be cut anywhere between pieces.
Invariant: joined, the parts are the output less its tags and the white space around them; a closing tag that closes
nothing is never shown.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from localrun.chat.reasoning import ReasoningFormat

_SPACES = " \t\r\n"
_HEADER_MARKERS = ("<|channel|>", "<|start|>", "<|message|>")


class Part(NamedTuple):
    """Text of one kind."""

    kind: Literal["reasoning", "text"]
    text: str


class ReasoningSplitter:
    """The state of one answer. `push` takes the text of one token at a time.

    `in_reasoning` is what the prompt says: whether it ends inside a block. `budget` is how many tokens of reasoning are
    allowed: `is_over_budget` then tells the engine to put in the format's `closing_text`, and to push it here too.
    """

    def __init__(self, form: ReasoningFormat | None, *, in_reasoning: bool = False, budget: int | None = None) -> None:
        self._form = form
        self._budget = budget
        self._held = ""
        self._n_tokens = 0
        self._n_opened = 0  # opening tags that the answer itself quotes
        self._strip_answer = False
        self._state: Literal["undecided", "header", "reasoning", "text"] = "undecided"
        if in_reasoning:
            self._state = "reasoning"
        elif form is None:
            self._state = "text"
        self._at_start_of_reasoning = True

    @property
    def in_reasoning(self) -> bool:
        """Whether the next token belongs to the reasoning."""
        return self._state == "reasoning"

    @property
    def in_answer(self) -> bool:
        """Whether the answer has begun: from here on a constraint holds. False while reasoning may still begin."""
        return self._state == "text"

    @property
    def reasoning_tokens(self) -> int:
        return self._n_tokens

    @property
    def is_over_budget(self) -> bool:
        """Whether the reasoning has to be closed now."""
        return self.in_reasoning and self._budget is not None and self._n_tokens >= self._budget

    def push(self, text: str) -> list[Part]:
        """Take the text of the next token (possibly none), return what can be shown."""
        if self._form is None:
            return [Part("text", text)] if text else []
        if self.in_reasoning:
            self._n_tokens += 1
        self._held += text
        return self._advance(final=False)

    def finish(self) -> list[Part]:
        """Return what is held back, when the output has ended."""
        return self._advance(final=True)

    def _advance(self, *, final: bool) -> list[Part]:
        if self._form is None:
            return []
        parts: list[Part] = []
        step = self._step_channels if self._form.has_channels else self._step_tags
        while step(self._form, parts, final):
            pass
        return [part for part in _joined(parts) if part.text]

    # One tag pair: <think>…</think>

    def _step_tags(self, form: ReasoningFormat, parts: list[Part], final: bool) -> bool:
        """Take one step; True while there may be more."""
        if self._state == "undecided":
            return self._decide(form, final)
        if self._state == "reasoning":
            return self._reason(form.close_tag, parts, final)
        return self._answer((form.open_tag, form.close_tag, *form.wrapper), parts, final)

    def _decide(self, form: ReasoningFormat, final: bool) -> bool:
        start = self._held.lstrip(_SPACES)
        tags = [form.open_tag, *([form.answer_header.strip()] if form.answer_header.strip() else [])]
        for tag in tags:
            if start.startswith(tag):
                self._held = start[len(tag) :]
                self._state = "reasoning" if tag == form.open_tag else "text"
                self._strip_answer = True
                return True
        if not final and any(tag.startswith(start) for tag in tags):
            return False
        self._state = "text"
        return True

    def _reason(self, close_tag: str, parts: list[Part], final: bool) -> bool:
        if self._at_start_of_reasoning:
            self._held = self._held.lstrip(_SPACES)
            self._at_start_of_reasoning = not self._held
        before, tag, after = self._held.partition(close_tag)
        if tag:
            parts.append(Part("reasoning", before.rstrip(_SPACES)))
            self._held, self._state, self._strip_answer = after, "text", True
            return True
        shown = before if final else _without_beginning_of(before, (close_tag,)).rstrip(_SPACES)
        parts.append(Part("reasoning", shown))
        self._held = before[len(shown) :]
        return False

    def _answer(self, tags: tuple[str, ...], parts: list[Part], final: bool) -> bool:
        if self._strip_answer:
            self._held = self._held.lstrip(_SPACES)
            self._strip_answer = not self._held
        open_tag, close_tag, *wrapper = tags
        match = re.search("|".join(map(re.escape, tags)), self._held)
        if match is None:
            shown = self._held if final else _without_beginning_of(self._held, tags)
            parts.append(Part("text", shown))
            self._held = self._held[len(shown) :]
            return False
        before, tag, self._held = self._held[: match.start()], match.group(), self._held[match.end() :]
        if tag == close_tag and not self._n_opened:
            # A stray end: what came before it has been shown already, the tag itself never is.
            parts.append(Part("text", before))
        elif tag in wrapper:
            parts.append(Part("text", before))
            self._strip_answer = self._strip_answer or tag == wrapper[0]
        else:
            self._n_opened += 1 if tag == open_tag else -1
            parts.append(Part("text", before + tag))
        return True

    # Named channels: <|channel|>analysis<|message|>…<|end|>

    def _step_channels(self, form: ReasoningFormat, parts: list[Part], final: bool) -> bool:
        if self._state == "undecided":
            start = self._held.lstrip(_SPACES)
            if not final and any(marker.startswith(start) and marker != start for marker in _HEADER_MARKERS):
                return False
            self._state = "header" if start.startswith(_HEADER_MARKERS) else "text"
            return True
        if self._state == "header":
            header, tag, after = self._held.partition("<|message|>")
            if not tag:
                if final:
                    self._held = ""
                return False
            self._held = after
            self._state = "reasoning" if re.search(r"<\|channel\|>\s*analysis", header) else "text"
            return True
        kind: Literal["reasoning", "text"] = "reasoning" if self._state == "reasoning" else "text"
        match = re.search(r"<\|(?:end|start|channel)\|>", self._held)
        if match is None:
            shown = self._held if final else _without_beginning_of(self._held, ("<|end|>", "<|start|>", "<|channel|>"))
            parts.append(Part(kind, shown))
            self._held = self._held[len(shown) :]
            return False
        parts.append(Part(kind, self._held[: match.start()]))
        self._held, self._state = self._held[match.start() :], "header"
        return True


def _without_beginning_of(text: str, tags: tuple[str, ...]) -> str:
    """The text less what at its end may be the beginning of a tag."""
    longest = max(map(len, tags)) - 1
    for n in range(min(longest, len(text)), 0, -1):
        if any(tag.startswith(text[-n:]) for tag in tags):
            return text[:-n]
    return text


def _joined(parts: list[Part]) -> list[Part]:
    joined: list[Part] = []
    for part in parts:
        if joined and joined[-1].kind == part.kind:
            joined[-1] = Part(part.kind, joined[-1].text + part.text)
        else:
            joined.append(part)
    return joined
