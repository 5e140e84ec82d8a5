"""`tune workload`: look at traffic, describe it in a small file, write it for other tools."""

import typer

from tuner.cli import workload_fit, workload_formats, workload_make, workload_show
from tuner.cli.help_groups import MAKE_GROUPS, SHOW_GROUPS, grouped_help

app = typer.Typer(add_completion=False, no_args_is_help=True,
                  help="Look at traces, fit shareable workloads to them, write plans for other tools.")
app.command("show", cls=grouped_help(SHOW_GROUPS))(workload_show.show)
app.command("fit")(workload_fit.fit)
app.command("make", cls=grouped_help(MAKE_GROUPS))(workload_make.make)
app.command("formats")(workload_formats.formats)
