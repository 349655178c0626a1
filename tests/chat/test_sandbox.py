"""A chat template comes with a downloaded model: it can neither reach out nor run on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from localrun.chat.limits import LimitExceededError, Meter
from localrun.chat.template import ChatTemplate
from localrun.errors import TemplateError

NS = "{% set ns = namespace(x='ab', l=[1], n=3, d={}) %}"
MEGABYTE = "{% set a = 'a' * 1000000 %}"

REACHING_OUT = {
    "globals": """{{ lipsum.__globals__["os"].popen("touch PATH").read() }}""",
    "class": "{{ ''.__class__ }}",
    "mro": "{{ ''.__class__.__mro__ }}",
    "item": "{{ ''['__class__'] }}",
    "mapped": "{{ messages | map(attribute='__class__') | list }}",
    "selected": "{{ messages | selectattr('__class__') | list }}",
    "sorted": "{{ messages | sort(attribute='__class__') }}",
    "joined": "{{ messages | join(',', attribute='__class__') }}",
    "attr filter": "{{ '' | attr('__class__') }}",
    "format": "{{ '{0.__class__}'.format(1) }}",
    "format_map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "function": "{{ namespace.__init__.__globals__ }}",
    "change list": "{{ messages.append(1) }}",
    "change message": "{{ messages[0].pop('role') }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}{{ os }}",
    "bytes": "{{ 'a'.encode() }}",
}

RUNNING_ON = {
    "range": "{% for i in range(10**9) %}x{% endfor %}",
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "nested output": "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "large output": "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
    "repeated text": "{{ 'a' * 10**9 }}",
    "repeated list": "{{ 10**9 * [1] }}",
    "negative repeats": "{% for i in range(9) %}{{ 'a' * -1000000000 }}{% endfor %}{{ 'a' * 10**9 }}",
    "power": "{{ 10 ** (10 ** 10) }}",
    "squares": NS + "{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "joined text": NS + "{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "added text": NS + "{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "captured text": NS
    + "{% for i in range(99) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
    "nested lists": NS + "{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
    "nested tuples": NS + "{% for i in range(99) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: 1} }}",
    "nested mappings": NS
    + "{% for i in range(99) %}{% set ns.d = {'a': ns.d, 'b': ns.d} %}{% endfor %}{{ ns.d | tojson }}",
    "nested calls": NS + "{% for i in range(99) %}{% set ns.d = dict(a=ns.d, b=ns.d) %}{% endfor %}{{ ns.d | tojson }}",
    "varargs": "{% macro m(n) %}{% if n %}{{ m(n - 1, varargs, varargs) }}{% endif %}{% endmacro %}{{ m(60, 1) }}",
    "added lists": NS + "{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    "padding": "{{ 'a'.ljust(10**9) }}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (1000000000, 1) }}",
    "percent text": MEGABYTE + "{{ ('%s' * 1000) % ((a,) * 1000) }}",
    "format width": "{{ '{:1000000000d}'.format(1) }}",
    "format inner width": "{{ '{:{w}}'.format(1, w=1000000000) }}",
    "format text": MEGABYTE + "{{ ('{0}' * 100000).format(a) }}",
    "replace": MEGABYTE + "{{ a.replace('a', a) }}",
    "replace filter": MEGABYTE + "{{ a | replace('a', a) }}",
    "join": MEGABYTE + "{{ a.join(a) }}",
    "join filter": MEGABYTE + "{{ range(99999) | join(a) }}",
    "indent lines": "{% set a = 'a\n' * 1000000 %}{{ a | indent(1000) }}",
    "indent first": "{% set a = '\n' * 4000000 %}{{ a | indent(1000, first=True) }}",
    "deep tuples": NS + "{% for i in range(99999) %}{% set ns.l = (ns.l,) %}{% endfor %}{{ {ns.l: 1} }}",
    "deep lists": NS + "{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l == ns.l }}",
    "splitting": MEGABYTE + "{% for i in range(99) %}{% set ns = (a * 4).split('a') %}{% endfor %}",
    "indent width": "{{ 'a\nb' | indent(10**9) }}",
    "json indent": "{{ [1] | tojson(indent=10**9) }}",
    "integer bytes": "{{ (1).to_bytes(10**9, 'big') }}",
    "precision": "{{ 1.5 | round(10**9, 'ceil') }}",
    "many lists": MEGABYTE + "{{ [a] * 100000 }}",
    "macro tree": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "macro without end": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "loop without end": "{% for i in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "block without end": "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "time format": "{{ strftime_now('%c' * 100000) }}",
    "sorting": "{% for i in range(9999) %}{% set x = range(99999) | list | sort %}{% endfor %}",
}

TOO_DEEP = {
    "brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "loops": "{% for a in [1] %}" * 60 + "{% endfor %}" * 60,
    "conditions": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "size": "x" * 2_000_000,
}


def render(source: str) -> str:
    return ChatTemplate(source, name="evil").text([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("source", REACHING_OUT.values(), ids=REACHING_OUT.keys())
def test_a_template_that_reaches_out_is_refused_and_does_nothing(source: str, tmp_path: Path) -> None:
    target = tmp_path / "pwned"
    with pytest.raises(TemplateError, match=r"the chat template of evil"):
        render(source.replace("PATH", str(target)))
    assert not target.exists()


@pytest.mark.parametrize("source", RUNNING_ON.values(), ids=RUNNING_ON.keys())
def test_a_template_that_runs_on_is_stopped(source: str) -> None:
    with pytest.raises(TemplateError, match=r"the chat template of evil (was stopped|failed)") as caught:
        render(source)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("source", TOO_DEEP.values(), ids=TOO_DEEP.keys())
def test_a_template_that_is_too_deep_or_too_long_is_not_compiled(source: str) -> None:
    with pytest.raises(TemplateError, match="the chat template of evil"):
        render(source)


def test_a_template_is_stopped_in_any_thread() -> None:
    caught: list[TemplateError] = []

    def work() -> None:
        try:
            render(RUNNING_ON["nested loops"])
        except TemplateError as error:
            caught.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(caught) == 2


def test_one_compiled_template_renders_in_many_threads_at_once() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content ~ '!' }}{% endfor %}")
    results: dict[int, str] = {}

    def work(n: int) -> None:
        for _ in range(50):
            results[n] = template.text([{"role": "user", "content": str(n)}] * 20)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: f"{n}!" * 20 for n in range(4)}


def test_a_namespace_that_holds_itself_can_be_printed() -> None:
    assert render(NS + "{% set ns.l = [ns, ns] %}{{ ns.l }}") == "[<Namespace>, <Namespace>]"


def test_a_long_conversation_is_within_the_limits() -> None:
    template = ChatTemplate(
        "{% for m in messages %}{% if messages | length > 1 %}{{ m.content | trim + '\n' }}{% endif %}{% endfor %}"
    )
    text = template.text([{"role": "user", "content": "x" * 2000}] * 2000)
    assert len(text) == 2000 * 2001


def test_a_value_that_holds_itself_many_times_is_weighed_as_it_would_be_written() -> None:
    meter = Meter([])
    value: list[object] = ["x" * 1000]
    for _ in range(4):
        value = [value, value]
    assert meter.weigh(value) >= 16 * 1000
    for _ in range(40):
        value = [value, value]
    with pytest.raises(LimitExceededError):
        meter.check(value)


def test_what_is_given_weighs_as_much_as_what_is_written() -> None:
    given = [{"role": "user", "content": "x" * 1000}, ["a", {"b": "c"}]]
    assert Meter([given]).weigh(given) == Meter([]).weigh(given)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 'a' | upper ~ 1 }}", "A1"),
        ("{{ {'b': '<é>', 'a': 1} | tojson }}", '{"b": "<é>", "a": 1}'),
        ("{{ 70417 | tojson }}", "70417"),
        ("{{ [1, 2] | tojson(indent=2) }}", "[\n  1,\n  2\n]"),
        ("{{ {'a': 1} | tojson(separators=(',', ':')) }}", '{"a":1}'),
        ("{{ '{\"a\": [1]}' | from_json }}", "{'a': [1]}"),
        ("{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "0234"),
        ("{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("a{% generation %}b{{ 1 }}{% endgeneration %}c", "ab1c"),
        ("{{ ', '.join(['a', 'b']) }}", "a, b"),
        ("{{ ['a', 'b'] | join(', ') }}", "a, b"),
        ("{{ [{'k': 'a'}, {'k': 'b'}] | map(attribute='k') | join }}", "ab"),
        ("{{ '{}-{x}'.format(1, x=2) }}{{ '%s|%d' % ('a', 3) }}", "1-2a|3"),
        ("{% for k, v in {'a': 1} | dictsort %}{{ k }}{{ v }}{{ loop.last }}{{ loop.length }}{% endfor %}", "a1True1"),
        ("{% for x in nothing %}x{% else %}none{% endfor %}", "none"),
        ("  {% if true %}\n  x\n  {% endif %}\ny", "  x\ny"),
        ("{{ [1, 2] + [3] }}{{ [0] * 2 }}{{ 7 % 4 }}{{ 2 ** 3 }}", "[1, 2, 3][0, 0]38"),
        ("{% set ns = namespace(a=1) %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}", "4"),
        ("{{ messages[0].content }}{{ messages[0]['role'] }}{{ messages[0].nothing }}", "hiuser"),
    ],
)  # fmt: skip
def test_the_helpers_that_templates_are_written_for_work(source: str, text: str) -> None:
    assert render(source) == text
