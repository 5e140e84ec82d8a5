from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from workloads import Fixed, FromFile, Lengths, LogNormal, Uniform, UsageError

_SEEDS = st.integers(0, 2**32)


@st.composite
def distributions(draw: st.DrawFn) -> Lengths:
    low = draw(st.integers(1, 3000))
    high = low + draw(st.integers(0, 3000))
    median, sigma = draw(st.integers(low, high)), draw(st.floats(0.001, 10))
    kinds: list[Lengths] = [
        Fixed(tokens=low),
        Uniform(low=low, high=high),
        LogNormal(median=median, sigma=sigma, low=low, high=high),
    ]
    return draw(st.sampled_from(kinds))


@given(distributions(), _SEEDS)
def test_every_length_is_a_whole_number_within_the_bounds(lengths: Lengths, seed: int) -> None:
    """No draw leaves the bounds, and the mean lies within them too."""
    low, high = lengths.bounds()
    drawn = lengths.sample(200, np.random.default_rng(seed))
    assert drawn.dtype == np.int64
    assert drawn.shape == (200,)
    assert 1 <= low <= drawn.min() <= drawn.max() <= high
    assert low <= lengths.mean() <= high


@given(distributions())
def test_the_ends_of_the_probability_range_give_finite_lengths_in_order(lengths: Lengths) -> None:
    """The quantile function never decreases and holds at the edges of [0, 1)."""
    drawn = lengths.quantile(np.array([0.0, 1e-300, 0.25, 0.5, 0.75, np.nextafter(1.0, 0.0)]))
    assert np.all(np.diff(drawn) >= 0)
    assert lengths.bounds()[0] <= drawn[0]
    assert drawn[-1] <= lengths.bounds()[1]


@given(distributions(), _SEEDS, st.integers(0, 50), st.integers(0, 50))
def test_a_longer_sample_starts_with_the_shorter(lengths: Lengths, seed: int, n: int, more: int) -> None:
    """The same generator gives the same first draws however many are asked for."""
    short = lengths.sample(n, np.random.default_rng(seed))
    long = lengths.sample(n + more, np.random.default_rng(seed))
    np.testing.assert_array_equal(long[:n], short)


@given(distributions())
def test_a_distribution_survives_its_own_dump(lengths: Lengths) -> None:
    """Dumped to plain values and read back by `kind`, a distribution is equal to itself."""
    adapter: TypeAdapter[Lengths] = TypeAdapter(Lengths)
    assert adapter.validate_python(lengths.model_dump(mode="json")) == lengths


def test_uniform_includes_both_ends_equally() -> None:
    """Each whole number from low to high is drawn equally often."""
    drawn = Uniform(low=3, high=6).sample(40_000, np.random.default_rng(1))
    counts = np.bincount(drawn, minlength=7)[3:]
    assert np.all(np.abs(counts - 10_000) < 500)
    assert Uniform(low=3, high=6).mean() == 4.5


def test_wide_log_normal_has_its_median_and_sigma() -> None:
    """With bounds far away, the drawn median and log-spread are those asked for."""
    drawn = LogNormal(median=500, sigma=0.5, low=1, high=100_000).sample(40_000, np.random.default_rng(2))
    assert np.median(drawn) == pytest.approx(500, rel=0.02)
    assert np.log(drawn).std() == pytest.approx(0.5, rel=0.02)


def test_truncation_leaves_no_heap_at_the_bounds() -> None:
    """The bounds are no more frequent than their neighbours: nothing is clipped onto them."""
    drawn = LogNormal(median=100, sigma=1.0, low=80, high=120).sample(40_000, np.random.default_rng(3))
    counts = np.bincount(drawn)
    assert counts[120] < 1.2 * counts[118]
    assert counts[80] < 1.2 * counts[82]


@pytest.mark.parametrize(("values", "complaint"), [
    ({"kind": "fixed", "tokens": 0}, "greater than or equal to 1"),
    ({"kind": "fixed", "tokens": 2.5}, "valid integer"),
    ({"kind": "fixed", "tokens": 2**31}, "less than or equal to 2147483647"),
    ({"kind": "uniform", "low": 9, "high": 3}, r"low \(9\) is above high \(3\)"),
    ({"kind": "lognormal", "median": 5, "sigma": 1, "low": 10, "high": 20}, "lies outside"),
    ({"kind": "lognormal", "median": 15, "sigma": 0, "low": 10, "high": 20}, "greater than 0"),
    ({"kind": "zipf", "low": 1}, "'fixed', 'uniform', 'lognormal', 'file'"),
    ({"kind": "fixed", "tokens": 5, "hi": 3}, "Extra inputs"),
])
def test_impossible_distributions_are_refused(values: dict[str, Any], complaint: str) -> None:
    """What is no distribution of whole lengths of at least one token is refused, saying why."""
    adapter: TypeAdapter[Lengths] = TypeAdapter(Lengths)
    with pytest.raises(ValidationError, match=complaint):
        adapter.validate_python(values)


def test_descriptions_are_one_line(tmp_path: Path) -> None:
    """Each distribution describes itself in one line for a person."""
    file = tmp_path / "lens.txt"
    file.write_text("5\n7\n")
    assert Fixed(tokens=512).describe() == "512 tokens"
    assert Uniform(low=16, high=32).describe() == "16..32 tokens, uniform"
    assert LogNormal(median=32, sigma=0.5, low=8, high=128).describe() == (
        "log-normal, median 32, sigma 0.5, within 8..128 tokens")
    assert FromFile(path=file).describe() == "2 lengths of lens.txt, 5..7 tokens"


@given(values=st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=30), seed=_SEEDS)
def test_a_file_gives_only_its_own_lengths(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], seed: int
) -> None:
    """Draws come from the file's values, whose bounds and mean are the file's."""
    file = tmp_path_factory.mktemp("lengths") / "lens.txt"
    file.write_text("\n".join(map(str, values)) + "\n\n")
    lengths = FromFile(path=file)
    assert set(lengths.sample(50, np.random.default_rng(seed)).tolist()) <= set(values)
    assert lengths.bounds() == (min(values), max(values))
    assert lengths.mean() == pytest.approx(np.mean(values))


def test_a_csv_column_is_read_by_name(tmp_path: Path) -> None:
    """With `column` the file is CSV; a byte-order mark and other columns do no harm."""
    file = tmp_path / "trace.csv"
    file.write_text('\ufeffTIMESTAMP,ContextTokens,Note\n1,374,"a, b"\n2, 396 ,x\n', encoding="utf-8")
    assert FromFile(path=file, column="ContextTokens").bounds() == (374, 396)


@pytest.mark.parametrize(("content", "column", "complaint"), [
    (b"12\nabc\n", None, "lens.txt:2: 'abc' is not a whole number"),
    (b"12\n\n0\n", None, "lens.txt:3: '0' is not a whole number of tokens from 1"),
    (b"-4\n", None, "lens.txt:1: '-4'"),
    (b"1.5\n", None, "lens.txt:1: '1.5'"),
    (b"99999999999\n", None, "lens.txt:1: '99999999999'"),
    (b"7" * 9000, None, "lens.txt:1: '7777"),
    (b"", None, "holds no lengths"),
    (b"\xff\xfe\n", None, "cannot read lengths from"),
    (b"a,b\n1,2\n", "c", "has no column 'c'; its columns: a, b"),
    (b"", "c", r"its columns: \(none\)"),
    (b"a,b\n1,2\n3\n", "b", "lens.txt:3: ''"),
    (b"a,b\n", "b", "holds no lengths"),
])
def test_a_bad_file_is_refused_with_its_name_and_line(
    tmp_path: Path, content: bytes, column: str | None, complaint: str
) -> None:
    """The message names the file, and the line where one is at fault."""
    file = tmp_path / "lens.txt"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=complaint) as caught:
        FromFile(path=file, column=column)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A path that cannot be opened is the user's error, named."""
    with pytest.raises(UsageError, match=r"cannot read lengths from .*none\.txt"):
        FromFile(path=tmp_path / "none.txt")
