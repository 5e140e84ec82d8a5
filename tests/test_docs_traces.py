"""The tables of docs/traces.md equal the code's."""

from tests.test_docs import first_column
from workloads.traces.source import TraceSource
from workloads.traces.writing import OUTPUT_FORMATS


def test_all_keys_of_a_trace_are_explained() -> None:
    """Every key of an entry of `traces` but its path has its row, and no other has one."""
    keys = first_column("docs/traces.md", "Shaping")
    assert sorted(keys) == sorted(set(TraceSource.model_fields) - {"path"})


def test_all_output_formats_are_explained() -> None:
    """In the order in which errors list them."""
    assert first_column("docs/traces.md", "For other tools: `tune workload make`") == list(OUTPUT_FORMATS)
