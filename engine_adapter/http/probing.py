"""Find out, with a few small requests, what form of request a server takes."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from engine_adapter.answer import DecodedAnswer, FailureKind
from engine_adapter.errors import StartFailed
from engine_adapter.http.dialect import EXTRAS, Dialect, usable_ids
from engine_adapter.http.text_tokens import TextTokenizer
from engine_adapter.http.words import PromptWords
from engine_adapter.seam import GenerateRequest
from workloads.errors import UsageError

Ask = Callable[[Dialect, GenerateRequest], Awaitable[DecodedAnswer]]
"""Sends one request in this dialect and returns what came back."""

_SMALLEST_VOCAB = 64
_PROMPT, _ANSWER = 16, 4
_FEW_WORDS, _MANY_WORDS = 20, 220
_REFUSALS = (400, 413, 415, 422, 500, 501)
"""Statuses with which servers answer what they do not know; some crash on it."""
_TOO_LARGE_ID = re.compile(r"vocab|token.?ids?\b.*(range|valid|bound)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Probed:
    """What the server takes and gives."""

    dialect: Dialect
    vocab_size: int
    """Token ids below it are accepted."""
    token_count_source: str
    prompt_overhead_tokens: int | None
    """Tokens that the server counted beyond those sent; None where it does not count."""
    gave_up: tuple[str, ...]
    """What it refused, in the order of trying."""
    failure: str = ""
    """Why even a simple request failed; then the form is the one that was tried first."""


async def probe(ask: Ask, dialect: Dialect, *, vocab_size: int, tokenizer: TextTokenizer | None) -> Probed:
    """The richest form that the server accepts.

    StartFailed for a server that takes no connection, UsageError for a wrong key, endpoint or model.
    """
    asked, gave_up = dialect, list[str]()
    while True:
        decoded = await ask(dialect, GenerateRequest(0, usable_ids(vocab_size, _PROMPT), _ANSWER))
        failure = decoded.failure
        if failure is None:
            break
        if failure.status in (401, 403):
            raise UsageError(f"the server refuses the key ({failure.text}): give another with --api-key-env "
                             f"or --api-key-file")
        if failure.status == 404:
            raise UsageError(f"the server has no {dialect.target.path} for {dialect.model} ({failure.text}): "
                             f"correct --base-url, --endpoint, --backend or --model")
        if failure.kind in (FailureKind.CONNECT, FailureKind.TIMEOUT_CONNECT):
            raise StartFailed(f"the server takes no requests: {failure.text}")
        if failure.kind is not FailureKind.HTTP_STATUS or failure.status not in _REFUSALS:
            # Whatever is wrong with it, the run will count it; a probe must not hide it.
            return Probed(asked, vocab_size, decoded.token_count_source, None, (), failure.text)
        if dialect.token_ids and vocab_size > _SMALLEST_VOCAB and _TOO_LARGE_ID.search(failure.text):
            vocab_size = max(_SMALLEST_VOCAB, vocab_size // 2)
            continue
        simpler = _without_what_it_refused(dialect, failure.text)
        if simpler is None:
            return Probed(asked, vocab_size, decoded.token_count_source, None, (), failure.text)
        was_ids = dialect.token_ids
        dialect, refused = simpler
        # Without token ids everything else is tried again: it was not at fault.
        gave_up = [refused] if was_ids and not dialect.token_ids else [*gave_up, refused]
    overhead = None if decoded.prompt_tokens is None else decoded.prompt_tokens - _PROMPT
    if not dialect.token_ids:
        dialect = replace(dialect, words=await _fitted_words(ask, dialect, vocab_size, tokenizer))
        overhead = round(dialect.words.overhead_tokens)
    return Probed(dialect, vocab_size, decoded.token_count_source, overhead, tuple(gave_up))


def _without_what_it_refused(dialect: Dialect, text: str) -> tuple[Dialect, str] | None:
    """A simpler form: without the extra that the refusal names, else without the rarest one left."""
    candidates = [extra for extra in EXTRAS if extra in dialect.extras]
    named = [extra for extra in candidates if extra in text]
    for extra in (*named, *candidates):
        return dialect.without(extra), extra
    if dialect.token_ids and dialect.target.api == "completions":
        # Not the extras' fault, then: they are tried again with a prompt of words.
        return replace(dialect, token_ids=False, extras=frozenset(EXTRAS)), "token ids"
    return None


async def _fitted_words(ask: Ask, dialect: Dialect, vocab_size: int,
                        tokenizer: TextTokenizer | None) -> PromptWords:
    plain = replace(dialect, words=PromptWords())
    counted: list[tuple[int, int]] = []
    for words in (_FEW_WORDS, _MANY_WORDS):
        ids = usable_ids(vocab_size, words)
        decoded = await ask(plain, GenerateRequest(0, ids, 1))
        tokens = decoded.prompt_tokens
        if tokens is None and tokenizer is not None:
            tokens = tokenizer.count(plain.words.text(ids))
        if tokens is None:
            return PromptWords()
        counted.append((words, tokens))
    return PromptWords.fitted(*counted)
