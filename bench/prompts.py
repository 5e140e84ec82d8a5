"""The prompts of a run: built before their time, as far as memory goes, and let go when they are sent."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from bench.agenda import turns_after
from bench.run import Bool, Int32
from workloads import Plan
from workloads.prompt_parts import NO_PARTS, Part, part_tokens

TOKENS_AHEAD = 1 << 25
"""Built beforehand at most, 128 MiB; the prompts of longer runs follow as the first ones are sent."""
History = Literal["answers", "made-up", "mixed"]


class Prompts:
    """Of `rows` of `plan`, each taken once. A later turn that repeats the conversation is built when the
    answer before it is there, from that answer's own tokens where the engine tells them: `answered`.

    `vocab_size` bounds the made-up tokens. Of a conversation that goes on its last prompt is kept: 4 bytes
    a token.
    """

    def __init__(self, plan: Plan, rows: Sequence[int], *, vocab_size: int, salt: str) -> None:
        self.rows = rows
        self._plan, self._vocab_size, self._salt = plan, vocab_size, salt
        repeats = _repeats_the_conversation(plan)
        self._after = {row: later for row, later in turns_after(plan, rows).items() if repeats[later]}
        """For each row the turn whose prompt repeats it and its answer."""
        self._built: dict[int, Int32] = {}
        self._histories = [0, 0]
        """Answers that were repeated: made up, and real."""
        continued = set(self._after.values())
        # Building a long prompt takes longer than an event loop may be busy.
        tokens = 0
        for row in rows:
            if row in continued:
                continue
            tokens += int(plan.input_len[row])
            if tokens > TOKENS_AHEAD:
                break
            self._built[row] = self._build(row)

    @property
    def history(self) -> History | None:
        """What later turns repeated as the answers before them; None while there was none."""
        made_up, real = self._histories
        if not (made_up or real):
            return None
        return "mixed" if made_up and real else "answers" if real else "made-up"

    def take(self, row: int) -> list[int]:
        """The prompt of `row`, once."""
        prompt = self._built.pop(row, None)
        if prompt is None:
            prompt = self._build(row)
        if row in self._after:   # needed again, with its answer
            self._built[row] = prompt
        ids: list[int] = prompt.tolist()
        return ids

    def is_repeated(self, row: int) -> bool:
        """Whether a later prompt repeats the answer to `row`."""
        return row in self._after

    def answered(self, row: int, token_ids: Sequence[int]) -> None:
        """The answer to `row`, empty where it is not known: builds the turn after it, where there is one."""
        if (later := self._after.pop(row, None)) is not None:
            self._built[later] = self._continued(row, later, token_ids)
            self._histories[len(token_ids) > 0] += 1

    def forget(self, row: int) -> None:
        """Nothing will follow `row`."""
        if self._after.pop(row, None) is not None:
            self._built.pop(row, None)

    def _build(self, row: int) -> Int32:
        return np.array(
            self._plan.prompt_token_ids(row, vocab_size=self._vocab_size, salt=self._salt), dtype=np.int32)

    def _continued(self, before: int, row: int, answer: Sequence[int]) -> Int32:
        """`plan.prompt_token_ids` of `row` with this answer, from the prompt before it: long histories are
        not made again."""
        length = int(self._plan.input_len[row])
        answered = self._tokens(Part.ANSWER, before, int(self._plan.output_len[before]), answer)
        history = np.concatenate([self._built.pop(before), answered])[:length - 1]
        return np.concatenate([history, self._tokens(Part.OWN, row, length - len(history))])

    def _tokens(self, part: Part, row: int, length: int, answer: Sequence[int] = ()) -> Int32:
        ids = part_tokens(NO_PARTS.then(part, row, length), seed=self._plan.seed, salt=self._salt,
                          vocab_size=self._vocab_size, answers={row: answer} if len(answer) else None)
        return ids.astype(np.int32)


def _repeats_the_conversation(plan: Plan) -> Bool:
    later: Bool = plan.predecessor >= 0
    # A prompt with blocks is what these say, whatever was answered.
    return later if plan.blocks is None else later & (np.diff(plan.blocks.offset) == 0)
