"""Whether a run may be believed: a client that was late makes it invalid, not the engine slow."""

import numpy as np

from bench.delivery import delivery_delays_ns
from bench.run import NEVER, Bool, Int64, Outcome, Run, Validity

LAG_FLOOR_NS = 5_000_000
LAG_SHARE = 0.05
"""Late sends matter above the floor, above this share of the median TTFT, and above this share of the
mean time between arrivals: below either of these neither the figures nor the load are changed by them."""
LATE_READ_FLOOR_NS = 10_000_000
LATE_READ_SHARE_OF_TTFT = 0.05
"""Late reads, by the same reasoning; a timer that fires late by 1 ms is normal (see WallClock)."""
MIN_ACHIEVED_RATE = 0.97
"""Requests must be sent at this share of the planned rate at least, and places of a closed loop be
filled for this share of the time."""
READ_DELAY_FLOOR_NS = 5_000_000
MERGED_SHARE = 0.001
"""Messages stamped by the kernel have the right times however late they are read, unless several are read
at once. More than this share shows in a 99th percentile, if it was a client this late that joined them."""
MERGED_MESSAGES = 5
"""One or two of a short run say nothing about its client."""
SATURATED_CPU = 0.9
"""Of one core: beyond it a single-threaded client is late more and more often."""
OTHER_RATE_SHARE = 0.2
"""The rate of a run's planned sends may differ by so much from the one in its name before it is noted."""
SHORT_PROMPTS_SHARE = 0.02
"""Prompts may differ in total by so much from their planned lengths before it is noted."""
_MORE_CPU = "give it a CPU core of its own, or more --workers"
FEW_REQUESTS = 30
"""Below it even a median moves by a quarter of the spread from run to run."""
SHORT_ANSWERS_SHARE = 0.01


def judge_validity(run: Run, *, cut_short: str = "") -> Validity:
    """The verdict on `run`; `cut_short` says why it ended before its time, where it did.

    Reasons (invalid): ended early, nothing attempted, sends or reads late, rate not reached.
    Notes: few requests, answers shorter than planned, lost engine steps.
    """
    reasons = [f"the run was cut short: {cut_short}"] if cut_short else []
    attempted = int(run.attempted.sum())
    if not attempted:
        reasons.append("no measured request was attempted: plan a longer run")
    reasons += _lateness(run)
    notes = []
    if waited := held_back(run):
        notes.append(f"the cap of {run.meta['max_concurrency']} concurrent requests held {waited} back: "
                     f"figures from the intended time hold their wait, those from the sending do not")
    if 0 < attempted < FEW_REQUESTS:
        notes.append(f"only {attempted} requests: figures vary much from run to run; plan a longer run")
    short = int((run.num_tokens < run.output_len)[run.ok].sum())
    if short > SHORT_ANSWERS_SHARE * int(run.ok.sum()):
        notes.append(f"{short} answers ended before their planned length: the load was lighter than planned")
    longer = int((run.num_tokens > run.output_len)[run.ok].sum())
    if longer > SHORT_ANSWERS_SHARE * int(run.ok.sum()):
        got, asked = int(run.num_tokens[run.ok].sum()), int(run.output_len[run.ok].sum())
        reasons.append(f"{longer} answers held more tokens than were asked for ({got} where {asked} were "
                       f"planned): the server ignores the limit, or counts wrongly")
    notes += _prompt_lengths(run)
    notes += _other_rate(run)
    if (failed := attempted - int(run.ok.sum())) and run.engine_failure is None:
        counts = ", ".join(f"{n} {kind}" for kind, n in run.outcome_counts().items() if kind != "ok")
        if failed == attempted:
            reasons.append(f"not one request succeeded ({counts}){_first_error(run)}")
        else:
            notes.append(f"{failed} of {attempted} requests failed ({counts}){_first_error(run)}")
    if run.steps.lost:
        notes.append(f"{run.steps.lost} engine steps were overwritten before they were read: "
                     f"scheduling delays are not reported")
    return Validity(not reasons, tuple(reasons), tuple(notes))


def held_back(run: Run) -> int:
    """Measured requests that waited for a place under a concurrency cap, at a rate of their own."""
    if not run.meta.get("max_concurrency") or run.rate_rps == float("inf"):
        return 0
    sent = run.measured & (run.sent_ns != NEVER)
    return int((run.due_ns > run.intended_ns)[sent].sum())


def achieved_rate(run: Run) -> float | None:
    """Rate of the sends over the planned rate of the same requests, at most 1; measured rows only.

    None for fewer than two sends and where no rate was planned: all at once, or a closed loop.
    """
    if run.rate_rps == float("inf"):
        return None
    sent = run.measured & (run.sent_ns != NEVER)
    planned, actual = run.intended_ns[sent], run.sent_ns[sent]
    if len(planned) < 2 or planned.max() == planned.min():
        return None
    return min(1.0, float(planned.max() - planned.min()) / float(max(1, actual.max() - planned.min())))


def _lateness(run: Run) -> list[str]:
    ttft = (run.first_token_ns() - run.sent_ns)[run.ok]
    median_ttft = float(np.median(ttft)) if len(ttft) else 0.0
    reasons = []
    sent = run.measured & (run.sent_ns != NEVER)
    # All at once is no schedule that a client could keep.
    if run.rate_rps != float("inf") and sent.any():
        reasons += _late_sends((run.sent_ns - run.due_ns)[sent], median_ttft, _mean_gap_ns(run, sent))
        rate = achieved_rate(run)
        if rate is not None and rate < MIN_ACHIEVED_RATE and not held_back(run):
            reasons.append(f"requests were sent at {rate:.1%} of the planned rate: lower the rate or give "
                           f"the client more CPU")
    reasons += _empty_places(run, sent)
    reasons += _late_reads(run, median_ttft)
    reasons += _saturation(run)
    not_sent = int((run.measured & (run.outcome == Outcome.NOT_SENT)).sum())
    if not_sent and run.engine_failure is None:
        cap = run.meta.get("max_concurrency")
        held = bool(cap) and run.rate_rps != float("inf")
        reasons.append(f"{not_sent} planned requests were never sent"
                       + (f": the cap of {cap} concurrent requests held them back" if held else ""))
    return reasons


def _late_reads(run: Run, median_ttft: float) -> list[str]:
    """With a step log the delay of every token is known; without, a lagging event loop stands for it.
    Where the kernel stamped the reads neither touches their times; see `_saturation`."""
    if run.client.read_delay_p99_ns is not None:
        return []
    delays, what = delivery_delays_ns(run), "tokens came"
    late = None if delays is None else float(np.percentile(delays, 99))
    if late is None and run.client.loop_lag_p99_ns is not None:
        late, what = float(run.client.loop_lag_p99_ns), "event-loop lag"
    limit = max(LATE_READ_FLOOR_NS, LATE_READ_SHARE_OF_TTFT * median_ttft)
    if late is None or late <= limit:
        return []
    after = " after their engine step" if delays is not None else ""
    return [f"the client read late: {what} p99 {late / 1e6:.1f} ms{after} (limit {limit / 1e6:.1f} ms); give "
            f"it a CPU core of its own or lower the rate"]


def _empty_places(run: Run, sent: Bool) -> list[str]:
    """How much of a closed loop's concurrency the client lost between an answer and the next request."""
    cap = run.meta.get("max_concurrency")
    if not cap or run.rate_rps != float("inf"):
        return []
    # The first requests find their places free since the start: all at once is no schedule.
    later = sent & (run.due_ns > run.start_ns) & (run.end_ns != NEVER)
    idle, busy = int((run.sent_ns - run.due_ns)[later].sum()), int((run.end_ns - run.sent_ns)[later].sum())
    share = busy / (idle + busy) if idle + busy else 1.0
    # Refusals are answered in no time: beside them every pause is long.
    if share >= MIN_ACHIEVED_RATE or idle <= LAG_FLOOR_NS * int(later.sum()):
        return []
    return [f"the client filled its {cap} places for {share:.1%} of the time only: give it a CPU core of its "
            f"own, more --workers, or a lower concurrency"]


def _saturation(run: Run) -> list[str]:
    client, reasons = run.client, []
    delay_ns = client.read_delay_p99_ns
    merged = client.merged_share or 0.0
    some = merged > MERGED_SHARE and merged * len(run.read_ns) >= MERGED_MESSAGES
    if delay_ns is not None and delay_ns > READ_DELAY_FLOOR_NS and some:
        reasons.append(f"the client read late: messages lay in their sockets for {delay_ns / 1e6:.1f} ms "
                       f"(p99), and {merged:.1%} of them were read together: {_MORE_CPU}")
    if client.cpu_share is not None and client.cpu_share > SATURATED_CPU:
        reasons.append(f"the client kept its core busy for {client.cpu_share:.0%} of the time: use more "
                       f"--workers, or a lower load")
    return reasons


def _other_rate(run: Run) -> list[str]:
    """A short cut of a process with slow changes has a rate of its own, whatever the mean."""
    planned = run.intended_ns[run.measured]
    if run.rate_rps in (None, float("inf")) or len(planned) < FEW_REQUESTS or run.meta.get("stages"):
        return []
    assert run.rate_rps is not None   # by the line above
    span_ns = int(planned.max() - planned.min())
    if run.meta.get("max_concurrency") or not span_ns:
        return []
    rate = (len(planned) - 1) * 1e9 / span_ns
    if abs(rate / run.rate_rps - 1) <= max(OTHER_RATE_SHARE, 4 / len(planned) ** 0.5):
        return []
    return [f"the requests of this run came at {rate:.3g} a second: {run.rate_rps:.3g} is the mean of their "
            f"arrivals over a longer time"]


def _prompt_lengths(run: Run) -> list[str]:
    counted = run.ok & (run.prompt_tokens >= 0)
    asked, got = int(run.input_len[counted].sum()), int(run.prompt_tokens[counted].sum())
    if not asked or abs(got - asked) <= SHORT_PROMPTS_SHARE * asked:
        return []
    return [f"the server counted {got} prompt tokens where {asked} were planned ({got / asked - 1:+.1%})"]


def _first_error(run: Run) -> str:
    text = next((run.error[row] for row in run.index[run.measured].tolist() if row in run.error), "")
    return f": {text}" if text else ""


def _mean_gap_ns(run: Run, sent: Bool) -> float:
    """Mean time between the planned sends of these rows; 0 for fewer than two."""
    planned = run.intended_ns[sent]
    return float(planned.max() - planned.min()) / (len(planned) - 1) if len(planned) > 1 else 0.0


def _late_sends(lag_ns: Int64, median_ttft: float, mean_gap_ns: float) -> list[str]:
    limit = max(LAG_FLOOR_NS, LAG_SHARE * median_ttft, LAG_SHARE * mean_gap_ns)
    # Below 100 requests p99 is the single latest: a hiccup of one send would void the whole run.
    percentile = 100 * min(0.99, 1 - 1 / len(lag_ns))
    late = float(np.percentile(lag_ns, percentile))
    if late <= limit:
        return []
    return [f"the client sent late: schedule lag p{percentile:.0f} {late / 1e6:.1f} ms (limit "
            f"{limit / 1e6:.1f} ms); give it a CPU core of its own or lower the rate"]
