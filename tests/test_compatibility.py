"""docs/compatibility.md is true: names of metrics, tools and limits are those of the code."""

import pytest

from bench import server_metrics as judged
from bench.foreign import aiperf, guidellm, vllm_serve
from engine_adapter.http import server_metrics
from tests.test_docs import PAGES, first_column, rows

PAGE = "docs/compatibility.md"
SERVER = "What a server says about itself"


@pytest.mark.parametrize(("column", "names"), list(enumerate(server_metrics._DIALECTS, 1)),
                         ids=lambda value: getattr(value, "engine", ""))
def test_the_metrics_of_every_server_are_listed(column, names):
    """Every figure with the name it is read from; an empty cell where an engine does not show it."""
    listed = {row[0].strip("`"): row[column].strip("`") for row in rows(PAGE, SERVER)}
    read = {figure: choices[0] for figure, choices in {**names.figures, "finished": names.finished}.items()
            if choices}
    assert {figure: name for figure, name in listed.items() if name} == read
    assert set(listed) == {*server_metrics._VLLM.figures, "finished"}


def test_the_tools_are_those_that_are_read():
    """Their names and the versions that the definitions were checked with."""
    versions = {row[0].strip("`"): row[1] for row in rows(PAGE, "Results of other load generators")}
    assert versions == {vllm_serve.TOOL: "0.32", guidellm.TOOL: guidellm.KNOWN_VERSION,
                        aiperf.TOOL: aiperf.KNOWN_VERSION}
    assert first_column(PAGE, SERVER)[0] == "running"


def test_the_limit_of_a_warm_cache_is_the_codes():
    """The share that is forgiven."""
    assert f"more than {judged.UNEXPLAINED_HITS_SHARE:.0%} of".replace("%", " %") in PAGES[PAGE]
