"""How a model writes its reasoning: found out by asking its template.

A conversation with known reasoning and a known answer is rendered; what stands between them are the tags. Templates
that never write reasoning but speak of a tag (they cut it out of old answers) are matched against the tags in use.
Knows template sources and renderings; knows no tokens and no streams (`reasoning_split`). Invariant: a format that is
found has a tag at both ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

# (messages, whether to begin an answer, variables) -> rendered text, or None where the template refuses
Probe = Callable[[Sequence[Mapping[str, Any]], bool, Mapping[str, Any]], str | None]

_USER, _REASONING, _ANSWER = "Kqzu?", "Wvxr.", "Jgya!"

# Pairs in use that templates do not always write themselves, most telling first.
_KNOWN_TAGS = (
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ("<|channel>thought", "<channel|>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("◁think▷", "◁/think▷"),
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<thought>", "</thought>"),
)

_SWITCHES: dict[str, tuple[Any, Any]] = {
    "enable_thinking": (True, False),
    "thinking": (True, False),
    "thinking_mode": ("enabled", "disabled"),
    "thinking_option": ("on", "off"),
    "reasoning": (True, False),
}


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """What stands before, after and instead of the reasoning, as the template writes it."""

    opening: str
    closing: str
    answer_header: str = ""
    """What begins an answer without reasoning, for models that name the channel of each part."""
    wrapper: tuple[str, ...] = ()
    """Tags around the answer that are no part of it."""
    is_written: bool = True
    """The template writes these tags itself; else it (or the vocabulary) only knows them, and the model may not."""

    @property
    def open_tag(self) -> str:
        return self.opening.strip()

    @property
    def close_tag(self) -> str:
        return self.closing.strip()

    @property
    def has_channels(self) -> bool:
        """Each part of the output names its channel in a header (the harmony format of gpt-oss)."""
        return "<|channel|>" in self.opening and "<|message|>" in self.opening

    @property
    def closing_text(self) -> bytes:
        """What the engine puts in to end the reasoning by force."""
        return self.closing.encode()

    @property
    def skipping(self) -> str:
        """What begins an answer without reasoning, for a model whose template has no switch."""
        return self.answer_header or self.opening + self.closing

    def is_open_at_end(self, prompt: str) -> bool:
        """Whether the prompt ends with an opened block, so that the output begins inside it."""
        return prompt.rstrip().endswith(self.open_tag)

    def ends_closed(self, prompt: str) -> bool:
        """Whether the prompt ends with a closed block or an answer's header."""
        end = prompt.rstrip()
        return end.endswith(self.close_tag) or bool(
            self.answer_header.strip() and end.endswith(self.answer_header.strip())
        )

    def is_marker(self, piece: str) -> bool:
        """Whether a special token's written form is part of these tags: the splitter must see it."""
        piece = piece.strip()
        if self.has_channels and piece in ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"):
            return True
        return bool(piece) and any(
            piece in text for text in (self.opening, self.closing, self.answer_header, *self.wrapper)
        )


# Its template writes reasoning beside tool calls only, so it cannot be asked.
_HARMONY = ReasoningFormat(
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant<|channel|>final<|message|>",
    "<|channel|>final<|message|>",
)


def detect(source: str, probe: Probe) -> ReasoningFormat | None:
    """Find the format of a template; None for a template that knows no reasoning."""
    if all(tag in source for tag in ("<|channel|>", "<|message|>", "analysis", "final")):
        return _HARMONY
    form = _ask(source, probe)
    if form is None:
        tags = next((pair for pair in _KNOWN_TAGS if pair[1] in source), None)
        if tags is None:
            return None
        form = _from_tags(tags)
    return replace(form, wrapper=_wrapper(source))


def from_vocabulary(is_token: Callable[[str], bool]) -> ReasoningFormat | None:
    """The format of a model whose template is silent, but whose vocabulary has both tags as single tokens."""
    tags = next((pair for pair in _KNOWN_TAGS if is_token(pair[0]) and is_token(pair[1])), None)
    return None if tags is None else _from_tags(tags)


def _from_tags(tags: tuple[str, str]) -> ReasoningFormat:
    return ReasoningFormat(f"{tags[0]}\n", f"\n{tags[1]}\n\n", is_written=False)


def switch_variables(source: str, think: bool | None) -> dict[str, Any]:
    """The variables that tell this template to think or not; none for None, which leaves its own default."""
    if think is None:
        return {}
    variables = {
        name: on if think else off for name, (on, off) in _SWITCHES.items() if re.search(rf"\b{name}\b", source)
    }
    if not think and re.search(r"\bthinking_budget\b", source):
        variables["thinking_budget"] = 0
    if re.search(r"\breasoning_effort\b", source):
        off_value = _first_quoted(source, "no_think", "none", "minimal", "low")
        value = _first_quoted(source, "high", "medium") if think else off_value
        if off_value and value:
            variables["reasoning_effort"] = value
    return variables


def _first_quoted(source: str, *values: str) -> str | None:
    return next((value for value in values if re.search(rf"""['"]{value}['"]""", source)), None)


def _wrapper(source: str) -> tuple[str, ...]:
    if "<response></response>" in source:  # the system text of Granite asks for these tags
        return ("<response>", "</response>")
    pairs = (("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>"))
    return next((pair for pair in pairs if all(tag in source for tag in pair)), ())


def _ask(source: str, probe: Probe) -> ReasoningFormat | None:
    """Render an answer with reasoning and see what the template puts around it."""
    question = [{"role": "user", "content": _USER}]
    variables = switch_variables(source, True)
    answered = [*question, {"role": "assistant", "content": _ANSWER, "reasoning": _REASONING}]
    before, begun, full = (
        probe(question, False, variables),
        probe(question, True, variables),
        probe(answered, False, variables),
    )
    if before is None or begun is None or full is None:
        return None
    at_reasoning, at_answer = full.find(_REASONING), full.find(_ANSWER)
    if not 0 <= at_reasoning < at_answer:
        return None
    n_before = _n_common(before, full)
    header, generation = full[n_before:at_reasoning], begun[n_before:]
    closing = full[at_reasoning + len(_REASONING) : at_answer]
    opening = _opening(header, generation, closing.strip())
    if not opening.strip() or not closing.strip():
        return None
    plain = probe([*question, {"role": "assistant", "content": _ANSWER}], False, variables) or ""
    role_header = full[:at_reasoning].removesuffix(opening)
    answer_header = ""
    if role_header != full[:at_reasoning] and plain.startswith(role_header):
        answer_header = plain[len(role_header) :].partition(_ANSWER)[0]
    if closing.strip() in answer_header or opening.strip() in answer_header:
        answer_header = ""
    return ReasoningFormat(opening, closing, answer_header)


def _opening(header: str, generation: str, close_tag: str) -> str:
    """The opening tag: what stands before reasoning, less what begins every answer."""
    rest = header.removeprefix(generation)
    if rest != header and rest.strip():
        return rest
    # The generation prompt opens the block by itself. Then the tag is what it adds, a known one, or the last line.
    rest = generation.removeprefix(header)
    if rest != generation and rest.strip() and close_tag not in rest:
        return rest
    tag = next((pair[0] for pair in _KNOWN_TAGS if header.rstrip().endswith(pair[0])), None)
    if tag is not None:
        return header[header.rindex(tag) :]
    if match := re.search(r"<[^<>\s]*think[^<>\s]*>\s*$", header):
        return match.group()
    return header[header.rstrip().rfind("\n") + 1 :]


def _n_common(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
