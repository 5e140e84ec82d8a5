"""What `tune calibrate` shows, line by line."""

from collections.abc import Iterable

from bench import CATALOG
from engine_adapter.simulator.step_cost import StepCost
from tuner.calibration import Calibration, Comparison, Regime
from tuner.calibration.compare import ComparedFigure

_SHORT = ("ttft", "tbt", "tpot", "e2e")


def screen(calibration: Calibration) -> list[str]:
    """The engine, the cost in words, its errors, and what the reader must know."""
    engine = calibration.engine
    return [
        f"Engine  {engine.get('name')} {engine.get('version')}, {engine.get('model')}",
        f"Runs    {len(calibration.runs)}, {sum(run['steps'] for run in calibration.runs):,} steps",
        *_cost(calibration.cost),
        "",
        f"{'error on steps that were held out':<42}{'steps':>8}{'median':>9}{'p90':>9}{'bias':>9}",
        *_errors(calibration.errors),
        *(f"Warning: {warning}." for warning in calibration.warnings),
        *(f"Warning: hardly a step has between {low:,} and {high:,} tokens: there the cost is drawn through "
          f"nothing." for low, high in calibration.covered.sparse),
    ]


def comparison_screen(comparison: Comparison) -> list[str]:
    """Measured and simulated figures side by side."""
    return [
        f"{comparison.name:<30}{'measured':>12}{'simulated':>12}{'error':>9}",
        *(_figure(figure) for figure in comparison.figures),
        *(f"Warning: {warning}." for warning in comparison.warnings),
    ]


def _cost(cost: StepCost) -> list[str]:
    most = len(cost.linear_ns) - 1
    one_ms, more_us = (cost.fixed_ns + float(cost.linear_ns[1])) / 1e6, float(cost.linear_ns[-1]) / most / 1e3
    return [
        f"Step    {one_ms:,.2f} ms for one token, {more_us:,.1f} µs for each more (mean up to {most:,})",
        f"Chunk   {cost.chunk_ns / 1e3:,.1f} µs, {cost.chunk_pair_ns:,.2f} ns a pair of its attention",
        f"Decode  {cost.decode_ns / 1e3:,.1f} µs, {cost.decode_kv_ns:,.2f} ns a token of its context",
        f"Around  {cost.host_ns / 1e3:,.1f} µs between steps, {cost.arrival_ns / 1e3:,.1f} µs to the queue, "
        f"{cost.delivery_ns / 1e3:,.1f} µs to the client",
    ]


def _errors(errors: Iterable[Regime]) -> list[str]:
    lines, group = [], ""
    for regime in errors:
        name = regime.name if regime.group in ("all", "kind") else f"  {regime.group} {regime.name}"
        if regime.group != group and group == "kind":
            lines.append("")
        group = regime.group
        lines.append(f"{name:<42}{regime.n:>8,}{regime.median_abs:>9.1%}{regime.p90_abs:>9.1%}{regime.bias:>+9.1%}")
    return lines


def _figure(figure: ComparedFigure) -> str:
    time = CATALOG[figure.metric].unit == "ns"
    values = [_value(value, time) for value in (figure.measured, figure.simulated)]
    name = figure.metric.upper() if figure.metric in _SHORT else figure.metric.replace("_", " ")
    label = f"{name} {figure.stat or ''}".strip()
    error = "-" if figure.error is None else f"{figure.error:+.1%}"
    return f"{label + (', ms' if time else ', 1/s'):<30}{values[0]:>12}{values[1]:>12}{error:>9}"


def _value(value: float | None, time: bool) -> str:
    if value is None:
        return "-"
    return f"{value / 1e6:,.1f}" if time else f"{value:,.2f}"
