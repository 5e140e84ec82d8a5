"""`tune calibrate`: the cost of an engine's steps from its runs, for the simulator."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from bench import Run


def calibrate(
    runs: Annotated[list[str], typer.Argument(
        metavar="RUN...", help="Directories of runs of one engine that Stallfree started itself.")],
    output: Annotated[str, typer.Option(
        "--output", "-o", help="File to write.")] = "calibration.json",
    against: Annotated[list[str] | None, typer.Option(
        metavar="RUN", help="Simulate this run too, which is not among the others, and compare; repeatable.",
    )] = None,
    as_json: Annotated[bool, typer.Option(
        "--json", help="Print the calibration and the comparisons as JSON to standard output, all else to "
                       "standard error.")] = False,
) -> None:
    """Fit the simulator's step cost to the step logs of runs.

    Says how far the cost is off, by kind of step, on steps that it was not
    fitted to, and with --against how far a simulated run is off. The file is
    what `tune simulate --hardware` takes. Exit codes: 0 written, 3 the runs
    cannot be calibrated from or judged by, 64 wrong usage or nowhere to write.
    """
    import json
    from pathlib import Path

    from bench.files import jsonable
    from tuner.calibration import calibrate as fit
    from tuner.calibration import compare, save_calibration
    from tuner.cli.calibrate_screen import comparison_screen, screen

    paths, judges = _directories(runs), _directories(against or [])
    names = _short_names([*paths, *judges])
    calibration = fit([_load(path) for path in paths], names[:len(paths)])
    comparisons = [compare(_load(path), name, calibration)
                   for path, name in zip(judges, names[len(paths):], strict=True)]
    file = save_calibration(calibration, Path(output))
    typer.echo("\n".join(screen(calibration)), err=as_json)
    for comparison in comparisons:
        typer.echo("\n".join(["", *comparison_screen(comparison)]), err=as_json)
    typer.echo(f"\n{file}", err=as_json)
    if as_json:
        told = calibration.as_dict() | {"against": [one.as_dict() for one in comparisons], "file": str(file)}
        typer.echo(json.dumps(jsonable(told), indent=1, allow_nan=False))


def _load(path: "Path") -> "Run":
    from bench import load_run

    return load_run(path)


def _directories(paths: list[str]) -> "list[Path]":
    from pathlib import Path

    from workloads import UsageError

    for path in paths:
        if not Path(path).is_dir():
            raise UsageError(f"{path} is no directory; give the directory of a run")
    return [Path(path) for path in paths]


def _short_names(paths: "list[Path]") -> list[str]:
    """The last part of each path, or the whole where that says too little."""
    names = [path.resolve().name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]
