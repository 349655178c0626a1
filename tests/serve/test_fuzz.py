"""Whatever a client sends, the server answers as its description says, and goes on."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from localrun.serve.openapi import description
from tests.serve.conftest import Server

pytestmark = pytest.mark.slow
load_all_checks()
SCHEMA = schemathesis.openapi.from_dict(description())
OPERATIONS = {operation.ok().label: operation.ok() for operation in SCHEMA.get_all_operations()}
SOUND = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("label", OPERATIONS)
def test_what_the_description_allows_is_answered_as_it_says(steady_server: Server, label: str) -> None:
    @EXAMPLES
    @given(case=OPERATIONS[label].as_strategy(generation_mode=GenerationMode.POSITIVE))
    def run(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=steady_server.url, checks=SOUND)

    run()
    assert httpx2.get(f"{steady_server.url}/health").status_code == 200


@pytest.mark.parametrize("label", ["POST /v1/chat/completions", "POST /v1/completions"])
def test_what_the_description_forbids_is_refused(steady_server: Server, label: str) -> None:
    @EXAMPLES
    @given(case=OPERATIONS[label].as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def run(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=steady_server.url, checks=[*SOUND, negative_data_rejection])

    run()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)
FIELDS = sorted(
    {
        key
        for path in ("/v1/chat/completions", "/v1/completions")
        for key in (
            description()["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        )
    }
)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_any_value_in_any_field_is_an_answer_or_a_4xx(steady_server: Server, path: str) -> None:
    right: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi", "max_tokens": 3}

    @EXAMPLES
    @given(wrong=st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=2))
    def run(wrong: dict[str, Any]) -> None:
        answer = steady_server.post(path, {**right, **wrong})
        assert answer.status_code == 200 or 400 <= answer.status_code < 500, (wrong, answer.text)

    run()


def test_any_bytes_are_no_danger(steady_server: Server) -> None:
    @EXAMPLES
    @given(body=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
    def run(body: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        answer = httpx2.post(f"{steady_server.url}/v1/chat/completions", content=body, headers=headers)
        assert 400 <= answer.status_code < 500

    run()
