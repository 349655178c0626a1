"""GBNF: faults are named where they are, and no grammar harms the process."""

from __future__ import annotations

import pytest

from localrun.constraint.gbnf import compile_gbnf
from localrun.errors import ConstraintError


def error_of(grammar: str) -> ConstraintError:
    with pytest.raises(ConstraintError) as caught:
        compile_gbnf(grammar, "g.gbnf")
    assert "\n" not in caught.value.message
    return caught.value


def test_an_error_shows_file_line_column_and_a_caret() -> None:
    error = error_of('root ::= a\na ::= "x" "y\\q"\n')
    assert str(error).startswith(r"g.gbnf:2:13: unknown escape '\q'")
    assert error.hint is not None
    assert error.hint.endswith('\n  a ::= "x" "y\\q"\n              ^')


def test_the_caret_of_a_long_line_stays_in_sight() -> None:
    error = error_of("root ::= " + '"abc" ' * 500 + "oops)")
    assert error.hint is not None
    line, caret = error.hint.splitlines()[-2:]
    assert len(line) < 90
    assert line[caret.index("^")] == ")"


@pytest.mark.parametrize(
    ("grammar", "problem"),
    [
        ("", "the grammar is empty"),
        ("# nothing\n", "the grammar is empty"),
        ('foo ::= "x"', "no rule 'root'"),
        ("root ::= bar", "'bar' is not defined"),
        ('root ::= "a', "this string is never closed"),
        ("root ::= [abc", "this '[' is never closed"),
        ('root ::= ("a"', "this '(' is never closed"),
        ("root ::= <|im_end|", "this '<' is never closed"),
        ('root ::= "a"{5,2}', "at least 5 and at most 2"),
        ("root ::= [z-a]", "upside down"),
        (r'root ::= "\U00110000"', "no Unicode character"),
        ('root ::= "a" root', "no finite text matches"),
        ("root ::= a\na ::= b\nb ::= a", "left recursion: a -> b -> a"),
        ('root ::= "a\0"', "NUL"),
        ('root ::= "a"{100001}', "more than 100000"),
        ('root ::= "a"{0,99999999999999999999999999}', "more than 100000"),
        ('root ::= "a"' + "*" * 60_000, "repetitions of one element"),
        ("root ::= " + "(" * 60_000, "nested deeper than"),
        ("root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000, "nested deeper than"),
        ("root ::= " + "[" * 60_000, "never closed"),
    ],
)
def test_a_fault_is_named(grammar: str, problem: str) -> None:
    assert problem in str(error_of(grammar))


def test_a_rule_on_a_new_line_with_a_bar_gets_advice() -> None:
    assert "end the line before with '|'" in str(error_of('root ::= "a"\n| "b"').hint)


def test_a_long_chain_of_rules_is_run_or_refused() -> None:
    def chain(length: int, body: str) -> str:
        rules = [f"r{i} ::= {body.format(f'r{i + 1}')}" for i in range(length)]
        return "\n".join(["root ::= r0", *rules, f'r{length} ::= "x"'])

    assert compile_gbnf(chain(120, '"a" {} "b" | "c"'), "g").acceptor.accepts("aaxbb") is False
    assert compile_gbnf(chain(300, "{}"), "g").acceptor.accepts("x")
    assert "deep" in str(error_of(chain(5000, '"a" {} "b" root? | "c"')))
    assert "deep" in str(error_of(chain(5000, "{}")))


def test_grammars_that_double_with_every_rule_stay_small() -> None:
    rules = [f"r{i} ::= r{i + 1} r{i + 1}?" for i in range(40)]
    grammar = "\n".join(["root ::= r0", *rules, 'r40 ::= "x"'])
    assert compile_gbnf(grammar, "g").acceptor.accepts("xxx")


def test_large_repetitions_are_counted_exactly() -> None:
    acceptor = compile_gbnf("root ::= [a]{3,100000}", "g").acceptor
    assert not acceptor.accepts("aa")
    assert acceptor.accepts("a" * 5000)


def test_nullable_repetitions_run() -> None:
    for grammar in ('root ::= ("a"*)*', 'root ::= ("" | "a")*', 'root ::= (("a"?)*)+'):
        acceptor = compile_gbnf(grammar, "g").acceptor
        assert acceptor.accepts("")
        assert acceptor.accepts("aaa")
        assert not acceptor.accepts("ab")


def test_a_rule_that_repeats_itself_at_its_end_may_repeat_thousands_of_times() -> None:
    acceptor = compile_gbnf('root ::= "[" list "]"\nlist ::= item list | item\nitem ::= [a-z] "," | root', "g").acceptor
    assert acceptor.accepts("[" + "a," * 5000 + "]")


def test_an_escape_of_a_line_end_is_told_on_one_line() -> None:
    with pytest.raises(ConstraintError) as caught:
        compile_gbnf('root ::= "\\\n"', "g")
    assert caught.value.message == "g:1:11: unknown escape '\\U+000A'"
