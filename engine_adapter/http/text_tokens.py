"""A model's tokenizer at the client, for servers that do not count tokens."""

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from workloads.traces.text_lengths import load_tokenizer

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
    return TextTokenizer(load_tokenizer(path))


class TextTokenizer:
    """TokensOfText by a Hugging Face tokenizer. Adds no special tokens."""

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
