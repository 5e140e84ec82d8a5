"""Which files are results, what is refused, and what no damage may break."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.foreign import load_result, load_results
from workloads import EvidenceError, UsageError

DATA = Path(__file__).parents[2] / "data" / "foreign"


@pytest.mark.parametrize("path", sorted(DATA.rglob("*.json*")), ids=lambda path: path.name)
def test_every_result_is_json_without_nan(path):
    """What reports write holds no NaN and no infinity but the rate's."""
    for result in load_results(path):
        text = json.dumps(result.as_dict() | {"rate_rps": None}, allow_nan=False)
        assert json.loads(text)["tool"] == result.tool


def test_nan_in_a_file_is_no_figure(tmp_path):
    """Python writes NaN; it is read as missing."""
    file = tmp_path / "result.json"
    file.write_text((DATA / "vllm.json").read_text().replace(
        '"mean_ttft_ms": 31.091577166383406', '"mean_ttft_ms": NaN'))
    assert load_result(file).figure("ttft", "mean").value is None


@pytest.mark.parametrize(("content", "error", "told"), [
    ("", EvidenceError, "is no JSON"),
    ("{", EvidenceError, "is no JSON"),
    ("[1, 2]", EvidenceError, "holds no JSON object"),
    ('{"a": 1}', EvidenceError, "was not written by a known tool: vllm bench serve"),
    ('{"a": 1}\n{"b"', EvidenceError, "neither one JSON document nor one a line"),
    ("[" * 100_000, EvidenceError, "is no JSON"),
    ('{"benchmarks": [], "metadata": {"guidellm_version": "0.8.1"}}', EvidenceError, "holds no result"),
    (b"\xff\xfe", EvidenceError, "is no JSON"),
])
def test_what_is_no_result_is_refused_in_one_line(content, error, told, tmp_path):
    """The message says what is known."""
    file = tmp_path / "x.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(error, match=told) as refused:
        load_results(file)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_wrong_usage(tmp_path):
    """So is a directory."""
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UsageError):
            load_results(path)


JUNK = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner,
                                                                                max_size=3), max_leaves=5)


@pytest.mark.parametrize("name", ["vllm-detailed.json", "guidellm.json", "aiperf/profile_export_aiperf.json",
                                  "aiperf/profile_export.jsonl"])
@given(data=st.data())
def test_damaged_values_never_break_the_reading(name, data, tmp_path_factory):
    """Whatever stands in the place of a value, the rest is read or the file refused."""
    lines = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
    node = data.draw(st.sampled_from(lines))
    for _ in range(data.draw(st.integers(0, 5))):
        inner = [value for value in (node.values() if isinstance(node, dict) else node)
                 if isinstance(value, dict | list) and value]
        if not inner:
            break
        node = data.draw(st.sampled_from(inner))
    key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
    node[key] = data.draw(JUNK)
    file = tmp_path_factory.getbasetemp() / f"damaged-{Path(name).name}"
    file.write_text("\n".join(json.dumps(line) for line in lines))
    try:
        results = load_results(file)
    except EvidenceError:
        return
    for result in results:
        values = [figure.value for figure in result.figures().values()]
        assert all(value is None or math.isfinite(value) for value in values)
