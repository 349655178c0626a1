"""What the hub's client may raise, as our errors: each says what to do.

The one border to the client's exceptions. Invariant: a refusal (licence, token, no such thing) is never mistaken for a
network that is out of reach, nor the other way round.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from localrun.catalog.references import HubReference
from localrun.errors import FetchError, GatedModelError, IntegrityError, ModelNotFoundError, OfflineError


@contextmanager
def hub_errors(reference: HubReference, endpoint: str, api: Any) -> Iterator[None]:
    """Raise our errors for those of the client and of its HTTP library."""
    from huggingface_hub import errors as hub

    page = f"{endpoint}/{reference.repo}"
    try:
        yield
    except hub.GatedRepoError as error:
        raise GatedModelError(
            f"hf:{reference.repo} is only given to those who have accepted its licence",
            hint=f"accept it at {page}, then log in with `hf auth login` or set HF_TOKEN",
        ) from error
    except hub.RepositoryNotFoundError as error:
        near = _similar_repos(api, reference.repo)
        raise ModelNotFoundError(
            f"hf:{reference.repo} does not exist, or is private",
            hint=f"did you mean: {', '.join(near)}" if near else "a private one needs HF_TOKEN, or `hf auth login`",
        ) from error
    except hub.HfHubHTTPError as error:
        raise _status_error(reference, endpoint, error) from error
    except _transport_errors() as error:
        reason = str(error) or type(error).__name__
        raise OfflineError(
            f"the connection to the hub at {endpoint} failed: {reason}",
            hint="run the command again: what was fetched is kept",
        ) from error
    except OSError as error:
        if error.errno is None and "Consistency check failed" in str(error):
            raise IntegrityError(
                f"hf:{reference.repo} sent another number of bytes than it announced",
                hint="run the command again",
            ) from error
        if error.errno in (errno.ECONNRESET, errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EPIPE):
            raise OfflineError(
                f"the connection to the hub at {endpoint} failed: {error.strerror}",
                hint="run the command again: what was fetched is kept",
            ) from error
        raise


def _transport_errors() -> tuple[type[Exception], ...]:
    """What the client's HTTP library raises: the base class that the client gives to its own errors."""
    from huggingface_hub.errors import HfHubHTTPError

    return tuple(base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception) and base is not OSError)


def _status_error(reference: HubReference, endpoint: str, error: Any) -> FetchError:
    status = error.response.status_code
    if status == 401:
        return GatedModelError(
            f"the hub does not accept the token for hf:{reference.repo}", hint="log in again: `hf auth login`"
        )
    if status == 403:
        return GatedModelError(
            f"access to hf:{reference.repo} is forbidden", hint="the token lacks the right to read it, or it is gated"
        )
    if status == 429:
        return FetchError("the hub asks to slow down (429)", hint="wait a few minutes, or log in: `hf auth login`")
    if status == 404:
        return FetchError(f"hf:{reference.repo} has lost this file (404)", hint=f"see {endpoint}/{reference.repo}")
    if status >= 500:
        return OfflineError(f"the hub at {endpoint} is out of order: it answered {status}", hint="try again later")
    return FetchError(f"the hub at {endpoint} answered {status} for hf:{reference.repo}")


def _similar_repos(api: Any, repo: str) -> list[str]:
    """Repositories of a similar name, for the hint. Best effort: another failure would only hide the first."""
    failures: tuple[type[Exception], ...] = (*_transport_errors(), OSError, ValueError)
    try:
        found = list(api.list_models(search=repo.split("/")[-1], filter="gguf", limit=3))
    except failures:
        return []
    return [f"hf:{model.id}" for model in found]
