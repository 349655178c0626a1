"""The official client gets what it expects."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import openai
import pytest

from localrun.chat.messages import ToolCall
from localrun.errors import ConstraintError, ContextOverflowError, EngineError, LocalrunError
from localrun.responder import Request
from localrun.serve.guard import Rules
from tests.serve.conftest import Server

Start = Callable[..., Server]
HI = [{"role": "user", "content": "Hi"}]


def test_a_whole_answer(steady_server: Server) -> None:
    answer = steady_server.client().chat.completions.create(model="tiny", messages=HI)
    assert answer.choices[0].message.content == "You said: Hi"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (12, 12, 24)


def test_a_streamed_answer_says_the_same_and_counts(server: Start) -> None:
    stream = (
        server()
        .client()
        .chat.completions.create(model="tiny", messages=HI, stream=True, stream_options={"include_usage": True})
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "You said: Hi"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12
    assert len({c.id for c in chunks}) == 1


def test_several_choices_have_seeds_that_count_up(server: Start) -> None:
    running = server()
    answer = running.client().chat.completions.create(model="tiny", messages=HI, n=3, seed=7)
    assert [(c.index, c.message.content) for c in answer.choices] == [(i, "You said: Hi") for i in range(3)]
    assert sorted(r.params.sampling.seed or 0 for r in running.model.requests) == [7, 8, 9]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (12, 36)


def test_streams_of_several_choices_are_told_apart(steady_server: Server) -> None:
    stream = steady_server.client().chat.completions.create(model="tiny", messages=HI, n=2, stream=True)
    texts = {0: "", 1: ""}
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == {0: "You said: Hi", 1: "You said: Hi"}


def test_stop_strings_and_limits_end_an_answer(steady_server: Server) -> None:
    create = steady_server.client().chat.completions.create
    stopped = create(model="tiny", messages=HI, stop=["id:", "zz"])
    assert (stopped.choices[0].message.content, stopped.choices[0].finish_reason) == ("You sa", "stop")
    cut = create(model="tiny", messages=HI, max_completion_tokens=3)
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("You", "length")


def test_logprobs_come_with_every_token(steady_server: Server) -> None:
    create = steady_server.client().chat.completions.create
    whole = create(model="tiny", messages=HI, logprobs=True, top_logprobs=1).choices[0].logprobs
    assert whole is not None
    assert "".join(entry.token for entry in whole.content or ()) == "You said: Hi"
    assert (whole.content or ())[0].top_logprobs[0].logprob == -0.5
    parts = create(model="tiny", messages=HI, logprobs=True, stream=True)
    tokens = [
        e.token for c in parts if c.choices and c.choices[0].logprobs for e in c.choices[0].logprobs.content or ()
    ]
    assert "".join(tokens) == "You said: Hi"


def test_completions_continue_texts(steady_server: Server) -> None:
    create = steady_server.client().completions.create
    answer = create(model="tiny", prompt=["one", "two"], n=2)
    assert [c.text for c in answer.choices] == ["You said: one"] * 2 + ["You said: two"] * 2
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 26
    assert create(model="tiny", prompt="x", echo=True).choices[0].text == "xYou said: x"
    assert "".join(c.choices[0].text for c in create(model="tiny", prompt="one", stream=True)) == "You said: one"


def test_reasoning_is_apart(server: Start) -> None:
    create = server(lambda request: "<think>Hm.</think>Yes").client().chat.completions.create
    message = create(model="tiny", messages=HI).choices[0].message
    assert (message.content, message.reasoning_content) == ("Yes", "Hm.")  # type: ignore[attr-defined]
    deltas = [c.choices[0].delta for c in create(model="tiny", messages=HI, stream=True) if c.choices]
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == "Hm."
    assert "".join(d.content or "" for d in deltas) == "Yes"


def test_models_are_listed(server: Start) -> None:
    client = server(names=("tiny", "org/other:q4")).client()
    assert [model.id for model in client.models.list()] == ["tiny", "org/other:q4"]
    assert client.models.retrieve("org/other:q4").owned_by == "localrun"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nothing")


def test_a_conversation_with_tools_is_passed_on(server: Start) -> None:
    running = server()
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "One "}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "3", "tool_call_id": "c1"},
    ]
    running.client().chat.completions.create(model="tiny", messages=messages)  # type: ignore[arg-type]
    told = running.model.requests[0].messages
    assert [m.role for m in told] == ["system", "user", "assistant", "tool"]
    assert told[1].content == "One two"
    assert told[2].tool_calls == (ToolCall("c1", "f", '{"a":1}'),)
    assert told[3].tool_call_id == "c1"


def test_an_answer_that_has_been_begun_is_continued(server: Start) -> None:
    running = server()
    messages = [*HI, {"role": "assistant", "content": "Once upon"}]
    running.client().chat.completions.create(
        model="tiny",
        messages=messages,  # type: ignore[arg-type]
        extra_body={"continue_final_message": True, "add_generation_prompt": False},
    )
    assert running.model.requests[0].prefill == "Once upon"
    assert len(running.model.requests[0].messages) == 1


@pytest.mark.parametrize(
    ("error", "kind", "status", "text"),
    [
        (
            ContextOverflowError("the prompt has 9,031 tokens, the context holds 4,096"),
            openai.BadRequestError,
            400,
            "9,031",
        ),
        (ConstraintError("/a: no such keyword"), openai.BadRequestError, 400, "/a"),
        (EngineError("the engine failed"), openai.InternalServerError, 500, "engine failed"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_have_their_status_even_in_streams(
    server: Start, error: LocalrunError, kind: type[openai.APIStatusError], status: int, text: str, stream: bool
) -> None:
    with pytest.raises(kind, match=text) as caught:
        list(server(lambda request: error).client().chat.completions.create(model="tiny", messages=HI, stream=stream))  # type: ignore[call-overload]
    assert caught.value.status_code == status


def test_a_model_that_is_not_served_is_404_with_the_names_of_those_that_are(steady_server: Server) -> None:
    with pytest.raises(openai.NotFoundError, match="there are tiny"):
        steady_server.client().chat.completions.create(model="/etc/passwd", messages=HI)


def test_a_key_is_asked_for_everywhere_but_at_health(server: Start) -> None:
    running = server(rules=Rules(key="sk-right"))
    assert running.client("sk-right").models.list().data
    with pytest.raises(openai.AuthenticationError):
        running.client("sk-wrong").models.list()
    for header in (b"", b"Bearer", b"Bearer sk-rightx", b"Bearer sk-righ", b"Basic sk-right", "Bearer ключ".encode()):
        for path in ("/v1/models", "/metrics", "/v1/status", "/nothing"):
            response = httpx2.get(running.url + path, headers=[(b"Authorization", header)])
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
    assert httpx2.get(f"{running.url}/health").json() == {"status": "ok"}


def test_unknown_fields_are_a_warning_of_the_answer(steady_server: Server) -> None:
    answer = steady_server.post("/v1/chat/completions", {"messages": HI, "colour": "red", "user": "me"}).json()
    assert [w["message"] for w in answer["warnings"]] == ["the field 'colour' is not known here"]


def test_settings_reach_the_engine(server: Start) -> None:
    running = server()
    body = {
        "messages": HI,
        "temperature": 0.1,
        "top_k": 5,
        "top_p": 0.5,
        "min_p": 0.2,
        "repetition_penalty": 1.3,
        "logit_bias": {"5": -100, "6": 1.5},
        "samplers": ["top_k", "temperature"],
        "seed": -5,
        "priority": 3,
        "reasoning_effort": "none",
        "thinking_budget_tokens": 9,
        "regex": "a+",
        "timeout": 60,
    }
    assert running.post("/v1/chat/completions", body).status_code == 200
    params = running.model.requests[0].params
    sampling = params.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (0.1, 5, 0.5, 0.2)
    assert (sampling.repeat_penalty, sampling.order) == (1.3, ("top_k", "temperature"))
    assert sampling.logit_bias == ((5, float("-inf")), (6, 1.5))
    assert sampling.seed == -5 % (2**32 - 1)
    assert (params.priority, params.think, params.think_budget, params.timeout_s) == (3, False, 9, 60)
    assert params.constraint is not None
    assert (params.constraint.kind, params.constraint.source) == ("regex", "a+")


def test_a_schema_becomes_a_constraint(server: Start) -> None:
    running = server()
    schema = {"type": "object", "properties": {"é": {"type": "string"}}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    running.client().chat.completions.create(model="tiny", messages=HI, response_format=form)  # type: ignore[call-overload]
    running.client().chat.completions.create(model="tiny", messages=HI, response_format={"type": "json_object"})
    sources = [json_of(request) for request in running.model.requests]
    assert sources == [schema, {"type": "object"}]


def json_of(request: Request) -> object:
    import json

    constraint = request.params.constraint
    assert constraint is not None
    assert constraint.kind == "json_schema"
    assert isinstance(constraint.source, str)
    return json.loads(constraint.source)
