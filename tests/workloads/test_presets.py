import subprocess
import sys
from importlib.resources import files

import pytest

from workloads import PRESETS, build_plan, load_workload


def test_the_list_of_presets_is_the_folder() -> None:
    """Every preset has its file and every file is offered."""
    found = {file.name.removesuffix(".yaml") for file in files("workloads").joinpath("presets").iterdir()}
    assert found == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_a_plan_that_fits_its_model(name: str) -> None:
    """A preset carries its own name, objectives and a description of one line, and its plan fits."""
    workload = load_workload(name)
    assert workload.name == name
    assert workload.slo
    assert "\n" not in workload.description
    plan = build_plan(workload, rate_rps=10, seed=0, num_prompts=500)
    plan.check_fits(workload.max_model_len)
    assert plan.input_len.mean() == pytest.approx(workload.mean_input_len, rel=0.25)


def test_importing_workloads_stays_light() -> None:
    """Neither an engine nor a heavy numeric library is loaded."""
    script = ("import sys, workloads; heavy = {'torch', 'vllm', 'scipy', 'pandas', 'pyarrow', 'optuna'}; "
              "print(sorted(heavy & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
