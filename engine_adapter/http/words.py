"""Prompts as text, for servers that take no token ids: as many words as give the asked tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school",
    "state", "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week",
    "company", "system", "program", "question", "work", "government", "number", "night", "point", "home",
    "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right", "study", "book",
    "eye", "job", "word", "business", "issue", "side", "kind", "head", "house", "service", "friend",
    "father", "power", "hour", "game", "line", "end", "member", "law", "car", "city", "community", "name",
    "president", "team", "minute", "idea", "body", "information", "back", "parent", "face", "others",
    "level", "office", "door", "health", "person", "art", "war", "history", "party", "result", "change",
    "morning", "reason", "research", "girl", "guy", "moment", "air", "teacher", "force", "education",
)
"""Common English nouns: one token each, with the blank before them, in most vocabularies."""


@dataclass(frozen=True, slots=True)
class PromptWords:
    """Words in place of token ids: equal ids give equal words, so shared prefixes stay shared."""

    tokens_per_word: float = 1.0
    overhead_tokens: float = 0.0
    """What the server adds to every prompt: a chat template, a first token."""

    def text(self, token_ids: Sequence[int]) -> str:
        """A text of about `len(token_ids)` tokens, as the server counts them."""
        return " ".join(_words_for(token_ids, self.words_for(len(token_ids)), self.tokens_per_word))

    def words_for(self, tokens: int) -> int:
        """How many words make a prompt of so many tokens; at least one."""
        return max(1, round((tokens - self.overhead_tokens) / self.tokens_per_word))

    @classmethod
    def fitted(cls, few: tuple[int, int], many: tuple[int, int]) -> "PromptWords":
        """From two prompts that the server counted: (words, tokens) of a short and of a long one."""
        (words_a, tokens_a), (words_b, tokens_b) = few, many
        slope = (tokens_b - tokens_a) / (words_b - words_a)
        if slope <= 0:
            return cls()
        return cls(slope, tokens_a - slope * words_a)


def _words_for(token_ids: Sequence[int], count: int, tokens_per_word: float) -> list[str]:
    """Word number j is made of the id at j * tokens_per_word, however long the prompt is: what prompts
    share of their ids they share of their words, in the same proportion."""
    places = np.arange(count)
    id_of = np.minimum((places * tokens_per_word).astype(np.int64), len(token_ids) - 1)
    begins = np.diff(id_of, prepend=-1) > 0
    # An id that makes several words makes different ones.
    lap = places - np.maximum.accumulate(np.where(begins, places, 0))
    hashed = (np.asarray(token_ids, dtype=np.int64)[id_of] + lap * 7919) * 2654435761 >> 7
    return [_WORDS[number] for number in (hashed % len(_WORDS)).tolist()]
