"""Turns of conversations in simulated time: each waits for the one before it, and for a place."""

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from engine_adapter.simulator.load import SimulatedLoad
from engine_adapter.simulator.play import play
from engine_adapter.simulator.scheduler import Scheduler
from engine_adapter.simulator.settings import SchedulerSettings
from engine_adapter.simulator.state_arrays import most_in_flight, rejected
from engine_adapter.simulator.step_cost import StepCost
from engine_adapter.simulator.step_times import StepTimes

MS = 1_000_000
SMALL = SchedulerSettings(token_budget=32, max_seqs=4, max_model_len=200, num_kv_blocks=100, block_size=8)
COST = StepCost.linear(fixed_ns=3e6, token_ns=2e4, most_tokens=64, chunk_ns=1e5, chunk_pair_ns=3.0,
                       chunk_kv_ns=40.0, decode_ns=2e4, decode_kv_ns=7.0, host_ns=4e5, host_request_ns=900.0,
                       arrival_ns=2e5, arrival_token_ns=100.0, delivery_ns=3e5)
WAYLESS = replace(COST, arrival_ns=0, arrival_token_ns=0, delivery_ns=0)


@st.composite
def loads(draw):
    """A few conversations, some at once, some far apart; a turn may be too long for the model."""
    n = draw(st.integers(1, 24))
    gaps = draw(st.lists(st.sampled_from([0, 1000, 5 * MS, 40 * MS]), min_size=n, max_size=n))
    speaker = draw(st.lists(st.integers(0, 6), min_size=n, max_size=n))
    last, after, lengths, keys = {}, [], [], []
    for row, who in enumerate(speaker):
        before = last.get(who, -1) if who else -1   # number 0 only ever asks once
        added = draw(st.sampled_from([1, 7, 20, 30, 60, 250]))
        spoken = sum(lengths[before]) if before >= 0 else 0
        lengths.append((spoken + added, draw(st.integers(1, 12))))
        after.append(before)
        # Whole blocks of the conversation so far, answers included, by number of conversation and place.
        keys.append([who * 1000 + place for place in range(sum(lengths[-1]) // 8)] if who else [])
        last[who] = row
    return SimulatedLoad(
        arrival_ns=np.cumsum(gaps), input_len=[one for one, _ in lengths],
        output_len=[one for _, one in lengths], after=after,
        think_ns=draw(st.lists(st.sampled_from([0, 0, 3 * MS, 100 * MS]), min_size=n, max_size=n)),
        priority=draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)),
        prefix_keys=[key for some in keys for key in some], prefix_offset=np.cumsum([0, *map(len, keys)]))


schedulers = st.builds(
    SchedulerSettings, token_budget=st.sampled_from([8, 32, 100]), max_seqs=st.sampled_from([1, 3, 8]),
    max_model_len=st.just(190), num_kv_blocks=st.sampled_from([26, 200]), block_size=st.just(8),
    long_prefill_token_threshold=st.sampled_from([0, 16]), priority=st.booleans(),
    prefix_caching=st.booleans(), async_scheduling=st.booleans(),
    pipeline_parallel=st.sampled_from([1, 1, 2]))


class Naive:
    """The same in plain Python: a scheduler that is driven step by step, and lists that are searched."""

    def __init__(self, load, settings, cost, cap):
        self.load, self.settings, self.cap = load, settings, cap
        self.times = StepTimes(settings, cost, int(load.arrival_ns[0]))
        self.scheduler = Scheduler(settings)
        self.due = {row: int(load.arrival_ns[row]) for row in range(len(load)) if load.after[row] < 0}
        self.free = deque([self.times.now_ns] * (cap or 0))
        self.coming, self.row_of = [], {}
        self.sent, self.was_due = {}, dict(self.due)
        self.reads = [[] for _ in range(len(load))]
        self.cached = {}
        self.play()

    def next_send(self):
        """When and who, or None."""
        if not self.due or (self.cap and not self.free):
            return None
        row = min(self.due, key=lambda row: (self.due[row], row))
        return max(self.due[row], self.free[0] if self.cap else 0), row

    def send_due(self):
        while (following := self.next_send()) and following[0] <= self.times.now_ns:
            sent, row = following
            del self.due[row]
            self.sent[row] = sent
            if rejected(self.settings, int(self.load.input_len[row]), int(self.load.output_len[row])):
                continue
            if self.cap:
                self.free.popleft()
            seen = self.times.visible_ns(sent, int(self.load.input_len[row]))
            self.coming.append((seen, len(self.sent), row))

    def look(self):
        self.send_due()
        for seen, _, row in sorted(self.coming):
            if seen <= self.times.now_ns:
                keys = self.load.prefix_keys[self.load.prefix_offset[row]:self.load.prefix_offset[row + 1]]
                added = self.scheduler.add(
                    int(self.load.input_len[row]), int(self.load.output_len[row]), prefix_keys=keys.tolist(),
                    arrival_ns=self.sent[row] * 4096 + len(self.row_of),
                    priority=int(self.load.priority[row]))
                self.row_of[added] = row
        self.coming = [one for one in self.coming if one[0] > self.times.now_ns]

    def wait(self):
        """Whether anybody comes."""
        while (following := self.next_send()) and (
                not self.coming or following[0] <= min(self.coming)[0]):
            self.times.now_ns = max(self.times.now_ns, following[0])
            self.send_due()
        if self.coming:
            self.times.now_ns = max(self.times.now_ns, min(self.coming)[0])
        return bool(self.coming)

    def play(self):
        queue, most = deque(), most_in_flight(self.settings)
        while True:
            self.look()
            if self.scheduler.has_work:
                step = self.scheduler.schedule()
                self.times.note_preemptions(len(step.preempted))
                if len(step):
                    self.times.launch(step, self.row_of.__getitem__)
                elif not any(len(earlier) for earlier in queue):
                    queue.clear()
                    if len(step.preempted):
                        self.times.pause()
                    elif not self.wait():
                        return
                    continue
                queue.append(step)
                if len(queue) < most:
                    continue
            elif not queue:
                if not self.wait():
                    return
                continue
            if len(oldest := queue.popleft()):
                self.finish(oldest)

    def finish(self, step):
        read = self.times.end_oldest()
        outputs = self.scheduler.update(step)
        for added, ended in zip(outputs.rows.tolist(), outputs.finished.tolist(), strict=True):
            row = self.row_of[added]
            self.reads[row].append(read)
            if ended:
                self.free.append(read)
                for later in np.flatnonzero(self.load.after == row).tolist():
                    self.due[later] = self.was_due[later] = max(
                        int(self.load.arrival_ns[later]), read + int(self.load.think_ns[later]))


@examples(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(load=loads(), settings=schedulers, cost=st.sampled_from([COST, WAYLESS]),
       cap=st.sampled_from([None, None, 1, 3]))
def test_turns_are_sent_as_plain_python_sends_them(load, settings, cost, cap):
    """Every turn due, sent and read at the same nanosecond, with the same steps, alone or under a cap."""
    naive, played = Naive(load, settings, cost, cap), play(load, settings, cost, max_concurrency=cap)
    n = range(len(load))
    assert played.due_ns.tolist() == [naive.was_due.get(row, -1) for row in n]
    assert played.sent_ns.tolist() == [naive.sent.get(row, -1) for row in n]
    reads = np.split(played.read_ns, played.reads_offset[1:-1])
    assert [one.tolist() for one in reads] == naive.reads
    log = naive.times.taken_log()
    for name, column in (played.steps.steps | played.steps.chunks).items():
        np.testing.assert_array_equal(column, (log.steps | log.chunks)[name], name)


@examples(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(load=loads(), settings=schedulers, cap=st.sampled_from([None, 1, 3]))
def test_a_turn_is_never_early_and_the_shortcut_changes_nothing(load, settings, cap):
    """Sent at its time or when its predecessor was read and its reader had thought, whichever is later."""
    played = play(load, settings, COST, max_concurrency=cap)
    for row in range(len(load)):
        before = load.after[row]
        failed = before >= 0 and (played.refused[before] or played.not_sent[before])
        assert played.not_sent[row] == failed
        if failed:
            assert (played.due_ns[row], played.sent_ns[row], played.end_ns[row]) == (-1, -1, -1)
            assert played.reads_offset[row] == played.reads_offset[row + 1]
            continue
        earliest = played.end_ns[before] + load.think_ns[row] if before >= 0 else 0
        assert played.due_ns[row] == max(load.arrival_ns[row], earliest)
        assert played.sent_ns[row] >= played.due_ns[row]
        assert cap or played.sent_ns[row] == played.due_ns[row]
    slow = play(load, settings, COST, max_concurrency=cap, step_by_step=True)
    for name in ("due_ns", "sent_ns", "end_ns", "read_ns", "cached_tokens", "preemptions"):
        np.testing.assert_array_equal(getattr(played, name), getattr(slow, name), name)
    for name, column in played.steps.steps.items():
        np.testing.assert_array_equal(column, slow.steps.steps[name], name)


def test_the_times_of_a_conversation():
    """Three turns: the second waits for its reader, the third for its intended time."""
    load = SimulatedLoad(arrival_ns=[0, 10, 900 * MS], input_len=[8, 16, 24], output_len=[1, 1, 1],
                         after=[-1, 0, 1], think_ns=[0, 50 * MS, 1 * MS])
    played = play(load, SMALL, StepCost.linear(fixed_ns=2 * MS, token_ns=0))
    assert played.end_ns.tolist() == [2 * MS, 54 * MS, 902 * MS]
    assert played.due_ns.tolist() == played.sent_ns.tolist() == [0, 52 * MS, 900 * MS]


def test_a_later_turn_finds_prompt_and_answer_in_the_cache():
    """Whole blocks of both, but for the last token of the answer, which was never computed."""
    load = SimulatedLoad(arrival_ns=[0, 0], input_len=[20, 60], output_len=[20, 1], after=[-1, 0],
                         prefix_keys=[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5], prefix_offset=[0, 5, 11])
    assert play(load, replace(SMALL, prefix_caching=True), COST).cached_tokens.tolist() == [0, 32]


def test_whoever_was_due_first_gets_the_place():
    """Under a cap of one: a later turn goes before the first turns that are due after it."""
    cost = StepCost.linear(fixed_ns=10 * MS, token_ns=0)
    load = SimulatedLoad(arrival_ns=[0, 0, 5 * MS, 11 * MS], input_len=[8] * 4, output_len=[1] * 4,
                         after=[-1, 0, -1, -1])
    played = play(load, SMALL, cost, max_concurrency=1)
    assert played.due_ns.tolist() == [0, 10 * MS, 5 * MS, 11 * MS]
    assert np.argsort(played.sent_ns).tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize(("columns", "why"), [
    ({"after": [0, -1]}, "waits for itself"),
    ({"after": [1, -1]}, "waits for itself"),
    ({"after": [-1]}, "differ in length"),
    ({"think_ns": [-1, 0]}, "think_ns"),
])
def test_impossible_turns_are_refused(columns, why):
    """A load that contradicts itself is no load."""
    with pytest.raises(ValueError, match=why):
        SimulatedLoad(arrival_ns=[0, 0], input_len=[1, 1], output_len=[1, 1], **columns)


def test_two_that_wait_for_one_are_refused():
    """A conversation is a chain."""
    with pytest.raises(ValueError, match="wait for the same"):
        SimulatedLoad(arrival_ns=[0] * 3, input_len=[1] * 3, output_len=[1] * 3, after=[-1, 0, 0])
