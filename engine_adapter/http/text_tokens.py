"""A model's tokenizer at the client: for servers that do not count tokens, and for prompts as text."""

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from workloads.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class TokensOfText(Protocol):
    """What counts tokens in a text that came in pieces."""

    def counts(self, text: str, ends: Sequence[int]) -> list[int]:
        """Tokens of each piece of `text`; piece i ends before character `ends[i]`, which never falls.

        The whole text is tokenised once, without special tokens. Each token goes to the piece with
        its last character, so the counts add up to the text's own.
        """
        ...


def tokenizer_from(path: str | Path) -> "TextTokenizer":
    """The tokenizer of a `tokenizer.json`, or of the model directory that holds one.

    Raises UsageError where the file or the `tokenizers` library is missing, or the file is no tokenizer.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        file /= "tokenizer.json"
    if not file.is_file():
        raise UsageError(f"no tokenizer at {file}: give a tokenizer.json or a model directory that holds one")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        hint = "counting tokens in text needs a library: pip install 'stallfree[tokenizer]'"
        raise UsageError(hint) from error
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise UsageError(f"{file} is no readable tokenizer: {' '.join(str(error).split())}") from error
    return TextTokenizer(tokenizer)


class TextTokenizer:
    """TokensOfText by a Hugging Face tokenizer, and prompts of a given length. Adds no special tokens."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        # A tokenizer.json may carry the limits of the model's training, which would cut long prompts.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer

    @property
    def vocab_size(self) -> int:
        """Number of token ids, special and added ones included."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """The token ids of `text`."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens left out; encoding it may give other ids."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)

    def count(self, text: str) -> int:
        """Tokens of `text`."""
        return len(self.encode(text))

    def counts(self, text: str, ends: Sequence[int]) -> list[int]:
        """See TokensOfText."""
        tokens = [0] * len(ends)
        if not text:
            return tokens
        end = 1  # some tokenizers give offsets of zero to tokens that no character stands for
        for _, token_end in self._tokenizer.encode(text, add_special_tokens=False).offsets:
            end = max(end, token_end)
            tokens[bisect_left(ends, end)] += 1
        return tokens

    def text_of_length(self, num_tokens: int, rng: np.random.Generator) -> str:
        """A random text that this tokenizer encodes to exactly `num_tokens` tokens.

        Raises UsageError for fewer than one token, and where the tokenizer gives no text of this length.
        """
        if num_tokens < 1:
            raise UsageError(f"a prompt has at least 1 token, not {num_tokens}")
        for separator, words in self._vocabularies:
            text = self._fitted(num_tokens, separator, words, rng)
            if text is not None:
                return text
        raise UsageError(f"this tokenizer gives no text of {num_tokens} tokens: send token ids instead")

    def _fitted(
        self, num_tokens: int, separator: str, words: list[str], rng: np.random.Generator
    ) -> str | None:
        """Random words whose joint text has this many tokens, or None where no number of them does."""
        chosen: list[str] = []
        missing = num_tokens
        for _ in range(_ROUNDS):
            if missing > 0:
                chosen += [words[i] for i in rng.integers(len(words), size=missing)]
            else:
                del chosen[missing:]
            text = separator.join(chosen)
            count = self.count(text)
            if count == num_tokens:
                return text
            # Where words are longer than one token, so many fewer of them are needed.
            difference = num_tokens - count
            words_short = int(difference * len(chosen) / max(count, 1)) or (1 if difference > 0 else -1)
            missing = min(words_short, num_tokens)
        return None

    @cached_property
    def _vocabularies(self) -> list[tuple[str, list[str]]]:
        """Separators, each with the words that stay one token when they are joined by it.

        Spaces between words keep tokens apart in most tokenizers; the rest have tokens to append.
        """
        size = self.vocab_size
        ids = np.linspace(0, size, min(size, _MOST_WORDS), endpoint=False).astype(int).tolist()
        texts = sorted({self.decode([i]) for i in ids})
        words = sorted({text.strip() for text in texts if text.strip().isalpha()})
        pieces = [text for text in texts if text.isprintable() and _UNDECODABLE not in text]
        vocabularies = [
            (separator, [word for word in choices if word and self.count(word + separator + word) == 2])
            for separator, choices in ((" ", words), ("", pieces))
        ]
        return [(separator, choices) for separator, choices in vocabularies if choices]


_ROUNDS = 50
_MOST_WORDS = 8192
_UNDECODABLE = "\N{REPLACEMENT CHARACTER}"
