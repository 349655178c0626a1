"""The Jinja environment in which chat templates run: transformers' dialect, without reach and with limits.

Knows Jinja; knows no messages and no models. Invariant: a template can read the values it is given, and nothing else:
no attributes of Python's own, no files, no changes to the values, no unbounded work. Every operation that can make
something large (an operator, a filter, a method, a loop, a captured block) goes through the meter of the running
rendering first.
"""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from localrun.chat.limits import LimitExceededError, Meter

# Jinja's own filters that a chat template has a use for. The others write HTML, depend on chance, or make something
# large out of one number.
# fmt: off
_FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "indent", "int",
    "items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse",
    "round", "safe", "select", "selectattr", "sort", "string", "title", "trim", "truncate", "unique", "upper",
)
# fmt: on
_FILTERS_THAT_LOOK = ("count", "d", "default", "first", "last", "length", "safe")  # they take no longer for more
_NUMBERS_OF_ANY_SIZE = ("abs", "d", "default", "float", "int", "max", "min", "round", "string")
_UNSAFE_STR_METHODS = ("encode", "expandtabs", "format_map", "maketrans", "translate")
_MAX_ARGUMENT = 1000  # widths, indents, counts
_MAX_BITS = 4096  # of an integer


class RefusalError(jinja2.TemplateError):
    """The template itself refuses the messages, through `raise_exception`."""


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """One environment for one template. `metered` sets the budget of a rendering; each thread has its own.

    Whitespace control, helpers and JSON form are those of `transformers`' `apply_chat_template`, which model authors
    write their templates against.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, clock: Callable[[], datetime] = datetime.now) -> None:
        # Not optimized: the optimizer evaluates constant expressions while compiling, before there is a budget.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationBlock, "jinja2.ext.loopcontrols"],
            optimized=False,
            cache_size=0,
        )
        self._local = threading.local()
        self.filters = {name: self._guarded(name, self.filters[name]) for name in _FILTERS}
        self.filters |= {
            "tojson": self._guarded("tojson", self._to_json),
            "from_json": self._guarded("from_json", json.loads),
            "join": self._join,
            "_metered": self._metered_loop,
            "_joined": self._concatenate,
            "_weighed": self._weighed,
        }
        self.globals = {
            "range": self.globals["range"],
            "dict": dict,
            "namespace": _PlainNamespace,
            "raise_exception": _refuse,
            "strftime_now": lambda form: _format_time(clock(), form),
        }

    @property
    def meter(self) -> Meter:
        meter: Meter = self._local.meter
        return meter

    @meter.setter
    def meter(self, meter: Meter) -> None:
        self._local.meter = meter

    # What Jinja calls while it compiles and renders

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Instrument().visit(tree)
        return tree

    def concat(self, parts: Iterable[str]) -> str:
        parts = list(parts)
        self.meter.allow(sum(map(len, parts)))
        return "".join(parts)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """Refuse at once: Jinja's own answer prints as an empty text as long as nothing is done with it."""
        kind = type(obj).__name__
        raise jinja2.exceptions.SecurityError(f"access to attribute {attribute!r} of a {kind} is not allowed")

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr in _UNSAFE_STR_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(
        __self,
        __context: jinja2.runtime.Context,
        __obj: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        meter = __self.meter
        meter.spend(20)
        if not isinstance(__obj, LoopContext):
            for value in (*args, *kwargs.values()):
                meter.check(value)
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str | list | tuple | dict | int):
            _check_method(meter, owner, __obj.__name__, args)
            result = super().call(__context, __obj, *args, **kwargs)
            meter.check(result)
            return result
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        meter = self.meter
        if operator == "*":
            if isinstance(left, int) and isinstance(right, int):
                _check_bits(left.bit_length() + right.bit_length())
            elif isinstance(left, int):
                meter.allow(left * meter.weigh(right))
            elif isinstance(right, int):
                meter.allow(right * meter.weigh(left))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() * right)
        elif operator == "%" and isinstance(left, str):
            _check_percent(meter, left, right)
        elif operator == "+" and isinstance(left, str) and isinstance(right, str):
            meter.allow(len(left) + len(right))
        result = super().call_binop(context, operator, left, right)
        if not isinstance(result, str):
            meter.check(result)
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        owner = getattr(value, "__self__", None)
        if not isinstance(owner, str) or getattr(value, "__name__", "") != "format":
            return None
        formatter = _BoundedFormatter(self)
        return lambda *args, **kwargs: formatter.vformat(owner, args, kwargs)

    # Filters

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            meter = self.meter
            values = [*args, *kwargs.values()]
            meter.spend(5)
            for value in values:
                if isinstance(value, str | list | tuple | dict) and name not in _FILTERS_THAT_LOOK:
                    meter.spend(len(value) // 64 if isinstance(value, str) else 4 * len(value))
            for value in values[1:] if name == "tojson" else values:  # a number may be written, but indents are bounded
                if isinstance(value, int) and abs(value) > _MAX_ARGUMENT and name not in _NUMBERS_OF_ANY_SIZE:
                    raise LimitExceededError(f"the filter {name!r} is given the number {value}")
            if name == "replace":
                _check_replacement(meter, [value for value in values if isinstance(value, str)])
            elif name == "indent" and values and isinstance(values[0], str):
                widths = [
                    value if isinstance(value, int) else len(value)
                    for value in values[1:]
                    if isinstance(value, str | int)
                ]
                meter.allow(len(values[0]) + (values[0].count("\n") + 1) * max(4, *widths, 0))
            elif name == "round" and any(isinstance(value, int) and value > 300 for value in values[1:]):
                raise LimitExceededError("the filter 'round' is given a precision of more than 300")
            result = function(*args, **kwargs)
            if isinstance(result, Iterator):
                result = list(self._metered_loop(result))
            meter.check(result)
            return result

        return guarded

    def _join(self, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
        items = list(self._metered_loop(value))
        if attribute is not None:
            items = [self.getitem(item, attribute) for item in items]
        self.meter.allow(self.meter.weigh(items) + len(str(d)) * len(items))
        return str(d).join(map(str, items))

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """JSON as `transformers` writes it: not escaped for HTML, and not sorted, as Jinja's own filter would."""
        encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        if indent is None:
            return encoder.encode(value)
        # Every item is indented by its depth, so the size cannot be known before.
        parts, size = [], 0
        for part in encoder.iterencode(value):
            size += len(part)
            self.meter.allow(size if size > self.meter.max_size else len(part))
            parts.append(part)
        return "".join(parts)

    def _metered_loop(self, value: Iterable[Any]) -> Iterator[Any] | Iterable[Any]:
        if isinstance(value, jinja2.Undefined):
            return value  # which raises, or is empty, as Jinja has it
        return self._count(iter(value))

    def _count(self, iterator: Iterator[Any]) -> Iterator[Any]:
        meter = self.meter
        n_steps = 0
        for item in iterator:
            n_steps += 1
            if n_steps == 16:  # the meter costs as much as a short loop body
                meter.spend(n_steps)
                n_steps = 0
            yield item
        meter.spend(n_steps)

    def _concatenate(self, values: list[Any]) -> str:
        """The `~` operator."""
        return "".join(map(str, self._weighed(values)))

    def _weighed(self, value: Any) -> Any:
        """A list, tuple or mapping that the template wrote; it cannot be changed later, so it is weighed once."""
        self.meter.check(value)
        return value


class GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}`, which marks assistant text for training: its content is rendered."""

    tags = {"generation"}  # noqa: RUF012 - as in the base class

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _PlainNamespace(Namespace):
    """A namespace that is written as a name only: it may hold itself, or other namespaces many times."""

    def __repr__(self) -> str:
        return "<Namespace>"


class _Instrument(NodeTransformer):
    """Leads loops, `~` and container literals through the environment's accounting filters."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = _filtered("_metered", node.iter)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        self.generic_visit(node)
        return _filtered("_joined", nodes.List(node.nodes, lineno=node.lineno, environment=node.environment))

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        self.generic_visit(node)
        return _filtered("_weighed", node) if node.items else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        self.generic_visit(node)
        return _filtered("_weighed", node) if node.items else node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        self.generic_visit(node)
        return _filtered("_weighed", node) if node.ctx == "load" and node.items else node


class _BoundedFormatter(SandboxedFormatter):
    def __init__(self, environment: ChatEnvironment) -> None:
        super().__init__(environment)
        self._meter = environment.meter

    def format_field(self, value: Any, format_spec: str) -> Any:
        if re.search(r"\d{4}", format_spec):
            raise LimitExceededError(f"a text is formatted with {format_spec[:20]!r}")
        text = super().format_field(value, format_spec)
        self._meter.check(text)
        return text


def _filtered(name: str, node: nodes.Node) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno, environment=node.environment)


def _refuse(message: object) -> NoReturn:
    raise RefusalError(str(message))


def _format_time(now: datetime, form: str) -> str:
    if len(form) > 100:
        raise LimitExceededError(f"a time format has {len(form)} characters")
    return now.strftime(form)


def _check_bits(n_bits: int) -> None:
    if n_bits > _MAX_BITS:
        raise LimitExceededError(f"it computes a number of more than {_MAX_BITS} bits")


def _check_replacement(meter: Meter, texts: list[str]) -> None:
    """`texts`: where, what, by what. The new text can come in at every character."""
    if len(texts) == 3:
        text, old, new = texts
        meter.allow(len(text) + text.count(old) * len(new))


def _check_percent(meter: Meter, form: str, values: Any) -> None:
    if re.search(r"\d{4}|\*", form):
        raise LimitExceededError(f"a text is formatted with {form[:20]!r}")
    meter.allow(len(form) + form.count("%") * meter.weigh(values))


def _check_method(meter: Meter, owner: Any, name: str, args: tuple[Any, ...]) -> None:
    """Bound what a method of a built-in type may make. Its arguments are accounted for already."""
    meter.check(owner)
    for value in args:
        if isinstance(value, int) and abs(value) > _MAX_ARGUMENT * 1000:
            raise LimitExceededError(f"the method {name!r} is given the number {value}")
    if isinstance(owner, str) and name == "replace":
        _check_replacement(meter, [owner, *(value for value in args if isinstance(value, str))])
    elif isinstance(owner, str) and name == "join" and args and isinstance(args[0], Sized):
        meter.allow(meter.weigh(args[0]) + len(args[0]) * len(owner))
