"""A model's own chat template: messages in, prompt text out.

Knows Jinja only through the sandbox, and no vocabulary. Compiled once, rendered from any thread. Invariant: a prompt
says which of its characters came from messages (or that this is not known), so that whoever tokenizes it can keep
special tokens where the template put them; whatever the template raises becomes a `TemplateError` with its line.
"""

from __future__ import annotations

import functools
import itertools
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from localrun.chat.arrangement import Arrangement, arrangements
from localrun.chat.messages import Message, Notice
from localrun.chat.provenance import Marks, Span
from localrun.chat.reasoning import ReasoningFormat, detect, switch_variables
from localrun.chat.rendered import Beginning, Continuation, Prompt
from localrun.chat.telling import Change, Tools, strings, texts_of, told, told_tools, unchanged
from localrun.errors import TemplateError

THINK_IGNORED = Notice("think_ignored", "the model's chat template knows no reasoning: asking for it changes nothing")

CALLS_DROPPED = Notice("calls_dropped", "the model's chat template leaves out calls of tools in earlier answers")

_MAX_SOURCE = 1 << 20  # characters; the largest of 70 known templates has 17 thousand
_TYPED_PART = re.compile(r"""['"]type['"]: ['"]text['"]""")
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking", "thought")


class ChatTemplate:
    """One model's template. Thread-safe.

    `source` is the GGUF's `tokenizer.chat_template`; `bos_token` and `eos_token` are the written forms that the
    template may use. Raises `TemplateError` for a template that cannot be compiled, and for none at all.
    """

    def __init__(
        self,
        source: str | None,
        *,
        bos_token: str = "",
        eos_token: str = "",
        name: str = "the model",
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        if not source or not source.strip():
            raise TemplateError(
                f"{name} is a base model: it has no chat template",
                hint="use --raw to let it continue a text, or choose an instruction-tuned model",
            )
        if len(source) > _MAX_SOURCE:
            raise TemplateError(f"the chat template of {name} has {len(source)} characters, more than {_MAX_SOURCE}")
        self.source = source
        self.name = name
        self._special = {"bos_token": bos_token, "eos_token": eos_token}
        self._reasoning_key = next((key for key in _REASONING_KEYS if re.search(rf"\b{key}\b", source)), None)
        self._lock = threading.Lock()  # compiling and detecting happen once
        self._reasoning: tuple[ReasoningFormat | None] | None = None
        self._compile(clock)

    @property
    def reasoning(self) -> ReasoningFormat | None:
        """How this model writes its reasoning; None for a model that has no such form. Found at first use."""
        with self._lock:
            if self._reasoning is None:
                self._reasoning = (detect(self.source, self._probe),)
            return self._reasoning[0]

    @functools.cached_property
    def can_switch_thinking(self) -> bool:
        """Whether the template itself has a switch for `think`."""
        return self._asked(True) != self._asked(False)

    @functools.cached_property
    def thinks_by_default(self) -> bool:
        """Whether the model begins with reasoning when it is not told anything about it."""
        if self.reasoning is None or (self.can_switch_thinking and self._asked(None) == self._asked(False)):
            return False
        asked = self._asked(None) or ""
        return self.reasoning.is_open_at_end(asked) or (
            self.reasoning.is_written and not self.reasoning.ends_closed(asked)
        )

    def _asked(self, think: bool | None) -> str | None:
        return self._probe([{"role": "user", "content": "Hi"}], True, switch_variables(self.source, think))

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        think: bool | None = None,
        tools: Tools | None = None,
        prefill: Message | None = None,
        markup: Sequence[Span] = (),
        open_reasoning: bool = False,
        disguise: Change | None = None,
    ) -> Prompt:
        """Render a conversation.

        Messages that the template refuses or leaves out are told another way if there is one, with a notice.
        `prefill` is the beginning of the answer (an assistant message, its reasoning included), which the model goes on
        writing; the ranges `markup` of its content are the template's own text. `think` is told to the template; where
        it has no switch, an empty thinking block is written for False. `open_reasoning` begins the thinking block that
        the model would begin by itself (`thinks_by_default`), or that `think` asks for. `disguise` changes every text
        before the template sees it; then nothing is traced.
        Raises `TemplateError`.
        """
        variables = {"add_generation_prompt": add_generation_prompt, **switch_variables(self.source, think)}
        prompt = self._arrange(messages, tools or None, variables, disguise)
        if think and self.reasoning is None:
            prompt = replace(prompt, notices=(*prompt.notices, THINK_IGNORED))
        if not add_generation_prompt:
            return prompt
        change = disguise or unchanged
        begin = Beginning.of(prefill or Message("assistant", ""), markup, change)
        return self._begin_answer(prompt, think, begin, open_reasoning)

    def text(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """Render messages as the template wants them, with its own variables. Raises `TemplateError`."""
        from localrun.chat.limits import LimitExceededError, Meter
        from localrun.chat.sandbox import RefusalError

        values = {**self._special, "messages": [dict(message) for message in messages], **variables}
        parts, size = [], 0
        try:
            self._environment.meter = meter = Meter([values["messages"], values.get("tools")])
            for part in self._template.generate(values):
                size += len(part)
                meter.allow(size if size > meter.max_size else len(part))
                parts.append(part)
        except RefusalError as error:
            raise TemplateRefusalError(
                f"the chat template of {self.name} refuses this conversation: {_one_line(error)}{_line_of(error)}"
            ) from error
        except LimitExceededError as error:
            raise TemplateError(
                f"the chat template of {self.name} was stopped: {error}{_line_of(error)}",
                hint="a template that needs so much is broken or malicious; get the model from another source",
            ) from error
        except Exception as error:  # a template can raise whatever Python can
            raise TemplateFailureError(
                f"the chat template of {self.name} failed: {_one_line(error)}{_line_of(error)}"
            ) from error
        return "".join(parts)

    # Compiling

    def _compile(self, clock: Callable[[], datetime]) -> None:
        import jinja2

        from localrun.chat.sandbox import ChatEnvironment

        self._environment = ChatEnvironment(clock)
        try:
            self._template = self._environment.from_string(self.source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"the chat template of {self.name} is broken: {_one_line(error)} (line {error.lineno})"
            ) from error
        except (SyntaxError, RecursionError, MemoryError, ValueError, OverflowError) as error:
            # Python's own compiler, for what is nested too deeply
            raise TemplateError(f"the chat template of {self.name} cannot be compiled: {_one_line(error)}") from error

    # Rendering

    def _arrange(
        self, messages: Sequence[Message], tools: Tools | None, variables: Mapping[str, Any], disguise: Change | None
    ) -> Prompt:
        refused: TemplateError | None = None
        incomplete: Prompt | None = None
        # Some templates loop over the tools without asking whether there are any.
        for arrangement, offered in itertools.product(arrangements(messages), [tools] if tools else [None, ()]):
            try:
                prompt, missing = self._trace(arrangement, offered, variables, disguise)
            except (TemplateRefusalError, TemplateFailureError) as error:
                told_otherwise = arrangement.arguments_as_text or arrangement.short_ids  # then it may refuse just that
                if refused is None or (isinstance(error, TemplateRefusalError) and not told_otherwise):
                    refused = error  # what it still refuses when everything else was put right
                continue
            if not missing:
                return prompt
            incomplete = incomplete or replace(prompt, notices=(*prompt.notices, *missing))
        if incomplete is not None:
            return incomplete
        assert refused is not None
        raise refused

    def _trace(
        self, arrangement: Arrangement, tools: Tools | None, variables: Mapping[str, Any], disguise: Change | None
    ) -> tuple[Prompt, list[Notice]]:
        """Render with and without marks: the prompt, and what the template has left out."""

        def render(change: Change) -> str:
            try:
                told_messages = [
                    told(
                        message,
                        self._reasoning_key,
                        typed=arrangement.typed,
                        arguments_as_text=arrangement.arguments_as_text,
                        short_ids=arrangement.short_ids,
                        change=change,
                    )
                    for message in arrangement.messages
                ]
                offered = told_tools(tools, change)
            except RecursionError as error:
                raise TemplateError("a tool, or the arguments of a call, are nested too deeply") from error
            return self.text(told_messages, tools=offered, **variables)

        plain = render(disguise or unchanged)
        if arrangement.typed and _TYPED_PART.search(plain):
            raise TemplateFailureError(f"the chat template of {self.name} writes a list of parts as it is")
        if disguise is not None:
            return Prompt(plain, None, notices=arrangement.notices), []
        texts = [
            told(message, self._reasoning_key, short_ids=arrangement.short_ids) for message in arrangement.messages
        ]
        marks = Marks(strings([self.source, plain, texts, tools or ()]))
        try:
            marked = render(marks.around)
        except (TemplateRefusalError, TemplateFailureError):
            return Prompt(plain, None, notices=arrangement.notices), []
        missing = _left_out(arrangement.messages, marks.missing(marked), plain)
        return Prompt(plain, marks.locate(marked, plain), notices=arrangement.notices), missing

    def _probe(self, messages: Sequence[Mapping[str, Any]], generate: bool, variables: Mapping[str, Any]) -> str | None:
        asked = []
        for message in messages:
            reasoning = message.get("reasoning")
            rest = {key: value for key, value in message.items() if key != "reasoning"}
            asked.append(rest | ({self._reasoning_key: reasoning} if reasoning and self._reasoning_key else {}))
        try:
            return self.text(asked, add_generation_prompt=generate, tools=None, **variables)
        except TemplateError:
            return None

    def _begin_answer(self, prompt: Prompt, think: bool | None, prefill: Beginning, open_reasoning: bool) -> Prompt:
        form = self.reasoning
        begun = Continuation(prompt)
        in_reasoning = form is not None and form.is_open_at_end(prompt.text)
        if form is not None:
            opens = (
                open_reasoning
                and not form.ends_closed(prompt.text)
                and (think or (think is None and self.thinks_by_default))
            )
            if prefill.reasoning or opens:
                begun.add("" if in_reasoning else form.opening)
                begun.add(prefill.reasoning, owned=True)
                in_reasoning = True
            elif (
                think is False
                and not in_reasoning
                and not self.can_switch_thinking
                and not form.ends_closed(prompt.text)
                and not (prefill.has_header and form.answer_header)
            ):
                begun.add(form.skipping)
            if in_reasoning and (prefill.content or (think is False and not prefill.reasoning)):
                begun.add(form.closing.removesuffix(form.answer_header) if prefill.has_header else form.closing)
                in_reasoning = False
            elif prefill.content and not prefill.has_header and not form.ends_closed(begun.text):
                begun.add(form.answer_header)
        for text, own in prefill.content:
            begun.add(text, owned=not own)
        return begun.prompt(in_reasoning)


class TemplateRefusalError(TemplateError):
    """The template refused the conversation in its own words."""


class TemplateFailureError(TemplateError):
    """The template raised something that it did not mean to."""


def _left_out(messages: Sequence[Message], unseen: set[str], plain: str) -> list[Notice]:
    """What is nowhere in the prompt: messages whose text is not, and calls of which some text is not."""
    notices = []
    if roles := sorted({m.role for m in messages if m.content in unseen and m.content.strip() not in plain}):
        text = f"the model's chat template leaves out a message of role {' and '.join(roles)}"
        notices.append(Notice("message_dropped", text))
    if any(not unseen.isdisjoint(texts_of(call)) for m in messages for call in m.tool_calls):
        notices.append(CALLS_DROPPED)
    return notices


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _line_of(error: BaseException) -> str:
    """Where in the template it happened; Jinja rewrites its frames to the template's lines."""
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "<template>":
            line = frame.tb_lineno
        frame = frame.tb_next
    return "" if line is None else f" (line {line})"
