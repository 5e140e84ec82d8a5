"""`tune report`: a study, or runs side by side, as a file that can be passed on."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path


def report(
    paths: Annotated[list[str], typer.Argument(
        metavar="PATH...", help="Directory of one study, of one or more runs, or result files of vllm bench "
                                "serve, GuideLLM or AIPerf.")],
    form: Annotated[str | None, typer.Option(
        "--format", help="html, md or json. Default: as the name of --output ends, else html.")] = None,
    output: Annotated[str | None, typer.Option(
        help="File to write. Default: report.html in the directory (comparison.html beside the first of "
             "several); md and json go to standard output, and result files of other tools are shown in the "
             "terminal.")] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the file in a browser.")] = False,
) -> None:
    """Write the report of a study, or of runs side by side, or show results of other tools.

    The HTML file stands alone and needs no network. Exit codes: 0 written, 3 a
    path holds no readable study, run or result, 64 wrong usage or nowhere to
    write.
    """
    import webbrowser
    from pathlib import Path

    from reports import imported_screen, load_imported, render, write_report
    from workloads import UsageError

    sources = [Path(path) for path in paths]
    if form is None and output is None and not show and (imported := load_imported(sources)):
        from rich.console import Console

        Console().print(imported_screen(imported))
        return
    form = form or _form_of(output)
    file = Path(output) if output is not None else _default_file(sources) if form == "html" else None
    if file is None:
        if show:
            raise UsageError("--open needs a file: name one with --output")
        typer.echo(render(sources, form), nl=False)
        return
    typer.echo(str(write_report(sources, form, file)))
    if show and not webbrowser.open(file.resolve().as_uri()):
        typer.echo(f"tune: no browser could be started: open {file} yourself", err=True)


def _form_of(output: str | None) -> str:
    ending = output.rpartition(".")[2] if output is not None else ""
    return ending if ending in ("md", "json") else "html"


def _default_file(sources: "list[Path]") -> "Path":
    first = sources[0]
    if len(sources) > 1:
        return first.parent / "comparison.html"
    return (first if first.is_dir() else first.parent) / "report.html"
