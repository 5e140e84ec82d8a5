"""`tune export`: a finished run in the form of another tool."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pathlib import Path


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Directory of the run.")],
    form: Annotated[str, typer.Option(
        "--format", help="llm-d: benchmark report 0.2 of llm-d-benchmark. vllm: result file of `vllm bench "
                         "serve`, with the lists of --save-detailed.")],
    output: Annotated[str | None, typer.Option(
        "--output", "-o", help="File to write. Default: standard output.")] = None,
) -> None:
    """Write a finished run as another tool's result file.

    It is JSON, so YAML too. An invalid run is exported and says so. Exit codes:
    0 written, 3 the directory holds no readable run, 64 wrong usage or nowhere
    to write.
    """
    import json
    from pathlib import Path

    from bench.files import jsonable, write_json
    from workloads import UsageError

    if form not in ("llm-d", "vllm"):
        raise UsageError(f"unknown format {form!r}; known: llm-d, vllm")
    source = Path(run)
    if not source.exists():
        raise UsageError(f"{source} does not exist; give the directory of a run")
    content = _llm_d(source) if form == "llm-d" else _vllm(source)
    if output is None:
        typer.echo(json.dumps(jsonable(content), indent=1, allow_nan=False))
    else:
        typer.echo(str(write_json(Path(output), content)))


def _llm_d(source: "Path") -> dict[str, Any]:
    from bench import load_run, summarise
    from bench.llm_d import llm_d_report

    run = load_run(source)
    return llm_d_report(run, summarise(run), _stored_summary(source) or summarise(run).as_dict())


def _vllm(source: "Path") -> dict[str, Any]:
    from bench import load_run, summarise
    from tuner.result_file import request_lists

    run = load_run(source)
    return {**(_stored_summary(source) or summarise(run).as_dict()), **request_lists(run)}


def _stored_summary(source: "Path") -> dict[str, Any]:
    """The figures as they were when the run was measured, with its deadlines; empty without them."""
    from bench import load_head

    return dict(load_head(source).get("summary") or {})
