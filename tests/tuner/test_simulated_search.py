"""Many settings over many rates: what each carries, however many processes look."""

from pathlib import Path

import numpy as np
import pytest

from engine_adapter.knobs import Knobs
from tests.tuner.simulated import write_calibration
from tuner.simulated_search import SettingCapacity, capacity_grid, reader_deadlines
from tuner.simulation import SimulationTarget, target_from
from tuner.slo import parse_slo
from workloads import Plan, UsageError, build_plan, load_workload

SLO = parse_slo(("tbt:p99<=120ms", "fluidity:p10>=0.9"))
SETTINGS = [Knobs(budget, 32) for budget in (64, 128, 512, 2048)]
RATES = (0.3, 0.6, 1.2, 2.4)


@pytest.fixture
def target(tmp_path: Path) -> SimulationTarget:
    return target_from(hardware=str(write_calibration(tmp_path / "c.json")))


def plans(rates: tuple[float, ...] = RATES) -> list[Plan]:
    load = load_workload("cpu")
    return [build_plan(load, rate_rps=rate, seed=1, num_prompts=60) for rate in rates]


def searched(target: SimulationTarget, **options: object) -> list[SettingCapacity]:
    deadlines = reader_deadlines(target, 2000, decode_deadline_ms=60, prefill_slack_ms=300)
    return capacity_grid(target, SETTINGS, plans(), SLO, deadlines=deadlines,
                         **({"workers": 1} | options))  # type: ignore[arg-type]


def test_halving_finds_what_the_whole_grid_shows(target: SimulationTarget) -> None:
    """The same capacities with fewer runs, in the order of the settings."""
    quick, whole = searched(target), searched(target, every_rate=True)
    assert [found.knobs for found in quick] == SETTINGS
    assert [found.capacity_rps for found in quick] == [found.capacity_rps for found in whole]
    assert len({found.capacity_rps for found in whole}) > 1
    assert all(len(found.runs) == len(RATES) for found in whole)
    assert sum(len(found.runs) for found in quick) < sum(len(found.runs) for found in whole)
    for found in whole:
        assert [run.rate_rps for run in found.runs] == list(RATES)
        assert all(run.holds == (not run.why_not) for run in found.runs)


def test_processes_find_the_same(target: SimulationTarget) -> None:
    """Two of them, with progress after each setting."""
    seen: list[tuple[int, int]] = []
    found = searched(target, workers=2, on_progress=lambda done, of: seen.append((done, of)))
    assert found == searched(target)
    assert seen == [(done, len(SETTINGS)) for done in range(1, len(SETTINGS) + 1)]


def test_an_objective_without_its_deadlines_does_not_hold(target: SimulationTarget) -> None:
    """No figure is no success, and the reason is told."""
    found = capacity_grid(target, SETTINGS[:1], plans(RATES[:1]), SLO, workers=1)
    assert found[0].capacity_rps is None
    assert "no prefill-deadline curve" in found[0].runs[0].why_not


def test_what_cannot_be_searched_is_refused(target: SimulationTarget) -> None:
    """Rates that fall, no rates, and a rule that does not know what was asked for."""
    for rates in ((), (2.0, 1.0), (1.0, 1.0)):
        with pytest.raises(UsageError, match="rise from plan to plan"):
            capacity_grid(target, SETTINGS, plans(rates), SLO, workers=1)
    with pytest.raises(UsageError, match="priorities"):
        capacity_grid(target, [Knobs(64, 8, policy="priority")], plans(), SLO, rule="orca", workers=1)


def test_deadlines_are_those_of_the_default_settings(target: SimulationTarget) -> None:
    """A slow setting does not relax them."""
    deadlines = reader_deadlines(target, 2000, decode_deadline_ms=60, prefill_slack_ms=300)
    assert deadlines is not None
    assert deadlines.curve.fingerprint["knobs"] == target.default_knobs.as_dict()
    assert np.all(np.diff(deadlines.curve.times_ns) >= 0)
    assert reader_deadlines(target_from(**{**target.asked, "num_kv_blocks": 2}), 2000, decode_deadline_ms=60,
                            prefill_slack_ms=300) is not None
