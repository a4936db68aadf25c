"""The format nsq: topics as Spark's tables. Which of the four ways is asked for, and what each one gets."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from nsqc.spark import columns, options, sink
from nsqc.spark.reader import NsqStreamReader, Refusal
from nsqc.spark.writers import BatchWriter, StreamWriter

BOUNDED = ("nsq: a topic cannot be read as a bounded table: reading takes messages away, and Spark does not say when a "
           "table has been used. Use spark.readStream with .trigger(availableNow=True), which reads what is there now "
           "and ends, or format nsq_diskqueue for files")


class NsqSource(DataSource):
    """The entry."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "nsq"

    def schema(self) -> str:
        """What a stream gives. Spark asks at load(), and of those who read only: a good place to look at the options.
        Raises OptionError."""
        try:
            options.at_load(self.options)
        except options.OptionError as error:
            more = ("; a topic is read by spark.readStream only, with .trigger(availableNow=True) for what is there now"
                    if "required" in str(error) else "")
            raise options.OptionError(f"{error}{more}") from None
        return columns.MESSAGE

    def reader(self, schema: Any) -> Any:
        """Refused."""
        raise NotImplementedError(BOUNDED)

    def streamReader(self, schema: Any) -> NsqStreamReader | Refusal:
        """A Refusal for options that are wrong, or where a schema of one's own was given: what is raised here itself,
        Spark's runner covers with an error of its own."""
        try:
            chosen = columns.chosen(schema, columns.MESSAGE, self.name())
            if chosen != columns.names(columns.MESSAGE):
                raise ValueError(f"nsq: a stream has all of its columns: {columns.MESSAGE}")
            return NsqStreamReader(options.stream(self.options))
        except ValueError as error:
            return Refusal(options.OptionError(str(error)))

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        """Raises OptionError."""
        if overwrite:
            raise options.OptionError('nsq: a topic cannot be overwritten; use .mode("append")')
        return BatchWriter(self._sink(schema))

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:
        """Raises OptionError."""
        if overwrite:
            raise options.OptionError('nsq: a topic cannot be overwritten; use .outputMode("append")')
        return StreamWriter(self._sink(schema))

    def _sink(self, schema: Any) -> options.Sink:
        chosen = options.sink(self.options)
        sink.check_schema(schema, chosen)
        return chosen
