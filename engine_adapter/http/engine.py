"""A server that runs already, behind the Engine seam."""

import asyncio
import contextlib
import itertools
import resource
from collections.abc import AsyncIterator
from dataclasses import replace

from engine_adapter.answer import DecodedAnswer, Failure, FailureKind
from engine_adapter.clock import Clock, WallClock
from engine_adapter.errors import Crashed, EngineError, Hung, NeedsRestart, Rejected
from engine_adapter.http.dialect import Dialect
from engine_adapter.http.exchange import HttpAnswer
from engine_adapter.http.pool import ConnectionPool
from engine_adapter.http.probing import Probed, probe
from engine_adapter.http.server_facts import ControlPlane, ServerFacts, ask_facts
from engine_adapter.http.server_metrics import ServerMetrics
from engine_adapter.http.target import HttpTarget
from engine_adapter.http.text_tokens import TextTokenizer, tokenizer_from
from engine_adapter.knobs import Knobs
from engine_adapter.seam import Applied, EngineInfo, GenerateRequest, TokenEvent
from engine_adapter.step_log import StepLog
from workloads.errors import UsageError

_USUAL_VOCAB = 32_000
"""Prompts use ids below it: the vocabulary of Llama 2, smaller than that of nearly every model since."""
_OTHER_FILES = 50
"""That this process has open, or will open, besides."""
NO_LIVE_KNOBS = ("this server's settings cannot be changed from here: it is measured as it is. Start it with "
                 "--server vllm to change them")


class HttpEngine:
    """Speaks the Engine seam and AnswersWhole, for a server that somebody else started.

    `generate` yields only when the answer is over; the times in its events are those of the reads.
    `vocab_size`: token ids below it are known to exist; None takes the tokenizer's, else 32,000, and
    halves that as long as the server refuses. `probe_timeout_s` is for the first request.
    """

    def __init__(self, target: HttpTarget, *, clock: Clock | None = None, vocab_size: int | None = None,
                 probe_timeout_s: float = 120.0) -> None:
        self.target = target
        self._probe_timeout_s = probe_timeout_s
        self._clock = clock or WallClock()
        self._vocab_size = vocab_size
        self._serial = itertools.count()
        self._tokenizer: TextTokenizer | None = None
        self._dialect: Dialect | None = None
        self._max_model_len: int | None = None
        self._pool: ConnectionPool | None = None
        self._plane: ControlPlane | None = None

    async def start(self) -> EngineInfo:
        began_ns = self._clock.now_ns()
        allow_many_connections()
        try:
            if self.target.tokenizer is not None:
                self._tokenizer = tokenizer_from(self.target.tokenizer)
            self._pool, self._plane = ConnectionPool(self.target), ControlPlane(self.target)
            facts = await ask_facts(self._plane, self.target, self._cleaned)
            self._max_model_len = facts.max_model_len
            known = self._vocab_size or (self._tokenizer.vocab_size if self._tokenizer else _USUAL_VOCAB)
            dialect = Dialect(self.target, facts.model,
                              token_ids=not (self.target.text_prompts or self.target.api == "chat"))
            probed = await probe(self._ask, dialect, vocab_size=known, tokenizer=self._tokenizer)
            self._dialect = probed.dialect
        except BaseException:
            await self.stop()
            raise
        return self._describe(facts, probed, (self._clock.now_ns() - began_ns) / 1e9)

    def compose(self, request: GenerateRequest) -> HttpAnswer:
        if self._pool is None or self._dialect is None:
            raise Crashed("the connection to the server is closed")
        return self._composed(self._dialect, request)

    async def answer(self, request: GenerateRequest) -> HttpAnswer:
        """The whole answer to one request, sent at once."""
        answer = self.compose(request)
        answer.send()
        await answer.wait()
        return answer

    async def connect(self, connections: int) -> None:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if connections + _OTHER_FILES > allowed:
            raise UsageError(f"{connections} connections at once need more open files than the {allowed} "
                             f"allowed here: raise that with `ulimit -n`, or lower the concurrency")
        if self._pool is not None:
            await self._pool.open(connections)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
        if not len(request.prompt_token_ids):
            raise Rejected("the prompt is empty")
        asked = len(request.prompt_token_ids) + request.output_len
        if self._max_model_len is not None and asked > self._max_model_len:
            raise Rejected(f"{asked} tokens are more than the model's {self._max_model_len}")
        decoded = (await self.answer(request)).decode()
        if decoded.failure is not None and not decoded.read_ns:
            raise as_engine_error(decoded.failure)
        last = len(decoded.read_ns) - 1
        token_ids = (decoded.token_ids or ()) if request.wants_token_ids else ()
        for index, (read_ns, tokens) in enumerate(zip(decoded.read_ns, decoded.read_tokens, strict=True)):
            ended = decoded.finish_reason or "stop"
            if decoded.failure is not None:
                ended = "error"
            yield (TokenEvent(read_ns, tokens, ended, token_ids) if index == last
                   else TokenEvent(read_ns, tokens))

    async def apply(self, knobs: Knobs) -> Applied:
        if self._pool is None:
            raise Crashed("the connection to the server is closed")
        raise NeedsRestart(NO_LIVE_KNOBS)

    def step_log(self) -> StepLog:
        return StepLog()

    async def reset_caches(self) -> None:
        """vLLM's and SGLang's routes, where the server offers them; others keep what they have cached."""
        if self._plane is None:
            raise Crashed("the connection to the server is closed")
        for path in ("/reset_prefix_cache", "/flush_cache"):
            with contextlib.suppress(OSError):
                if (await self._plane.call("POST", path))[0] == 200:
                    return

    async def stop(self) -> None:
        pool, plane = self._pool, self._plane
        self._pool = self._plane = None
        if pool is not None:
            pool.close()
        if plane is not None:
            await plane.close()

    async def metrics(self) -> ServerMetrics | None:
        """What the server counts about itself; None where it shows nothing that is known here."""
        found = None if self._plane is None else await self._plane.metrics()
        if found is None:
            return None
        config = {self._cleaned(name): self._cleaned(value) for name, value in found.cache_config.items()}
        return replace(found, cache_config=config)

    async def death(self) -> Crashed | None:
        """Why it takes no connections any more; None while it does."""
        if self._pool is None:
            return Crashed("the connection to the server is closed")
        try:
            self._pool.discard(await self._pool.connect())
        except OSError as error:
            return Crashed(f"the server no longer takes connections ({error.strerror or error})")
        return None

    def _composed(self, dialect: Dialect, request: GenerateRequest) -> HttpAnswer:
        assert self._pool is not None
        return HttpAnswer(dialect.payload(request, next(self._serial)), self._pool, clock=self._clock,
                          asked=request.output_len, tokens_of_text=self._tokenizer, cleaned=self._cleaned)

    async def _ask(self, dialect: Dialect, request: GenerateRequest) -> DecodedAnswer:
        answer = self._composed(dialect, request)
        answer.send()
        try:
            async with asyncio.timeout(self._probe_timeout_s):
                await answer.wait()
        except TimeoutError:
            failure = Failure(FailureKind.TIMEOUT_READ,
                              f"no answer to a prompt of {len(request.prompt_token_ids)} tokens within "
                              f"{self._probe_timeout_s:g} s")
            return DecodedAnswer([], [], None, failure, None, "events", [], [])
        return answer.decode()

    def _cleaned(self, text: str) -> str:
        for secret in self.target.secrets():
            text = text.replace(secret, "***")
        return text

    def _describe(self, facts: ServerFacts, probed: Probed, seconds: float) -> EngineInfo:
        assert self._pool is not None
        dialect = probed.dialect
        return EngineInfo(
            name=facts.kind, version=facts.version or "unknown", model=facts.model,
            max_model_len=facts.max_model_len, vocab_size=probed.vocab_size, knobs=None, default_knobs=None,
            limits=None, num_kv_blocks=None, kv_block_size=None, live_knobs=False,
            live_knobs_note=NO_LIVE_KNOBS, start_seconds=seconds,
            token_count_source=probed.token_count_source,
            fingerprint={
                "server": facts.kind, "server_version": facts.version, "api": self.target.api,
                "prompts": "token ids" if dialect.token_ids and self.target.api != "chat" else "text",
                "prompt_overhead_tokens": probed.prompt_overhead_tokens, "probe_failure": probed.failure,
                "model_listed": facts.listed,
                "refused": list(probed.gave_up), "kernel_stamps": self._pool.kernel_stamps,
                "tls": self.target.secure,
            },
        )


def as_engine_error(failure: Failure) -> EngineError:
    """The typed error for a request that brought nothing."""
    match failure.kind:
        case FailureKind.CONNECT | FailureKind.TIMEOUT_CONNECT:
            return Crashed(f"the server no longer answers: {failure.text}")
        case FailureKind.TIMEOUT_READ:
            return Hung(failure.text)
        case _:
            return Rejected(failure.text)


def allow_many_connections() -> None:
    """Raise this process's limit of open files as far as it may be raised: each stream needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
