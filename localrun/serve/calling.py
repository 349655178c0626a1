"""One call of a tool, asked of the engine in steps: which tool, then its arguments.

Knows the form of a template's calls and the schemas of the tools; knows no engine. What the form says is put into the
answer as it stands there; the model only chooses a name, keys and values, each under a constraint. Invariant: what is
told of a call, joined, is its name and a JSON object that is valid by the tool's schema.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from localrun.params import ConstraintSpec
from localrun.responder import Result
from localrun.serve.marked_text import first_piece
from localrun.serve.tool_arguments import Parameter, of_object, parameters_of
from localrun.serve.tool_form import KeyedArguments, ToolForm, filled

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallBegun:
    """The model calls a tool."""

    number: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments of a call."""

    number: int
    text: str


def _unseen(_text: str) -> None:
    """For what is no part of the answer."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to ask the engine next, behind what has been said."""

    constraint: ConstraintSpec | None = None
    tags: tuple[str, ...] = ()
    """Texts that end the step."""
    show: Callable[[str], None] = _unseen
    """Takes the text as it comes."""
    is_answer: bool = False
    """It may hold reasoning, and ends as the request wants it."""


Steps = Generator[Step, Result, None]


@dataclass(slots=True)
class Said:
    """The answer so far, of which the form's own texts are marked."""

    text: str = ""
    markup: list[tuple[int, int]] = field(default_factory=list)

    def add(self, text: str) -> None:
        """What the model said."""
        self.text += text

    def form(self, text: str) -> None:
        """What the form says."""
        if text:
            start, self.text = len(self.text), self.text + text
            self.markup.append((start, len(self.text)))


def new_id() -> str:
    """An id of a call, as OpenAI's look."""
    return f"call_{os.urandom(12).hex()}"


def short_id(id_: str) -> str:
    """An id inside a call: nine letters and digits, as Mistral's templates want them."""
    return id_[-9:]


class CallWriter:
    """Asks for calls of some functions in one form."""

    def __init__(
        self,
        form: ToolForm,
        functions: Sequence[Mapping[str, Any]],
        said: Said,
        tell: Callable[[CallBegun | CallArguments], None],
    ) -> None:
        self._form = form
        self._functions = functions
        self._said = said
        self._tell = tell

    def call(self, number: int, id_: str) -> Steps:
        """All steps of one call, whose opening stands already."""
        form, said, short = self._form, self._said, short_id(id_)
        function = yield from self._choose(number, short)
        name = function["name"]
        self._tell(CallBegun(number, id_, name))
        said.add(form.written_name(name))
        said.form(form.after_name(number, short, name))
        if form.keyed is None:
            constraint = ConstraintSpec("json_schema", json.dumps(of_object(function["parameters"])), "tools")
            arguments = yield Step(constraint, show=self._teller(number))
            said.add(arguments.text)
        else:
            yield from self._keyed(form.keyed, number, function)
        said.form(form.ending(number, short, name))

    def _choose(self, number: int, short: str) -> Generator[Step, Result, Mapping[str, Any]]:
        if len(self._functions) == 1:
            return self._functions[0]
        options = {}
        for function in self._functions:
            written = self._form.written_name(function["name"])
            for follower in self._followers(function, number, short):
                options[written + follower] = function
        return (yield from choice(options))

    def _followers(self, function: Mapping[str, Any], number: int, short: str) -> list[str]:
        """What may stand behind a name: it tells a name from a longer one that begins with it."""
        form, name = self._form, function["name"]
        if mid := form.after_name(number, short, name):
            return [first_piece(mid)]
        assert form.keyed is not None, "an object of arguments is never written right behind a name"
        parameters = parameters_of(function["parameters"])
        can_end = not any(parameter.required for parameter in parameters)
        texts = [form.keyed.key_open] if parameters else []
        return [first_piece(text) for text in [*texts, *([form.ending(number, short, name)] if can_end else [])]]

    def _teller(self, number: int) -> Callable[[str], None]:
        return lambda text: self._tell(CallArguments(number, text)) if text else None

    # Arguments that are written one by one

    def _keyed(self, form: KeyedArguments, number: int, function: Mapping[str, Any]) -> Steps:
        left = list(parameters_of(function["parameters"]))
        tell, ending = self._teller(number), first_piece(self._form.ending(number, "", function["name"]))
        if not left:  # a call takes one step at least
            yield _step_of((ending,))
        opens = "{"
        while left:
            options: dict[str, Parameter | None] = {
                self._before_key(form, opens) + p.key + first_piece(_wrap(form, p)[0]): p for p in left
            }
            if not any(parameter.required for parameter in left):
                options[ending] = None
            parameter = yield from choice(options)
            if parameter is None:
                break
            left.remove(parameter)
            self._said.form(self._before_key(form, opens))
            self._said.add(parameter.key)
            tell(f"{opens}{json.dumps(parameter.key, ensure_ascii=False)}: ")
            opens = ", "
            before, after = _wrap(form, parameter)
            self._said.form(before)
            self._said.add((yield from self._value(form, parameter, after, ending, tell)))
            self._said.form(after)
        tell("{}" if opens == "{" else "}")

    def _before_key(self, form: KeyedArguments, opens: str) -> str:
        return form.key_open if opens == "{" else form.join + form.key_open

    def _value(
        self, form: KeyedArguments, parameter: Parameter, after: str, ending: str, tell: Callable[[str], None]
    ) -> Generator[Step, Result, str]:
        """Ask for a value and tell it as JSON; returns it as it is written."""
        if parameter.choices and not form.quoted:
            written = {_written(value) + first_piece(after): value for value in reversed(parameter.choices)}
            if len(written) == 1:
                yield _step_of(tuple(written))
            value = yield from choice(written)
            tell(json.dumps(value, ensure_ascii=False))
            return _written(value)
        if parameter.is_free and not form.quoted:
            ends = tuple(dict.fromkeys(text for text in (after.rstrip(), after.strip()) if text))
            if parameter.types != {"string"} or form.cdata:
                result = yield Step(tags=ends)
                tell(json.dumps(parameter.read(form.read_text(result.text)), ensure_ascii=False))
                return result.text
            tell('"')
            result = yield Step(tags=ends, show=lambda text: tell(json.dumps(text, ensure_ascii=False)[1:-1]))
            tell('"')
            return result.text
        if parameter.may_be_number:  # only what follows tells its end
            followers = tuple(first_piece(text) for text in ([after] if after else [form.join, ending]) if text)
            result = yield Step(replace(parameter.schema, followers=followers))
            value, end = json.JSONDecoder().raw_decode(result.text)
            text = result.text[:end]
            tell(text)
        else:
            text = (yield Step(parameter.schema, show=tell)).text
            value = json.loads(text)
        return value if isinstance(value, str) and not form.quoted else text


def choice(options: Mapping[str, T]) -> Generator[Step, Result, T]:
    """Ask which of these texts comes next; returns what it stands for.

    Only the last one may begin with a token that ends the generation: then nothing has come.
    """
    texts = list(options)
    if len(texts) == 1:
        return options[texts[0]]
    result = yield _step_of(tuple(texts))
    if not result.text:
        return options[texts[-1]]
    # A text is cut at a token that ends the generation.
    return options[min((text for text in texts if text.startswith(result.text)), key=len)]


def _step_of(texts: tuple[str, ...]) -> Step:
    return Step(ConstraintSpec("choice", texts, "tools", special=True))


def _wrap(form: KeyedArguments, parameter: Parameter) -> tuple[str, str]:
    """What stands between a key and its value, and behind the value."""
    as_text = parameter.is_text and not form.quoted
    opens, closes = (form.text_open, form.text_close) if as_text else (form.json_open, form.json_close)
    return filled(opens, key=parameter.key), filled(closes, key=parameter.key)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
