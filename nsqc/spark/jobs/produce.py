"""`nsqc spark produce`: publishes files to a topic, one message per row."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from nsqc.spark.jobs import arguments, handshake, inputs, nodes, running


def known_format(name: str | None) -> str | None:
    """A typer callback: a format of inputs, or none."""
    if name is not None and name not in inputs.FORMATS:
        raise typer.BadParameter(f"{name} is not one of {', '.join(inputs.FORMATS)}")
    return name


def readable_template(text: str | None) -> str | None:
    """A typer callback: a valid template, or none."""
    if text is not None:
        try:
            inputs.parse(text)
        except inputs.TemplateError as error:
            raise typer.BadParameter(str(error)) from None
    return text


@arguments.with_nsqd
def command(
    files: Annotated[list[str], typer.Argument(
        help="files, folders of files, patterns, or URIs that Spark supports", metavar="FILE",
        callback=arguments.inputs)],
    topic: arguments.Topic,
    cluster: arguments.Cluster,
    form: Annotated[str | None, typer.Option(
        "--format", help="csv, json (one value per line), parquet or text; default: from the file names",
        callback=known_format)] = None,
    template: Annotated[str | None, typer.Option(
        help="template of the body, with columns in braces: '{host} {status}'", callback=readable_template)] = None,
    column: Annotated[str | None, typer.Option(help="the column to use as the body")] = None,
    header: Annotated[bool, typer.Option(help="CSV: the first line has the column names, not _c0, _c1")] = True,
    delimiter: Annotated[str | None, typer.Option(
        help="CSV: the separator of values; default: a comma, for .tsv a tab")] = None,
    rate: arguments.Rate = None,
    skip_bad: Annotated[bool, typer.Option(
        "--skip-bad", help="skip malformed lines, and rows that nsqd would refuse, instead of failing")] = False,
) -> int:
    """Publish the rows of files to a topic.

    A line of text or JSON is published unchanged; a row of CSV or Parquet as JSON, unless --template or --column
    defines the body. Delivery is at least once: failed tasks are repeated.
    """
    if template is not None and column is not None:
        raise typer.BadParameter("give --template or --column, not both")
    form = form or inputs.common_format(files)
    if form is None:
        raise typer.BadParameter("cannot determine the format from the file names: give --format")
    options = {**cluster.options, "topic": topic, "onBadRecord": "skip" if skip_bad else "fail"}
    with running.failures() as progress:
        progress.summary = lambda: "nothing was published"
        handshake.check_nsqd(cluster.options, progress.note)
        if not cluster.create and (existing := nodes.existing(cluster, progress.note)):
            existing.require_topic(topic)
        with running.session("nsqc produce", progress) as spark:
            from nsqc.spark.jobs import publishing

            started = time.monotonic()
            progress.show("listing files")
            if form == "json":
                bodies = inputs.json_bodies(spark, files, column, template, skip_bad)
            else:
                frame = (inputs.csv_rows(spark, files, header, delimiter, skip_bad) if form == "csv" else
                         inputs.read(spark, files, form))
                bodies = inputs.with_body(frame, column, template, form != "text" and column is None)
            totals = publishing.publish(spark, bodies, options, progress, rate)
            publishing.report(progress, totals, topic, started)
    return 0


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("produce")
