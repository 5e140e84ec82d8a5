"""What became of the requests that did not succeed, by kind, each with the first thing that was said."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench import Outcome, Run
from reports.quantities import share
from reports.tolerant import text

_LONGEST_TEXT = 300
_UNTRIED = (Outcome.NOT_SENT, Outcome.CUT_SHORT)


@dataclass(frozen=True, slots=True)
class Failures:
    """Measured requests that ended in one way. `kind` is a key of `error_counts_by_kind`."""

    kind: str
    count: int
    status: int | None
    """The HTTP status, where it is the reason."""
    first_error: str
    """What the first of them said, in one line; empty where none said anything."""

    def __str__(self) -> str:
        status = f" {self.status}" if self.status else ""
        return f"{self.count} {self.kind.replace('_', ' ')}{status}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def failures_of(run: Run) -> tuple[Failures, ...]:
    """All ways in which requests failed, the most frequent first."""
    rows: dict[tuple[int, int], list[int]] = {}
    chosen = run.measured & (run.outcome != Outcome.OK)
    for index, outcome, status in zip(
        run.index[chosen].tolist(), run.outcome[chosen].tolist(), run.status[chosen].tolist(), strict=True
    ):
        rows.setdefault((outcome, status), []).append(index)
    found = [
        Failures(Outcome(outcome).name.lower(), len(indices), status or None, _first(run.error, indices))
        for (outcome, status), indices in rows.items()
    ]
    return tuple(sorted(found, key=lambda failures: (-failures.count, failures.kind, failures.status or 0)))


def failure_sentence(failures: Sequence[Failures], failed_share: float | None) -> str:
    """How many did not succeed, as which share, and why; empty where all did."""
    total = sum(each.count for each in failures)
    if not total:
        return ""
    # What the client never sent, or broke off itself, is no failure of the server's.
    untried = {outcome.name.lower() for outcome in _UNTRIED}
    of_whom = " of those attempted" if any(each.kind in untried for each in failures) else ""
    told = f" (failed: {share(round(failed_share, 9))}{of_whom})" if failed_share is not None else ""
    return f"{total} did not{told}: {', '.join(map(str, failures))}."


def first_errors(failures: Sequence[Failures]) -> tuple[str, ...]:
    """One line for each of these failures, which all said something."""
    return tuple(f"First of {each}: {each.first_error}" for each in failures)


def _first(errors: Mapping[int, str], indices: Sequence[int]) -> str:
    said = next((errors[index] for index in indices if errors.get(index)), "")
    line = " ".join(text(said).split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"
