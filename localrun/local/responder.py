"""The `Responder` on this machine.

Knows the template, the engine's thread and the constraint of a request; knows no command and no screen. Loading runs
beside the caller, who may render templates meanwhile. Invariants: an error reaches the one who asked, and `close`
leaves no thread and no memory behind.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as TokenIds
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING

from localrun.engine.disk_prefix import DiskPrefix
from localrun.engine.disk_states import DiskStates
from localrun.engine.engine import Engine
from localrun.engine.kv_store import KVStore
from localrun.engine.sequence import Sequence
from localrun.engine.speculative import Drafter, NgramDrafter
from localrun.engine.threads import ThreadGovernor
from localrun.engine.worker import EngineWorker
from localrun.gguf import known_sha256
from localrun.hardware.cpu import usable_cpus
from localrun.hardware.load import LoadProbe
from localrun.llama.context import LlamaContext
from localrun.local.answer import Answer, Sink
from localrun.local.constraining import RequestConstraint, Vocabularies, checked_constraint
from localrun.local.context import open_context
from localrun.local.drafting import DraftModel
from localrun.local.gate import Gate
from localrun.local.loading import Loaded, Loading
from localrun.local.output import AnswerOutput
from localrun.local.prompts import Encoded, Prompts
from localrun.local.reuse import cache_budget, cache_identity, cache_obstacle
from localrun.params import EngineParams
from localrun.paths import default_paths
from localrun.responder import Event, ModelIdentity, ModelInfo, Request, Warning_

if TYPE_CHECKING:
    from localrun.catalog import ModelFile
    from localrun.chat.template import ChatTemplate
    from localrun.constraint.compiled import PreparedVocabulary
    from localrun.llama.vocabulary import Vocabulary

_FIRST_ANSWER = 512
"""Tokens that memory is taken for when a request has no limit; the context grows when an answer is longer."""


class LocalResponder:
    """One model, loaded once, answering any number of requests, several at a time if `n_parallel` says so."""

    def __init__(
        self,
        file: ModelFile,
        params: EngineParams | None = None,
        *,
        on_load: Callable[[float], None] | None = None,
        loading: Loading | None = None,
    ) -> None:
        """Checks the file and starts to load it, or takes a `loading` that has begun.

        Raises `ModelFileError` or `DoesNotFitError`.
        """
        self._file = file
        self._loading = loading or Loading(file.path, params or EngineParams(), on_load)
        self._header, self._params, self._plan = self._loading.header, self._loading.params, self._loading.plan
        self._prompts = Prompts(self._header, file.name)
        self._told_once: list[Warning_] = []
        """Warnings for the next answer alone."""
        self._gate = Gate()
        """Whoever uses the model or makes a context is inside."""
        self._closing = threading.RLock()
        self._lock = threading.Lock()
        self._answers: list[Answer] = []
        self._worker: EngineWorker | None = None
        self._context: LlamaContext | None = None
        self._disk: DiskPrefix | DiskStates | None = None
        self._vocabularies: Vocabularies | None = None
        self._engine: Engine | None = None
        self._draft: DraftModel | None = None
        # Made early: its first look at the load spans the time it takes to load the model.
        cores = self._loading.cores
        n_prefill = min(usable_cpus(), 2 * cores)
        self._governor = ThreadGovernor(cores, LoadProbe().others, fixed=self._params.threads, n_prefill=n_prefill)

    # the Responder interface --------------------------------------------------------------------------------------

    @cached_property
    def info(self) -> ModelInfo:
        template = self._header.chat_template
        return ModelInfo(
            identity=self.identity,
            context_limit=self._plan.n_ctx,
            context_trained=self._header.n_ctx_train or 0,
            can_chat=bool(template),
            can_think=bool(template) and self.template.reasoning is not None,
            details={"architecture": self._header.architecture, "parameters": f"{self._header.parameters:,}"},
        )

    @cached_property
    def identity(self) -> ModelIdentity:
        path = self._file.path
        return ModelIdentity(self._file.name, str(path), self._header.quantization, known_sha256(path))

    @property
    def failed(self) -> bool:
        """Whether the engine has ended by itself: nothing is answered any more. Any thread may ask."""
        return self._worker is not None and self._worker.failed

    def respond(self, request: Request) -> Iterator[Event]:
        """Yield the events of one answer. Closing the iterator cancels it."""
        answer = self.start(request)
        try:
            yield from answer
        finally:
            answer.close()

    def stop(self) -> None:
        """End what runs: loading, or every answer. Any thread may call it."""
        self._loading.stopping.set()
        for answer in list(self._answers):
            answer.stop()

    def count_tokens(self, request: Request) -> int:
        """Prompt tokens of a request, template included."""
        return len(self.encode(request).ids)

    def close(self, *, free: bool = True) -> None:
        """End everything and free the model. Idempotent; any thread may call it while others ask for answers.

        Without `free`, the memory is left to the end of the process, which is near: the system takes it faster.
        """
        self._gate.close()
        self._loading.stopping.set()
        with self._closing:
            self._gate.wait_empty()
            if self._worker is not None:
                self._worker.close()
            if self._disk is not None:
                self._disk.close()
            if self._vocabularies is not None:
                self._vocabularies.close()
            if self._draft is not None and free:
                self._draft.close()
            if self._context is not None and free:
                self._context.close()
            self._loading.close(free=free)

    # one answer ---------------------------------------------------------------------------------------------------

    def start(self, request: Request, sink: Sink | None = None) -> Answer:
        """Begin an answer and return it at once; with `sink`, its events go there beside others'.

        Raises `TemplateError`, `ConstraintError` or `UsageError` for a request that makes no sense.
        """
        submitted = time.perf_counter()
        with self._gate.inside(on_entry=self._loading.stopping.clear):
            return self._start(request, sink, submitted)

    def _start(self, request: Request, sink: Sink | None, submitted: float) -> Answer:
        checked = checked_constraint(request.params.constraint)
        constraint = RequestConstraint(checked, self._tables()) if checked is not None else None
        self._prompts.render(request)  # beside the loading: a template's refusal is told before a weight is needed
        loaded = self._loading.wait()
        if constraint is not None and self._params.n_parallel > 1:
            constraint.compile_now()  # in the caller's thread: other answers must not wait for a large schema
        encoded = self.encode(request)
        tokens, prompt = encoded.ids, encoded.prompt
        params = request.params
        answer = Answer(self, request, submitted=submitted, sink=sink, constraint=constraint)
        in_reasoning = prompt is not None and prompt.in_reasoning
        splits = prompt is not None and (in_reasoning or not request.verbatim)
        output = AnswerOutput(
            answer.put,
            stops=params.stop,
            tags=request.tags,
            shows_special=params.constraint is not None and params.constraint.names_special,
            form=self._prompts.encoder(loaded.model.vocabulary).reasoning if splits else None,
            in_reasoning=in_reasoning,
            budget=params.think_budget,
        )
        sequence = Sequence(
            tokens=tokens,
            n_prompt=len(tokens),
            params=params,
            seed=params.sampling.seed if params.sampling.seed is not None else draw_seed(),
            output=output,
            notify=answer.notify,
            matcher=constraint.matcher(_begun(request)) if constraint is not None else None,
            explain=request.explain,
        )
        notes = [Warning_("checked_at_the_end", note) for note in checked.notes] if checked is not None else []
        worker = self._worker_for(len(tokens), params.max_tokens)  # making a context may add a warning
        notes += self._told_once
        self._told_once = []
        answer.begin(sequence, output, [*loaded.warnings, *self._plan.warnings, *encoded.warnings, *notes])
        worker.submit(sequence)
        return answer

    def _tables(self) -> Future[PreparedVocabulary]:
        """What masks need of the vocabulary, now or soon."""
        with self._lock:
            if self._vocabularies is None:
                self._vocabularies = Vocabularies(
                    self._header,
                    lambda: self._loading.wait().model.vocabulary,
                    is_loading=lambda: not self._loading.is_done,
                )
        return self._vocabularies.prepared()

    def wait_loaded(self) -> Loaded:
        """The model, when it is there. Raises what loading raised, and `EngineError` after `close`."""
        with self._gate.inside():
            return self._loading.wait()

    @property
    def cache_problems(self) -> list[str]:
        """What went wrong with the cache on disk, one line each; never a reason to fail."""
        return self._disk.problems if self._disk is not None else []

    def new_cache_problems(self) -> list[str]:
        """Those of them that no answer has told. Call after `close`, when everything is written."""
        return self._disk.new_problems() if self._disk is not None else []

    def reserve(self) -> None:
        """Wait for the model and take the memory of all sequences now, so that none waits while it grows.

        Raises what loading raises, and `DoesNotFitError`.
        """
        with self._gate.inside():
            self._worker_for(self._plan.n_ctx, 0)

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's vocabulary, for who is inside or on the engine's thread. Waits for the model."""
        return self._loading.wait().model.vocabulary

    @property
    def load_s(self) -> float:
        return self._loading.seconds

    @property
    def context_limit(self) -> int:
        return self._plan.n_ctx

    @property
    def template(self) -> ChatTemplate:
        """The model's chat template. Raises `TemplateError` for a base model."""
        return self._prompts.template

    def encode(self, request: Request) -> Encoded:
        """Token ids of a request's prompt, and what there is to say about it. Waits for the model."""
        with self._gate.inside():
            return self._prompts.encode(request, self.vocabulary)

    def forget(self, answer: Answer) -> None:
        """Called by an answer that has ended."""
        with self._lock:
            if answer in self._answers:
                self._answers.remove(answer)

    def remember(self, answer: Answer) -> None:
        """Called by an answer that begins: `stop` reaches it."""
        with self._lock:
            self._answers.append(answer)
        if self._loading.stopping.is_set():
            answer.stop()

    def after_step(self, function: Callable[[], None]) -> None:
        """Run `function` on the engine's thread, between two steps."""
        assert self._worker is not None
        self._worker.call(function)

    def choice_scores(self, constraint: RequestConstraint, before: list[int]) -> tuple[tuple[str, float], ...]:
        """The probability of each string of a choice after the tokens `before`. Call on the engine's thread."""
        engine = self._engine
        assert engine is not None
        table = self.vocabulary

        def score(path: TokenIds[int]) -> list[float]:
            row: list[float] = engine.next_logprobs([*before, *path]).tolist()
            return row

        return constraint.choice_scores(table, score)

    def cancel(self, sequence: Sequence) -> None:
        """End a sequence soon, also one that has not been submitted yet."""
        sequence.cancelled = True
        if self._worker is not None:
            self._worker.cancel(sequence)

    def _worker_for(self, n_prompt: int, max_tokens: int | None) -> EngineWorker:
        with self._lock:
            if self._worker is None:
                wanted = n_prompt + (max_tokens if max_tokens is not None else _FIRST_ANSWER) + 1
                n_first = min(self._plan.n_ctx, wanted) * self._params.n_parallel
                loaded = self._loading.wait()
                self._context = open_context(loaded, self._header, self._params, self._plan.n_ctx, n_first)
                try:
                    self._worker = self._open_worker(self._context)
                except BaseException:  # Ctrl-C among them
                    self._context.close()
                    raise
            return self._worker

    def _open_worker(self, context: LlamaContext) -> EngineWorker:
        self._disk = self._open_disk(context)
        self._engine = Engine(
            context,
            disk=self._disk,
            drafter=self._open_drafter(),
            n_parallel=self._params.n_parallel,
            n_chunk=context.options.n_ubatch,
            governor=self._governor,
            trained=self._header.n_ctx_train or 0,
        )
        return EngineWorker(self._engine, context)

    def _open_drafter(self) -> Drafter | None:
        if self._params.draft is None:
            return None
        if self._params.draft == "ngram":
            return NgramDrafter()
        self._draft = DraftModel(self._params.draft, self._loading.wait().model, self._params, self._plan.n_ctx)
        return self._draft.drafter

    def _open_disk(self, context: LlamaContext) -> DiskPrefix | DiskStates | None:
        if not self._params.cache:
            return None
        root = default_paths().kv_blocks
        if obstacle := cache_obstacle(root):
            self._told_once.append(Warning_("cache_off", f"the prefix cache is off: {obstacle}"))
            return None
        content = self._loading.fingerprint()
        placed = self._loading.wait().where(self._params)
        identity = cache_identity(self._file.name, self._header, content, context, placed)
        store = KVStore(root, identity, budget_bytes=cache_budget(root))
        return DiskStates(context, store) if context.memory_kind == "state" else DiskPrefix(context, store)


def _begun(request: Request) -> bytes:
    """The part of a constrained output that the request gives already."""
    return request.prefill.encode() if request.constrains_prefill else b""


def draw_seed() -> int:
    """A seed that nobody chose; the result reports it."""
    return int.from_bytes(os.urandom(4), "little") % (2**32 - 1)
