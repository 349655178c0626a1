"""Engines elsewhere that speak the OpenAI API: vLLM, SGLang, llama-server, Ollama, LM Studio, TensorRT-LLM, and ours.

    from localrun.remote import open_remote

    responder = open_remote("http://127.0.0.1:8080", None, config)   # a `Responder`, like the local one

settings      URL or name → address, key, limits          neighbours   servers of ours on this machine
dialects      what each kind of server understands         capabilities what this server is; remembered
payload       request → body, and what is not possible     wire         event stream → JSON, whole characters
fields        JSON values of any type → typed ones
connection    HTTP, and what its failures mean             control      ending an answer from another thread
reading       chunks → events and the result               responder    the `Responder`, with its second tries
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localrun.config import Config
    from localrun.remote.responder import RemoteResponder

__all__ = ["open_remote"]


def open_remote(engine: str, model: str | None = None, config: Config | None = None) -> RemoteResponder:
    """The responder of a remote engine: a URL, a name of the configuration, or `local`.

    Asks the server what it is. Raises `UsageError`, `RemoteError`, `ModelNotFoundError`.
    """
    from localrun.remote.responder import RemoteResponder
    from localrun.remote.settings import engine_settings

    return RemoteResponder(engine_settings(engine, config), model)
