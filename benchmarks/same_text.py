"""How often a greedy answer is another one because of what was cached, or of who ran beside it.

    python -m benchmarks.same_text MODEL.gguf [--prompts 40] [--tokens 48]

For each prompt, the answer of a fresh engine without a cache is compared with the answer after an earlier prompt that
begins alike (in memory, and from disk in a new process), with the next turn of a conversation, whose history was
generated and not read, and with the answer of a row among eight. Prints how many texts are equal. The first two are
promised to be all of them; the others depend on near ties.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from localrun.catalog import ModelFile
from localrun.local import LocalResponder
from localrun.params import EngineParams, GenerationParams, SamplingParams
from localrun.responder import Done, Request

GREEDY = SamplingParams(temperature=0)
_TOPICS = "a lighthouse|the first train|a lost letter|bread|the number seven|winter|a small dog|music|the sea|glass"
_FORMS = "Tell me about {}.|Write two sentences on {}.|What does one need to know of {}?|List three things on {}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=48)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOCALRUN_HOME"] = folder
        asked = prompts(a.prompts)
        cold = [cold_answer(a.model, prompt, a.tokens) for prompt in asked]
        with closing(opened(a.model)) as warm:
            in_memory = [answer(warm, prompt, a.tokens) for prompt in asked]
        from_disk = []
        for prompt in asked:
            with closing(opened(a.model, cache=True)) as fresh:
                from_disk.append(answer(fresh, prompt, a.tokens))
        report("after another prompt, in memory", in_memory, cold)
        report("after another prompt, from disk", from_disk, cold)
        turns = [f"{prompt}{text}\nAnd what else?" for prompt, text in zip(asked, cold, strict=True)]
        cold_turns = [cold_answer(a.model, turn, a.tokens) for turn in turns]
        report(
            "the next turn of a conversation",
            [next_turn(a.model, *two, a.tokens) for two in zip(asked, turns, strict=True)],
            cold_turns,
        )
        report("a row among eight", among_eight(a.model, asked, a.tokens), cold)


def prompts(n: int) -> list[str]:
    """Prompts of 30 to 700 tokens, which begin alike in part."""
    topics, forms = _TOPICS.split("|"), _FORMS.split("|")
    paragraph = "The archive holds letters, maps and lists of goods, each with the day on which it was written. "
    return [
        paragraph * (1 + 7 * (i % 5)) + forms[i % len(forms)].format(topics[(i // 4) % len(topics)]) + "\n"
        for i in range(n)
    ]


def opened(model: Path, *, cache: bool = False, n_parallel: int = 1) -> LocalResponder:
    """A fresh engine, with all its memory taken at once."""
    params = EngineParams(n_ctx=2048, cache=cache, n_parallel=n_parallel, threads=os.cpu_count())
    responder = LocalResponder(ModelFile(model, model.stem, "file"), params)
    responder.reserve()
    return responder


def request(prompt: str, n: int) -> Request:
    return Request(GenerationParams(sampling=GREEDY, max_tokens=n), raw=prompt.encode())


def answer(responder: LocalResponder, prompt: str, n: int) -> str:
    """The text of one answer."""
    *_, last = responder.respond(request(prompt, n))
    assert isinstance(last, Done)
    return last.result.text


def cold_answer(model: Path, prompt: str, n: int) -> str:
    """The text of one answer by an engine that has seen nothing."""
    with closing(opened(model)) as responder:
        return answer(responder, prompt, n)


def next_turn(model: Path, prompt: str, turn: str, n: int) -> str:
    """The answer to a second turn, whose history the engine has generated itself."""
    with closing(opened(model)) as responder:
        answer(responder, prompt, n)
        return answer(responder, turn, n)


def among_eight(model: Path, asked: Sequence[str], n: int) -> list[str]:
    """The answers of rows that run eight at a time."""
    with closing(opened(model, n_parallel=8)) as responder:
        running = [responder.start(request(prompt, n)) for prompt in asked]
        return [next(event.result.text for event in each if isinstance(event, Done)) for each in running]


def report(what: str, texts: Sequence[str], cold: Sequence[str]) -> None:
    same = sum(a == b for a, b in zip(texts, cold, strict=True))
    print(f"{what:34} {same} of {len(cold)} texts are those of a cold run")


if __name__ == "__main__":
    main()
