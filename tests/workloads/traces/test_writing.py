"""Plans as trace files: nothing is lost, and what prompts share they share in the file."""

import csv
import io
import json
from dataclasses import replace
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.errors import UsageError
from workloads.plan import Plan
from workloads.prompt_parts import PromptBlocks, part_tokens
from workloads.traces import Trace, read_trace
from workloads.traces.shaping import first_of_session
from workloads.traces.writing import BLOCK_SIZE, OutputFormat, trace_lines, written_times

VOCABULARY = 1 << 40
"""So large that no two tokens are equal by chance."""


def plan_of(lengths: list[tuple[int, int]], *, at_ns: list[int] | None = None,
            session: list[int] | None = None, group: list[int] | None = None,
            prefix_lens: tuple[int, ...] = (), keys: list[list[int]] | None = None, size: int = 16,
            think_ns: list[int] | None = None, tenants: tuple[str, ...] = ()) -> Plan:
    n = len(lengths)
    session = session or [-1] * n
    blocks = None
    if keys is not None:
        offset = np.cumsum([0, *(len(one) for one in keys)])
        blocks = PromptBlocks(size, np.array([key for one in keys for key in one], dtype=np.int64), offset)
    return Plan(
        intended_ns=np.array(at_ns or [0] * n), input_len=np.array([i for i, _ in lengths]),
        output_len=np.array([o for _, o in lengths]), component=np.arange(n) % max(1, len(tenants)),
        prefix_group=np.array(group or [-1] * n), session=np.array(session),
        turn=np.array([session[:i].count(session[i]) if session[i] >= 0 else 0 for i in range(n)]),
        num_warmups=0, seed=5, rate_rps=1.0, component_names=tenants or ("a",), component_tenants=tenants,
        prefix_lens=np.array(prefix_lens, dtype=np.int32), blocks=blocks,
        think_ns=np.array(think_ns or [0] * n))


def written(plan: Plan, form: OutputFormat, answer_token_ns: int = 0) -> bytes:
    times_ns = written_times(plan, form, answer_token_ns=answer_token_ns)
    return b"".join(trace_lines(plan, form, times_ns))


def rows_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line, parse_float=Decimal) for line in data.splitlines()]


@st.composite
def plans(draw: Any) -> Plan:
    """Prompts of a few blocks of 16 tokens that share blocks, prefixes and what was said before."""
    n = draw(st.integers(1, 8))
    lengths = [(draw(st.integers(1, 100)), draw(st.integers(1, 20))) for _ in range(n)]
    session = [draw(st.sampled_from([-1, -1, 0, 1])) for _ in range(n)]
    last: dict[int, tuple[int, int]] = {}
    for row, number in enumerate(session):
        if number >= 0 and number in last and draw(st.booleans()):   # a later turn that holds all before it
            lengths[row] = (sum(last[number]) + lengths[row][0], lengths[row][1])
        last[number] = lengths[row]
    keys = None
    if draw(st.booleans()):
        keys = [draw(st.lists(st.sampled_from([7, -8, 2**62]), max_size=7)) for _ in range(n)]
        if draw(st.booleans()):
            session = [-1] * n
    group = [draw(st.sampled_from([-1, 0, 1])) for _ in range(n)] if draw(st.booleans()) else None
    return plan_of(lengths, session=session, group=group, keys=keys,
                   size=draw(st.sampled_from([16, 16, 8, 48, 5])), prefix_lens=draw(st.sampled_from(
                       [(), (40, 33)])))


@settings(max_examples=150)
@given(plans())
def test_ids_are_equal_where_whole_blocks_are(plan: Plan) -> None:
    """Two prompts begin with as many equal ids of whole blocks as with equal tokens, and a row has an id for
    every block that it begins."""
    rows = rows_of(written(plan, "timed-trace"))
    assert [len(row["hash_ids"]) for row in rows] == [-(-length // 16) for length in plan.input_len.tolist()]
    tokens = [part_tokens(plan.prompt_parts(i), seed=0, salt="", vocab_size=VOCABULARY)
              for i in range(len(plan))]
    for a, b in combinations(range(len(plan)), 2):
        whole = min(len(tokens[a]), len(tokens[b])) // 16
        same_ids = np.array(rows[a]["hash_ids"][:whole]) == np.array(rows[b]["hash_ids"][:whole])
        same_tokens = (tokens[a][:whole * 16] == tokens[b][:whole * 16]).reshape(whole, 16).all(axis=1)
        assert np.logical_and.accumulate(same_ids).sum() == np.logical_and.accumulate(same_tokens).sum()


def test_blocks_of_the_same_size_keep_their_partial_ends() -> None:
    """The id of a last block that is cut short stays shared, and no new id is one of a shared block."""
    plan = plan_of([(1000, 1), (1000, 1), (2000, 1)], keys=[[-5, 2**62], [-5, 2**62], [-5]], size=512)
    assert [row["hash_ids"] for row in rows_of(written(plan, "mooncake"))] == [[0, 1], [0, 1], [0, 2, 3, 4]]


def test_prompts_that_share_nothing_have_ids_of_their_own() -> None:
    """No id comes twice, whatever the number of rows."""
    plan = plan_of([(40, 1)] * 10_000)
    ids = [number for row in rows_of(written(plan, "timed-trace")) for number in row["hash_ids"]]
    assert len(set(ids)) == len(ids) == 30_000


@given(st.lists(st.integers(0, 10**18), min_size=1, max_size=20),
       st.sampled_from([("timed-trace", 10**9), ("mooncake", 10**6), ("csv", 10**9)]))
def test_times_are_exact(at_ns: list[int], form: tuple[OutputFormat, int]) -> None:
    """Every nanosecond of the plan is in the file, in the unit of its format."""
    data = written(plan_of([(1, 1)] * len(at_ns), at_ns=sorted(at_ns)), form[0])
    if form[0] == "csv":
        told = [Decimal(row["timestamp_s"]) for row in csv.DictReader(io.StringIO(data.decode()))]
    else:
        told = [Decimal(row["timestamp"]) for row in rows_of(data)]
    assert [int(time * form[1]) for time in told] == sorted(at_ns)
    assert all(time * form[1] == int(time * form[1]) for time in told)


def test_turns_without_a_time_of_their_own_follow_their_answers() -> None:
    """Where no turn can wait, it is written when the answer before it is read and thought about; turns with
    recorded times keep them, and lines stay in order of time."""
    plan = plan_of([(16, 3), (32, 2), (16, 5), (48, 1)], at_ns=[0, 0, 10, 100], session=[0, 0, -1, 0],
                   think_ns=[0, 7, 0, 4])
    rows = rows_of(written(plan, "timed-trace", answer_token_ns=10))
    assert [(int(row["timestamp"] * 10**9), row["input_length"]) for row in rows] == [
        (0, 16), (10, 16), (37, 32), (100, 48)]
    assert written_times(plan, "csv", answer_token_ns=10).tolist() == [0, 0, 10, 100]


def test_csv_names_tenants_turns_and_prefixes() -> None:
    """Columns that say nothing are left out; a name with a comma is quoted."""
    assert written(plan_of([(5, 6)]), "csv") == b"timestamp_s,input_len,output_len\n0,5,6\n"
    plan = plan_of([(5, 6), (7, 8), (20, 9)], session=[-1, 4, 4], think_ns=[0, 0, 1_500_000_000],
                   tenants=("a, b", "c"))
    assert written(plan, "csv").decode().splitlines() == [
        "timestamp_s,input_len,output_len,tenant,session,turn,think_time_s",
        '0,5,6,"a, b",,0,0', "0,7,8,c,4,0,0", '0,20,9,"a, b",4,1,1.5']
    grouped = plan_of([(5, 6), (7, 8), (9, 1)], group=[1, -1, 7], prefix_lens=(4, 3))
    assert written(grouped, "csv").decode().splitlines() == [
        "timestamp_s,input_len,output_len,prefix_group,prefix_len", "0,5,6,1,3", "0,7,8,,0", "0,9,1,,0"]


@settings(max_examples=40, deadline=None)
@given(plans(), st.data())
def test_csv_is_read_back(plan: Plan, data: st.DataObject) -> None:
    """Our reader finds the times, lengths, conversations, thinking times and prefixes of the plan."""
    think_ns = st.lists(st.integers(0, 10**12), min_size=len(plan), max_size=len(plan))
    at_ns = st.lists(st.integers(0, 10**12), min_size=len(plan), max_size=len(plan)).map(sorted)
    plan = replace(plan, blocks=None, think_ns=data.draw(think_ns), intended_ns=data.draw(at_ns),
                   input_len=plan.input_len + 40)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "plan.csv"
        file.write_bytes(written(plan, "csv"))
        trace = read_trace(file, format="csv")
    assert trace.arrival_ns.tolist() == (plan.intended_ns - plan.intended_ns[0]).tolist()
    assert trace.input_len.tolist() == plan.input_len.tolist()
    assert trace.output_len.tolist() == plan.output_len.tolist()
    assert first_of_session(trace.session).tolist() == first_of_session(plan.session).tolist()
    talks = plan.session >= 0
    assert trace.turn[talks].tolist() == plan.turn[talks].tolist()
    assert trace.think_ns[talks].tolist() == plan.think_ns[talks].tolist()
    assert prefixes(trace) == prefixes(plan)


def prefixes(made: Plan | Trace) -> list[tuple[int, int]]:
    """By request, the first that begins alike, and so many tokens; -1 and 0 for none."""
    found, first = [], dict[int, int]()
    for row, group in enumerate(made.prefix_group.tolist()):
        shares = 0 <= group < len(made.prefix_lens) and made.prefix_lens[group] > 0
        found.append((first.setdefault(group, row), int(made.prefix_lens[group])) if shares else (-1, 0))
    return found


class _Words:
    """As much of a tokenizer as vLLM's dataset asks for."""

    all_special_ids = (0, 1)

    def get_vocab(self) -> dict[str, int]:
        return {str(number): number for number in range(50_000)}


@pytest.mark.engine
@pytest.mark.parametrize("form", ["timed-trace", "mooncake"])
def test_vllm_reads_what_is_written(form: OutputFormat, tmp_path: Path) -> None:
    """`vllm bench serve --dataset-name timed_trace` sends the same lengths at the same times, and equal
    tokens where prompts share blocks."""
    datasets = pytest.importorskip("vllm.benchmarks.datasets.datasets")
    size = BLOCK_SIZE[form]
    plan = plan_of([(2 * size + 3, 5), (3 * size, 1), (1, 9)], at_ns=[5, 123_456_789_012, 10**12],
                   group=[0, 0, 0], prefix_lens=(2 * size,))
    file = tmp_path / "trace.jsonl"
    file.write_bytes(written(plan, form))
    options = {"label_timestamp": "timestamp", "label_input_length": "input_length",
               "label_output_length": "output_length", "label_hash_ids": "hash_ids"}
    if form == "mooncake":
        options |= {"chunk_hash_size": "512", "sec_multiplier": "0.001"}
    trace = datasets.TimedTrace(dataset_path=str(file), random_seed=0,
                                **{f"timed_trace_{name}": value for name, value in options.items()})
    sent = trace.sample(tokenizer=_Words(), num_requests=3)
    assert [request.prompt_len for request in sent] == plan.input_len.tolist()
    assert [request.expected_output_len for request in sent] == plan.output_len.tolist()
    assert [round(request.timestamp * 1e9) for request in sent] == plan.intended_ns.tolist()
    assert sent[0].prompt[:2 * size] == sent[1].prompt[:2 * size]
    assert sent[0].prompt[2 * size:] != sent[1].prompt[2 * size:2 * size + 3]


def test_more_blocks_than_can_be_numbered_are_refused_with_what_to_do() -> None:
    """A million long prompts of conversations in blocks of 16 tokens would take many gigabytes."""
    plan = Plan(
        intended_ns=np.arange(400), input_len=np.full(400, 2_000_000), output_len=np.ones(400),
        component=np.zeros(400), prefix_group=np.full(400, -1), session=np.zeros(400), turn=np.arange(400),
        num_warmups=0, seed=0, rate_rps=1, component_names=("a",))
    with pytest.raises(UsageError, match=r"too many to number at once.*mooncake"):
        list(trace_lines(plan, "timed-trace", plan.intended_ns))
