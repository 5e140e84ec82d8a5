"""Random cases: small prompts and answers, so that a step is quick, under every knob there is."""

from typing import Any

import numpy as np

from engine_adapter.simulator.differential.case import Abort, Case, CaseRequest, Change
from engine_adapter.simulator.settings import SchedulerSettings

_OWN_BLOCK = -1


def random_case(seed: int, *, scale: float = 1.0) -> Case:
    """Case number `seed`, the same in every process; about `scale` times 50 requests."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["wide", "tight", "tiny"], p=[0.4, 0.35, 0.25]))
    shape = _shape(rng)
    shape |= _tight(rng, shape) if kind == "tight" else _tiny(rng, shape) if kind == "tiny" else {}
    requests = _requests(rng, shape, scale, kind != "wide")
    draft = Case(settings=SchedulerSettings(**shape, num_kv_blocks=2), requests=requests)
    shape["num_kv_blocks"] = _num_blocks(rng, draft, kind != "wide")
    last = requests[-1].turn + int(rng.integers(1, 60))
    return Case(
        settings=SchedulerSettings(**shape), requests=requests,
        aborts=_aborts(rng, len(requests), last) if rng.random() < 0.3 else (),
        changes=_changes(rng, shape, last) if rng.random() < 0.25 else (),
        resets=tuple(sorted(set(rng.integers(0, last + 100, 20).tolist())))
        if shape["prefix_caching"] and rng.random() < 0.2 else (),
        draft_acceptance=float(rng.choice([0.0, 0.3, 0.7, 0.9, 1.0])), seed=int(rng.integers(1 << 31)))


def _shape(rng: np.random.Generator) -> dict[str, Any]:
    """All settings but the number of KV blocks."""
    max_model_len = int(rng.choice([64, 200, 512, 700, 1024]))
    spec = int(rng.integers(1, 6)) if rng.random() < 0.3 else 0
    method = str(rng.choice(["eagle", "draft_model", "ngram"])) if spec else "eagle"
    overlap = bool(rng.random() < 0.4) and method != "ngram"
    chunked = bool(rng.random() < 0.85)
    budget = _log_uniform(rng, 2 + 2 * spec if rng.random() < 0.2 else 24, 1024)
    if not chunked:
        budget = max_model_len + int(rng.integers(0, 200))
    return {
        "token_budget": budget,
        # With room for the slots of drafts.
        "input_budget": budget + int(rng.integers(0, 80)) if rng.random() < 0.3 else None,
        "max_seqs": _log_uniform(rng, 1 if rng.random() < 0.2 else 6, 48),
        "max_model_len": max_model_len,
        "block_size": int(rng.choice([8, 8, 16, 16, 32, 128])),
        "long_prefill_token_threshold": _cap(rng, spec) if rng.random() < 0.35 else 0,
        "adaptive_long_prefill": bool(rng.random() < 0.5),
        "priority": bool(rng.random() < 0.4),
        "prefix_caching": bool(rng.random() < 0.6),
        "chunked_prefill": chunked,
        "reserve_full_isl": bool(rng.random() < 0.5),
        "watermark": float(rng.choice([0.0, 0.0, 0.01, 0.1, 0.4, 0.8])),
        "num_spec_tokens": spec,
        "draft_method": method,
        "async_scheduling": overlap,
        "pipeline_parallel": int(rng.choice([1, 1, 1, 2, 3, 4])) if overlap or not spec else 1,
    }


def _tight(rng: np.random.Generator, shape: dict[str, Any]) -> dict[str, Any]:
    """Changes to `shape`: running requests compete for tokens and blocks in most steps."""
    size = int(rng.choice([8, 8, 16, 32]))
    if not shape["chunked_prefill"]:
        return {"block_size": size}
    seqs, decode = int(rng.integers(3, 17)), 1 + shape["num_spec_tokens"]
    budget = int(rng.integers(1 + decode, 2 + decode * seqs * 3 // 2))
    return {"block_size": size, "max_seqs": seqs, "token_budget": budget, "watermark": 0.0,
            "priority": bool(rng.random() < 0.6),
            "input_budget": budget + int(rng.integers(0, 8)) if shape["input_budget"] else None}


def _tiny(rng: np.random.Generator, shape: dict[str, Any]) -> dict[str, Any]:
    """Changes to `shape`: numbers so small that every limit is often met exactly."""
    length, spec = int(rng.integers(6, 40)), min(shape["num_spec_tokens"], 3)
    budget = int(rng.integers(2 + spec, 2 + spec + length // 2))
    if not shape["chunked_prefill"]:
        budget = length + int(rng.integers(0, 6))
    return {"max_model_len": length, "block_size": int(rng.integers(1, 6)), "token_budget": budget,
            "max_seqs": int(rng.integers(1, 7)), "num_spec_tokens": spec,
            "input_budget": budget + int(rng.integers(0, 4)) if shape["input_budget"] else None,
            "long_prefill_token_threshold":
                spec + int(rng.integers(1, 6)) if shape["long_prefill_token_threshold"] else 0}


def _requests(rng: np.random.Generator, shape: dict[str, Any], scale: float, tight: bool,
              ) -> tuple[CaseRequest, ...]:
    count = max(1, round(scale * int(rng.integers(20, 80))))
    longest_prompt = min(
        _log_uniform(rng, 4, 100) if tight or rng.random() < 0.4 else int(rng.integers(100, 601)),
        shape["max_model_len"] - 1)
    longest_answer = 60 if tight or rng.random() < 0.7 else _log_uniform(rng, 1, 60)
    burst = rng.random() * (0.4 if tight else 1)    # to all at once
    turns = np.cumsum(np.where(rng.random(count) < burst, 0, rng.geometric(0.15, count)))
    arrivals = _arrivals(rng, turns)
    tree = _PrefixTree(rng, shape["block_size"], longest_prompt)
    requests = []
    for row, turn in enumerate(turns.tolist()):
        input_len, keys = tree.prompt()
        room = shape["max_model_len"] - input_len
        answer = room if rng.random() < 0.1 else int(rng.integers(1, longest_answer + 1))
        requests.append(CaseRequest(
            turn=turn, input_len=input_len, output_len=min(answer, room, 60),
            arrival_ns=arrivals[row],
            priority=int(rng.integers(0, 4)) if shape["priority"] else 0,
            prefix_keys=keys if shape["prefix_caching"] else ()))
    return tuple(requests)


def _arrivals(rng: np.random.Generator, turns: np.ndarray) -> list[int]:
    """Mostly in the order in which they are added; sometimes a little apart from it, as the stamps of
    several front ends are; sometimes several at the same moment. Of requests that arrived at the same
    moment with equal priority, vLLM 0.32 preempts the one admitted first, which can go on for ever."""
    rows = np.arange(len(turns))
    kind = rng.random()
    if kind < 0.2:
        return list((turns // 3).tolist())
    return list((rows if kind < 0.7 else rows + rng.integers(0, 5, len(rows))).tolist())


class _PrefixTree:
    """Prompts that share prefixes: each is a path from a root of a growing tree of KV blocks."""

    def __init__(self, rng: np.random.Generator, block_size: int, longest: int) -> None:
        self._rng, self._block_size, self._longest = rng, block_size, longest
        self._nodes = 0
        self._children: dict[int, list[int]] = {}
        self._new = float(rng.choice([0.02, 0.1, 0.5]))
        """How often a path leaves what is there."""
        self._share = float(rng.choice([0.3, 0.8, 1.0]))
        """How much of a prompt can be shared."""

    def prompt(self) -> tuple[int, tuple[int, ...]]:
        """A length, and the contents of its first full blocks."""
        rng, size = self._rng, self._block_size
        length = int(rng.integers(1, self._longest + 1))
        full = length // size
        keys, at = [], -1
        for _ in range(int(rng.integers(0, round(full * self._share) + 1, 2).max())):
            known = self._children.setdefault(at, [])
            if not known or rng.random() < self._new:
                known.append(self._nodes)
                self._nodes += 1
                at = known[-1]
            else:
                at = known[int(rng.integers(len(known)))]
            keys.append(at)
        end = rng.random()
        if end < 0.2 and keys:    # where its shared blocks end
            length = len(keys) * size
        elif end < 0.4 and len(keys) * size < self._longest:    # one token behind them, or a single token
            length = len(keys) * size + 1
        elif end < 0.7:
            keys += [_OWN_BLOCK] * (full - len(keys))
        return length, tuple(keys)


def _num_blocks(rng: np.random.Generator, case: Case, tight: bool) -> int:
    """From just enough for the longest request to enough for all at once."""
    size, least = case.settings.block_size, case.blocks_needed()
    running = sorted((1 + (request.input_len + request.output_len) // size for request in case.requests),
                     reverse=True)[:case.settings.max_seqs]
    pressure = rng.random()
    if tight:
        return least + int(pressure * sum(running) / 2)
    if pressure < 0.3:
        return least + int(rng.integers(0, 4))
    if pressure < 0.8:
        return least + int(rng.integers(0, max(sum(running) // 2, 1)))
    return least + sum(running) + int(rng.integers(0, 200))


def _aborts(rng: np.random.Generator, requests: int, last: int) -> tuple[Abort, ...]:
    count = int(rng.integers(1, 1 + requests // 2 + 1))
    return tuple(sorted(
        (Abort(turn=int(rng.integers(0, last)), row=int(rng.integers(requests)),
               under_way=bool(rng.random() < 0.5)) for _ in range(count)), key=lambda abort: abort.turn))


def _changes(rng: np.random.Generator, shape: dict[str, Any], last: int) -> tuple[Change, ...]:
    spec, chunked = shape["num_spec_tokens"], shape["chunked_prefill"]
    changes = []
    for turn in sorted(rng.integers(0, last, int(rng.integers(1, 6))).tolist()):
        budget = _log_uniform(rng, 2 + 2 * spec, 1024)
        changes.append(Change(turn=turn, knobs={
            "token_budget": budget if chunked else shape["max_model_len"] + budget,
            "max_seqs": _log_uniform(rng, 1, 48),
            "long_prefill_token_threshold":
                _cap(rng, spec) if rng.random() < 0.5 else 0,
            "adaptive_long_prefill": bool(rng.random() < 0.5),
        }))
    return tuple(changes)


def _cap(rng: np.random.Generator, spec: int) -> int:
    """Longer than a decode with its drafts: vLLM 0.32 fails where the cap cuts one."""
    return _log_uniform(rng, spec + 1 if rng.random() < 0.2 else 16, 300)


def _log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))
