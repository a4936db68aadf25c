"""The format nsq: readers and writers of topics for Spark."""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from nsqc.spark import columns, options, sink
from nsqc.spark.reader import NsqStreamReader, Refusal
from nsqc.spark.writers import BatchWriter, StreamWriter

BOUNDED = ("nsq: a topic cannot be read as a bounded table: reading takes messages away, and Spark does not say when "
           "it has finished with a table. Use spark.readStream with .trigger(availableNow=True), which reads what is "
           "there now and stops, or format nsq_diskqueue for files")


class NsqSource(DataSource):
    """The format and its columns."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "nsq"

    def schema(self) -> str:
        """The columns of a stream. Spark calls this at load(), for readers only: a good moment to check the options.
        Raises OptionError."""
        try:
            options.at_load(self.options)
        except options.OptionError as error:
            advice = ("; a topic is read by spark.readStream only, with .trigger(availableNow=True) for what is there "
                      "now" if "required" in str(error) else "")
            raise options.OptionError(f"{error}{advice}") from None
        return columns.MESSAGE

    def reader(self, schema: StructType) -> NoReturn:
        """Raises NotImplementedError."""
        raise NotImplementedError(BOUNDED)

    def streamReader(self, schema: StructType) -> NsqStreamReader | Refusal:
        """A Refusal for wrong options or a given schema: Spark's runner hides what is raised here behind an error of
        its own."""
        try:
            chosen = columns.chosen(schema, columns.MESSAGE, self.name())
            if chosen != columns.names(columns.MESSAGE):
                raise ValueError(f"nsq: a stream has all of its columns: {columns.MESSAGE}")
            return NsqStreamReader(options.stream(self.options))
        except ValueError as error:
            return Refusal(options.OptionError(str(error)))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Raises OptionError."""
        if overwrite:
            raise options.OptionError('nsq: a topic cannot be overwritten; use .mode("append")')
        return BatchWriter(self._sink(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Raises OptionError."""
        if overwrite:
            raise options.OptionError('nsq: a topic cannot be overwritten; use .outputMode("append")')
        return StreamWriter(self._sink(schema))

    def _sink(self, schema: StructType) -> options.Sink:
        chosen = options.sink(self.options)
        sink.check_schema(schema, chosen)
        return chosen
