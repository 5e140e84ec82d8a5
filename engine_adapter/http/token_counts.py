"""How many tokens each message of a stream carried, from cumulative counts."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

Checkpoint = tuple[int, int]
"""After so many messages, so many tokens had been generated."""


def tokens_per_message(messages: int, checkpoints: Iterable[Checkpoint]) -> list[int]:
    """Tokens of each of `messages` messages; 0 for one that brought none. `checkpoints` never fall.

    The tokens between two checkpoints are spread over the messages between them, so that the first
    has at least one, and the last too where there are two. Where the count grows without a
    message, the last message had those tokens. A message at which the count does not grow had
    none: its text belongs to tokens that an earlier message had. Before the first token it is
    the other way round: what is already seen takes part in the first tokens that are counted.
    """
    tokens = [0] * messages
    settled = counted = 0
    for seen, total in checkpoints:
        grown = total - counted
        if seen == settled + 1 and grown:
            tokens[settled] = grown
        elif seen > settled and grown:
            tokens[settled:seen] = _spread(grown, seen - settled)
        elif settled and grown:
            tokens[settled - 1] += grown
        elif not counted:
            continue
        settled, counted = seen, total
    return tokens


def _spread(tokens: int, messages: int) -> list[int]:
    if tokens < messages:
        ends = [1 + i * (tokens - 1) // (messages - 1) for i in range(messages)]
    else:
        ends = [-(-i * tokens // messages) for i in range(1, messages + 1)]
    return [end - start for start, end in pairwise([0, *ends])]


def from_increments(increments: Sequence[int]) -> list[int]:
    """Tokens of each message from how many were counted in it, by the rules above."""
    if all(increments):
        return list(increments)
    return tokens_per_message(len(increments), enumerate(accumulate(increments), 1))


def never_fall(checkpoints: Sequence[Checkpoint]) -> bool:
    """Whether the counts can be cumulative at all."""
    return all(earlier[1] <= later[1] for earlier, later in pairwise(checkpoints))
