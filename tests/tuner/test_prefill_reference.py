"""Prefill curves from files."""

import json

import pytest

from bench import Deadlines, PrefillCurve
from tuner.prefill_reference import load_prefill_curve
from workloads.errors import EvidenceError, UsageError

CURVE = PrefillCurve((16, 64), (1_000_000, 3_000_000), fingerprint={"model": "m"})


def test_a_curve_is_read_from_a_run_and_from_a_study(tmp_path):
    """The file of a run, study.json, and the directory of either give the same curve."""
    run, study = tmp_path / "run", tmp_path / "study"
    for directory in (run, study):
        directory.mkdir()
    (run / "prefill_curve.json").write_text(json.dumps(CURVE.as_dict()))
    state = {"deadlines": Deadlines(CURVE, 300, 50).as_dict()}
    (study / "study.json").write_text(json.dumps({"schema_version": 1, "config": {}, "state": state}))
    for path in (run, run / "prefill_curve.json", study, study / "study.json"):
        assert load_prefill_curve(path) == CURVE


@pytest.mark.parametrize(("text", "error", "told"), [
    ("{", UsageError, "not JSON"),
    ("[1]", UsageError, "holds no prefill curve"),
    ('{"state": {"deadlines": null}}', UsageError, "past its probe"),
    ('{"tokens": [16, 8], "times_ns": [1, 2]}', EvidenceError, "measure it again"),
    ('{"tokens": [16]}', EvidenceError, "measure it again"),
])
def test_what_is_no_curve_is_refused_in_one_line(tmp_path, text, error, told):
    """The message names the file and what to give instead."""
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(error, match=told) as refused:
        load_prefill_curve(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path):
    """A path that does not exist, and a directory without a curve, are wrong usage."""
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UsageError, match="cannot read"):
            load_prefill_curve(path)
