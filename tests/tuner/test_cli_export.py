"""`tune export`: a run as another tool's file."""

import json

import pytest

from bench import save_run, summarise
from bench.foreign import load_result
from tests.bench.test_llm_d import played
from tuner.cli.export import export
from workloads import EvidenceError, UsageError


@pytest.fixture
def run(tmp_path):
    """Directory of a run of five requests."""
    made = played(5)
    return str(save_run(made, tmp_path / "run", summary=summarise(made).as_dict()))


def test_vllm_form_is_read_back_as_a_result(run, tmp_path, capsys):
    """The file has the lists of --save-detailed: the importer computes the same figures from them."""
    file = tmp_path / "out" / "result.json"
    export(run, form="vllm", output=str(file))
    assert capsys.readouterr().out == f"{file}\n"
    result = load_result(file)
    assert (result.tool, result.completed, result.failed) == ("stallfree", 5, 0)
    assert result.figure("ttft", "mean").value == pytest.approx(20e6)
    assert result.figure("tbt", "max").value == pytest.approx(20e6)


def test_llm_d_goes_to_standard_output(run, capsys):
    """Nothing else is printed there, so that it can be piped."""
    export(run, form="llm-d", output=None)
    found = json.loads(capsys.readouterr().out)
    assert found["version"] == "0.2"
    assert found["results"]["request_performance"]["aggregate"]["requests"]["total"] == 5


def test_what_cannot_be_exported_is_refused(run, tmp_path):
    """Unknown formats and missing directories are wrong usage, a directory without a run no evidence."""
    with pytest.raises(UsageError, match="known: llm-d, vllm"):
        export(run, form="csv", output=None)
    with pytest.raises(UsageError, match="does not exist"):
        export(str(tmp_path / "none"), form="vllm", output=None)
    with pytest.raises(EvidenceError, match="no run directory"):
        export(str(tmp_path), form="llm-d", output=None)
