"""From recorded requests to components: classes of prompt length, so that answers stay tied to prompts."""

import itertools
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from workloads.component import Component
from workloads.fitting.length_tables import length_table
from workloads.traces.trace import Trace

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

MOST_CLASSES = 6
_GROUPS = 12
_FEWEST_ROWS = 40
"""Of a class: a table of fewer would tell single requests."""
_OFF = 0.04
"""How far the mean rank of the answers of a twelfth of the prompts may be off (root mean square; ranks are
0..1), beyond what the number of rows explains."""
_POINTS = 280
"""Of all tables together; more components have smaller tables."""
_MOST_TENANTS = 8
_LONGEST_NAME = 50


def fitted_components(trace: Trace, names: Sequence[str], *, max_model_len: int | None) -> list[Component]:
    """Components for each tenant of `trace`, where there are several, named `names`: as few classes of
    prompt length as keep how answers depend on prompts. Of many tenants the smallest are one, `other`."""
    of_row, kept = _tenants(trace, names)
    classes = []
    for number, name in enumerate(kept):
        rows = np.flatnonzero(of_row == number)
        parts = _classes(trace.input_len[rows], trace.output_len[rows])
        classes += [(name, part, rows[chosen], len(parts)) for part, chosen in enumerate(parts)]
    points = max(8, min(60, _POINTS // (2 * len(classes))))
    components = []
    for tenant, part, rows, parts_of_tenant in classes:
        prompts, answers = trace.input_len[rows], trace.output_len[rows]
        longest = None if max_model_len is None else _longest_prompt(prompts, answers, max_model_len)
        inputs = length_table(prompts, points=points, longest=longest)
        room = None if max_model_len is None else max_model_len - inputs.bounds()[1]
        outputs = length_table(answers, points=points, longest=room)
        base = tenant or "all"
        name = base if parts_of_tenant == 1 else f"{base} {part + 1}"   # no tenant's name has a space
        components.append(Component(name=name, weight=float(f"{len(rows) / len(trace):.4g}"), input=inputs,
                                    output=outputs, tenant=tenant or None))
    return components


def _tenants(trace: Trace, names: Sequence[str]) -> tuple[Int64, list[str]]:
    """The tenant of each row, and their names in the model."""
    counts = np.bincount(trace.tenant, minlength=len(names))
    if np.count_nonzero(counts) < 2:
        return np.zeros(len(trace), np.int64), [""]
    order = np.argsort(-counts, kind="stable")
    large = [int(t) for t in order[:_MOST_TENANTS] if counts[t] >= _FEWEST_ROWS] or [int(order[0])]
    number = np.full(len(names), len(large), dtype=np.int64)
    number[large] = np.arange(len(large))
    of_row = number[trace.tenant]
    kept = [names[t] for t in large] + (["other"] if of_row.max() == len(large) else [])
    return of_row, _told_apart(kept)


def _told_apart(names: Sequence[str]) -> list[str]:
    """Names as tenants of a workload may have them, all different."""
    told: list[str] = []
    for name in names:
        allowed = re.sub(r"[\s/:<>=]+", "-", name)[:_LONGEST_NAME] or "unnamed"
        number = next(n for n in itertools.count(1) if (allowed if n == 1 else f"{allowed}-{n}") not in told)
        told.append(allowed if number == 1 else f"{allowed}-{number}")
    return told


def _classes(inputs: npt.NDArray[np.integer], outputs: npt.NDArray[np.integer]) -> list[Int64]:
    """Rows of each class, ascending by prompt length."""
    most = max(1, min(MOST_CLASSES, len(inputs) // _FEWEST_ROWS))
    ranks = mean_ranks(outputs)
    order = np.argsort(inputs, kind="stable")
    groups = [g for g in np.array_split(order, _GROUPS) if len(g)]
    for number in range(1, most + 1):
        edges = np.unique(np.quantile(inputs, np.arange(1, number) / number, method="lower"))
        of_row = np.searchsorted(edges, inputs, side="left")
        means = np.bincount(of_row, ranks) / np.maximum(np.bincount(of_row), 1)
        errors = [(ranks[g].mean() - means[of_row[g]].mean()) ** 2 - 1 / 12 / len(g) for g in groups]
        if number == most or np.mean(errors) <= _OFF**2:
            break
    found = [np.flatnonzero(of_row == n) for n in range(len(edges) + 1)]
    return [rows for rows in found if len(rows)]


def _longest_prompt(prompts: npt.NDArray[np.integer], answers: npt.NDArray[np.integer],
                    max_model_len: int) -> int:
    """Where prompts of a class are cut, so that any of its answers fits beside any of its prompts: where
    the fewest rows have a prompt or an answer that is cut."""
    candidates = np.clip(np.unique(np.quantile(prompts, np.linspace(0, 1, 101), method="higher")), 1,
                         max_model_len - 1)
    cut = [int((prompts > c).sum() + (answers > max_model_len - c).sum()) for c in candidates]
    return int(candidates[int(np.argmin(cut))])


def mean_ranks(values: npt.NDArray[np.integer] | Float64) -> Float64:
    """Ranks in 0..1; equal values have the mean of theirs."""
    _, number, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray(((ends - counts / 2) / len(values))[number])


def rank_correlation(one: npt.NDArray[np.integer], other: npt.NDArray[np.integer]) -> float | None:
    """Spearman's; None where one of them never changes."""
    a, b = mean_ranks(one), mean_ranks(other)
    if not len(a) or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])
