"""The schemas of tools, checked before a model is asked anything.

Knows constraints and the place of each schema in a request; knows no template. Invariant: a call that is begun never
ends because of the schema of its tool.
"""

from __future__ import annotations

from functools import lru_cache

from localrun.errors import ConstraintError
from localrun.local.constraining import checked_constraint
from localrun.params import ConstraintSpec
from localrun.serve.failures import ApiError, as_api_error
from localrun.serve.fields import schema_text
from localrun.serve.tool_arguments import UnwritableError, of_object, parameters_of
from localrun.serve.tool_fields import Tools


def check_schemas(tools: Tools, *, one_by_one: bool, model: str) -> None:
    """Refuse what no call could be held to, by its place in the request. Takes seconds for thousands of properties.

    `one_by_one`: the arguments are not written as one JSON object. Raises `ApiError` 400.
    """
    for function_place, function in tools.placed:
        place = f"{function_place}.parameters"
        text = schema_text(of_object(function["parameters"]), place)
        try:
            _check(text, place)
        except ConstraintError as error:
            raise as_api_error(error, param=place) from error
        if one_by_one:
            try:
                parameters_of(function["parameters"])
            except UnwritableError as error:
                message = f"{model} writes arguments one by one, which the tool {function['name']!r} does not allow"
                raise ApiError(400, f"{message}: {error}", param=place) from error


@lru_cache(maxsize=128)  # an agent sends the same tools with every request
def _check(text: str, place: str) -> None:
    checked_constraint(ConstraintSpec("json_schema", text, place))
