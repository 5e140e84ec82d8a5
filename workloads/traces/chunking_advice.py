"""What the lengths and the arrivals of a load mean for chunked prefill, before anything is measured.

A step of vLLM carries at most the token budget (max_num_batched_tokens): first one token for each running
answer, then as much of the prompts as is left. A prompt above the budget is cut into chunks. So a budget
bounds how long a prompt can hold up the answers that run; what it costs is a later first token and, at small
budgets, work (Sarathi-Serve, arXiv 2403.02310: at most a quarter of the prefill at 512, little at 2048).
Nothing here is a latency: the one time in it, how fast answers are read, is assumed and said.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from workloads.traces.length_counts import LengthCounts
from workloads.traces.statistics import TraceStatistics

BUDGETS = (256, 512, 1024, 2048, 4096, 8192, 16384)
USUAL_BUDGET = 2048
"""What vLLM's optimization guide names for steady gaps between tokens."""
THROUGHPUT_BUDGET = 8192
"""What the same guide names for throughput."""
HARDLY = 0.05
"""At most one prompt token in twenty lies beyond the first 2048 of its prompt: all that a budget of 2048
moves to later steps."""
NOBODY = 0.1
"""Nine in ten long prompts meet no running answer that they could hold up."""
PROMPT_HEAVY = 50.0
"""Computed prompt tokens for each token of an answer: between conversations on long prompts (22 in Mooncake's
trace) and completions of code that nobody reads as they stream (73 in Azure's)."""
SHORT_ANSWER = 64
"""Tokens: the median answer is over in about three seconds at 50 ms a token."""
BURSTY = 2.0
"""Index of dispersion at 10 s; a Poisson process has 1."""
NOTABLE_REUSE = 0.1
RARELY_CUT = 0.01
TOKEN_INTERVAL_S = 0.05
"""Etalon's decode deadline (arXiv 2407.07000): one token every 50 ms."""

Verdict = Literal["good_fit", "hardly_matters", "first_token_bound", "few_streams", "depends_on_rate",
                  "nothing"]


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """What one token budget does to the prompts, each alone in its steps: with others beside it, and answers
    before it, a prompt gets more chunks."""

    token_budget: int
    prompts_cut: int
    """Prompts with more computed tokens than the budget."""
    share_of_prompts: float
    share_of_tokens: float
    """Computed prompt tokens that belong to these prompts."""
    mean_chunks: float
    """Of all prompts, 1 for those that fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The numbers that the advice rests on."""

    prompts: LengthCounts
    """Computed tokens of each prompt, prefix hits taken off where they are known."""
    whole_prompts: LengthCounts
    answers: LengthCounts
    rate_rps: float | None
    """None without arrival times."""
    dispersion_10s: float | None
    prefix_reuse: float | None
    """None where it is unknown."""
    token_interval_s: float = TOKEN_INTERVAL_S
    """How fast answers are taken to come, a token every so many seconds."""

    @classmethod
    def of(cls, statistics: TraceStatistics, *, token_interval_s: float = TOKEN_INTERVAL_S) -> "Load":
        """The numbers of a trace or plan."""
        whole, arrivals = statistics.all, statistics.all.arrivals
        timed, tokens = whole.timed, whole.input_len.total
        return cls(
            prompts=statistics.prompts, whole_prompts=whole.input_len, answers=whole.output_len,
            rate_rps=arrivals.rate_rps if timed else None,
            dispersion_10s=arrivals.dispersion(10, whole=True) if timed else None,
            prefix_reuse=whole.reused_tokens / tokens if statistics.sharing_known and tokens else None,
            token_interval_s=token_interval_s)

    @property
    def answers_running(self) -> float | None:
        """How many answers run at once on average, by Little's law, if each takes its tokens times
        `token_interval_s`; None without a rate."""
        mean = self.answers.mean
        return None if mean is None or self.rate_rps is None else self.rate_rps * mean * self.token_interval_s

    @property
    def chance_of_meeting(self) -> float | None:
        """That a prompt which comes finds at least one answer running, for Poisson arrivals (the number that
        runs is then Poisson too: M/G/∞)."""
        running = self.answers_running
        return None if running is None else -math.expm1(-running)

    @property
    def prompt_tokens_per_answer_token(self) -> float | None:
        """Computed prompt tokens for each token of an answer."""
        return self.prompts.total / self.answers.total if self.answers.total else None

    @property
    def beyond_usual(self) -> float | None:
        """Share of the computed prompt tokens that lie beyond the first 2048 of their prompt."""
        beyond = np.maximum(self.prompts.values - USUAL_BUDGET, 0) @ self.prompts.counts
        return int(beyond) / self.prompts.total if self.prompts.total else None

    def budget_row(self, token_budget: int) -> BudgetRow:
        """What this budget does to at least one prompt."""
        values, counts = self.prompts.values, self.prompts.counts
        cut, n = values > token_budget, self.prompts.n
        prompts_cut, tokens_cut = int(counts[cut].sum()), int(values[cut] @ counts[cut])
        chunks = int(np.maximum(-(-values // token_budget), 1) @ counts)
        return BudgetRow(token_budget, prompts_cut, prompts_cut / n,
                         tokens_cut / max(1, self.prompts.total), chunks / n)


@dataclass(frozen=True, slots=True)
class Advice:
    """Whether a load is a fit for chunked prefill, and why."""

    verdict: Verdict
    headline: str
    reasons: tuple[str, ...]
    """Sentences with the numbers behind the verdict."""
    budgets: tuple[BudgetRow, ...]
    decode_share: float | None
    """Answer tokens of all tokens that are computed."""
    answers_running: float | None
    chance_of_meeting: float | None
    token_interval_s: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def chunking_advice(load: Load) -> Advice:
    """The verdict on `load`, by the thresholds of this module."""
    # The cases, the first that holds: nothing to judge; no prompt long enough to matter; users wait for
    # first tokens, not for gaps; nobody knows when requests come; long prompts meet nobody; they meet.
    verdict, headline = _verdict(load)
    budgets = tuple(map(load.budget_row, BUDGETS)) if load.prompts.n else ()
    tokens = load.prompts.total + load.answers.total
    return Advice(
        verdict, headline, tuple(_reasons(load, budgets, verdict)) if budgets else (), budgets,
        load.answers.total / tokens if tokens else None, load.answers_running, load.chance_of_meeting,
        load.token_interval_s)


def _verdict(load: Load) -> tuple[Verdict, str]:
    beyond, chance = load.beyond_usual, load.chance_of_meeting
    if not load.prompts.n:
        return "nothing", "There is no request."
    if beyond is None or beyond <= HARDLY:
        return "hardly_matters", "The prompts are short: a usual budget cuts almost nothing off them."
    if is_first_token_bound(load):
        return "first_token_bound", ("Answers are short, so there is little to protect and users wait for "
                                     "the first token: start with a large budget.")
    if chance is None:
        return "depends_on_rate", ("Some prompts are long, but whether answers run when they come depends on "
                                   "the rate: the requests have no times, or came all at once.")
    if chance < NOBODY:
        return "few_streams", ("When a long prompt comes, mostly no answer runs that it could hold up: at "
                               "this rate there is little to gain.")
    return "good_fit", "Long prompts come while answers run, which chunking keeps fluent."


def is_first_token_bound(load: Load) -> bool:
    """Whether the prompts outweigh the answers, and half of the answers are short."""
    per_token, half = load.prompt_tokens_per_answer_token, load.answers.percentile(50)
    return (per_token is not None and half is not None
            and per_token >= PROMPT_HEAVY and half <= SHORT_ANSWER)


def _reasons(load: Load, budgets: tuple[BudgetRow, ...], verdict: Verdict) -> list[str]:
    return [reason for reason in (
        _about_length(load), _about_reuse(load), _about_answers(load), _about_meeting(load),
        _about_bursts(load), _about_range(load, budgets, verdict)) if reason]


def _about_length(load: Load) -> str:
    row = load.budget_row(USUAL_BUDGET)
    computed = " after prefix hits" if load.prefix_reuse else ""
    if not row.prompts_cut:
        return f"No prompt has more than {USUAL_BUDGET} tokens to compute{computed}."
    return (f"{_percent(row.share_of_prompts)} of the prompts have more than {USUAL_BUDGET} tokens to compute"
            f"{computed}; they hold {_percent(row.share_of_tokens)} of these tokens, and "
            f"{_percent(load.beyond_usual or 0)} lie beyond the first {USUAL_BUDGET} of their prompt.")


def _about_reuse(load: Load) -> str:
    if load.prefix_reuse is None:
        return "What the prompts share is unknown: with prefix hits less of them would be computed."
    whole, computed = load.whole_prompts.percentile(50), load.prompts.percentile(50)
    if load.prefix_reuse < NOTABLE_REUSE or whole is None or computed is None:
        return ""
    above = [counts.above(THROUGHPUT_BUDGET) / counts.n for counts in (load.whole_prompts, load.prompts)]
    long_ones = (f", the share above {THROUGHPUT_BUDGET} from {_percent(above[0])} to {_percent(above[1])}"
                 if above[0] else "")
    return (f"A prefix cache that forgets nothing holds {_percent(load.prefix_reuse)} of the prompt tokens: "
            f"the median prompt shrinks from {_tokens(whole)} to {_tokens(computed)} computed tokens"
            f"{long_ones}. A smaller cache leaves longer tails to cut.")


def _about_answers(load: Load) -> str:
    per_token, half, mean = (load.prompt_tokens_per_answer_token, load.answers.percentile(50),
                             load.answers.mean)
    if per_token is None or half is None or mean is None:
        return ""
    said = (f"For each token of an answer {_number(per_token)} prompt tokens are computed; answers have "
            f"{_tokens(mean) if mean >= 10 else _number(mean)} tokens on average, the median {_tokens(half)}")
    if is_first_token_bound(load):
        return f"{said}: there is little stream to stall, and most of the wait is for the first token."
    return f"{said}."


def _about_meeting(load: Load) -> str:
    running, chance, mean = load.answers_running, load.chance_of_meeting, load.answers.mean
    pace = f"a token of an answer comes every {_number(load.token_interval_s * 1e3)} ms"
    if mean is None:
        return ""
    if running is None or chance is None:
        return (f"If {pace}, one answer runs on average from "
                f"{_number(1 / (mean * load.token_interval_s))} requests/s on; far below that, a long prompt "
                f"meets nobody.")
    meets = "almost surely" if chance > 0.995 else f"with a chance of {_percent(chance)}"
    return (f"If {pace}, about {_number(running)} answers run at once at "
            f"{_number(load.rate_rps or 0)} requests/s and take a token each of every step first; a prompt "
            f"meets at least one {meets} (an estimate by Little's law for Poisson arrivals; nothing was "
            f"measured).")


def _about_bursts(load: Load) -> str:
    if load.dispersion_10s is None or load.dispersion_10s < BURSTY:
        return ""
    return (f"Requests come in bursts: over 10 s their number varies {_number(load.dispersion_10s)} times as "
            f"much as that of a Poisson process. Prompts then queue together, and the budget also bounds how "
            f"many share a step, however short they are.")


def _about_range(load: Load, budgets: tuple[BudgetRow, ...], verdict: Verdict) -> str:
    if verdict == "first_token_bound":
        large, small = load.budget_row(THROUGHPUT_BUDGET), load.budget_row(512)
        return (f"A budget of {large.token_budget} cuts {_percent(large.share_of_prompts)} of the prompts; "
                f"one of {small.token_budget} spreads them over {_number(small.mean_chunks)} steps on "
                f"average before the first token.")
    rarely = next((row for row in budgets if row.share_of_prompts <= RARELY_CUT), None)
    if rarely is None:
        last = budgets[-1]
        return (f"Even a budget of {last.token_budget} cuts {_percent(last.share_of_prompts)} of the "
                f"prompts, so the whole range of budgets makes a difference.")
    return (f"From a budget of {rarely.token_budget} on at most {_percent(RARELY_CUT)} of the prompts are "
            f"cut: a larger one only lets more of them share a step.")


_LEAST_SHARE = 1e-4


def _percent(share: float) -> str:
    if not share:
        return "none"
    return f"{_number(share * 100)} %" if share >= _LEAST_SHARE else "below 0.01 %"


def _tokens(count: float) -> str:
    return f"{count:,.0f}".replace(",", " ")


def _number(value: float) -> str:
    """Three significant digits, never an exponent."""
    if value >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.3g}" if value >= 1e-4 else f"{value:.1g}"
