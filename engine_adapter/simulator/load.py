"""What a simulated engine is asked, and what came of it, as columns."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine_adapter.step_log import StepLog

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]


def _none() -> Int64:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SimulatedLoad:
    """Requests in order of arrival, shape (n,) each. ValueError where columns contradict one another."""

    arrival_ns: Int64
    """When each is sent, or the earliest where it waits for another; never decreasing."""
    input_len: Int64
    output_len: Int64
    """Exactly so many tokens are generated, as far as max_model_len lets them."""
    priority: Int64 = field(default_factory=_none)
    """Lower goes first under the priority policy; left out: 0 for all."""
    prefix_keys: Int64 = field(default_factory=_none)
    """Content of the full KV blocks of the prompts, all requests' after one another: equal numbers
    stand for equal blocks with equal blocks before them. A number is at least 0; -1 stands for a block
    that no other request has. Left out: no two prompts share anything."""
    prefix_offset: Int64 = field(default_factory=_none)
    """Shape (n + 1,): the keys of request i are `prefix_keys[prefix_offset[i]:prefix_offset[i + 1]]`,
    one for each full block of its prompt and its answer or for the first of them."""
    after: Int64 = field(default_factory=_none)
    """The request whose last token each waits for, -1 for none; none is waited for by two. If that one is
    refused, it is never sent. Left out: none waits."""
    think_ns: Int64 = field(default_factory=_none)
    """From that last token to the sending; left out: 0."""
    draft_acceptance: float = 0.0
    """Chance that a draft token is accepted, given that those before it were."""
    seed: int = 0
    """Of the acceptance."""

    def __post_init__(self) -> None:
        n = len(self.arrival_ns)
        for name in ("arrival_ns", "input_len", "output_len", "priority", "prefix_keys", "prefix_offset",
                     "after", "think_ns"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.int64))
        for name, value in (("priority", 0), ("after", -1), ("think_ns", 0)):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(n, value))
        if not len(self.prefix_offset):
            object.__setattr__(self, "prefix_offset", np.zeros(n + 1, dtype=np.int64))
        same = {len(self.input_len), len(self.output_len), len(self.priority), len(self.prefix_offset) - 1,
                len(self.after), len(self.think_ns)}
        waited_for = self.after[self.after >= 0]
        rules = {
            "the columns differ in length": same == {n},
            "arrival_ns decreases": not n or bool(np.all(np.diff(self.arrival_ns) >= 0)),
            "input_len and output_len must be at least 1":
                bool(np.all(self.input_len >= 1) and np.all(self.output_len >= 1)),
            "prefix_offset does not fit prefix_keys":
                self.prefix_offset[0] == 0 and self.prefix_offset[-1] == len(self.prefix_keys)
                and bool(np.all(np.diff(self.prefix_offset) >= 0)),
            "a request waits for itself or for one behind it":
                same != {n} or bool(np.all(self.after < np.arange(n))),
            "two requests wait for the same one": len(np.unique(waited_for)) == len(waited_for),
            "think_ns must be at least 0": bool(np.all(self.think_ns >= 0)),
            "draft_acceptance must be from 0 to 1": 0 <= self.draft_acceptance <= 1,
        }
        for rule, holds in rules.items():
            if not holds:
                raise ValueError(rule)

    def __len__(self) -> int:
        return len(self.arrival_ns)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Played:
    """What the requests of a SimulatedLoad got, in its order; times in nanoseconds, -1 for never."""

    refused: Bool
    """Could never fit (max_model_len, or more blocks than there are); they have no tokens."""
    not_sent: Bool
    """Waited for one that was refused, or not sent either."""
    due_ns: Int64
    """The arrival, or when the request before it had ended and think_ns had passed, if that was later."""
    sent_ns: Int64
    """`due_ns`, or the moment a place under a concurrency cap became free, if that was later."""
    first_scheduled_ns: Int64
    end_ns: Int64
    """When its last token was read."""
    reads_offset: Int64
    """Shape (n + 1,): the reads of request i are `read_ns[reads_offset[i]:reads_offset[i + 1]]`."""
    read_ns: Int64
    read_tokens: Int32
    cached_tokens: Int64
    """Prompt tokens found in the prefix cache at the first admission."""
    preemptions: Int64
    steps: StepLog
    num_steps: int
    simulated_ns: int
    """From the first arrival to the end of the last step."""
