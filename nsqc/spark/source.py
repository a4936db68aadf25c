"""The format nsq: readers and writers of topics for Spark. Imports each on use: Spark starts a process per query that
does nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from nsqc.spark import columns, options
from nsqc.spark.travel import Travels

if TYPE_CHECKING:
    from nsqc.spark.sink import BatchWriter, StreamWriter

BOUNDED = ("nsq: a channel cannot be read as a bounded table: reading removes messages, and Spark does not report when "
           "it has finished a table. Omit option channel to read a log-backed topic, use "
           "spark.readStream with .trigger(availableNow=True), which consumes waiting messages and stops, or format "
           "nsq_diskqueue for files")


class NsqSource(Travels, DataSource):
    """The format and its columns."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "nsq"

    def schema(self) -> str:
        """The columns: of logs without option channel, otherwise of a consuming stream. Spark calls this at load(),
        only for readers: a good moment to check the options. Raises OptionError."""
        if options.by_offset(self.options):
            options.log_at_load(self.options)
            return columns.LOG
        options.at_load(self.options)
        return columns.MESSAGE

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises OptionError, ValueError for an unknown column, NotImplementedError for a channel."""
        if not options.by_offset(self.options):
            raise NotImplementedError(BOUNDED)
        from nsqc.spark.log import table

        return table.reader(options.log_table(self.options), columns.chosen(schema, columns.LOG, self.name()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A Refusal for wrong options or a wrong schema: Spark's runner hides exceptions raised here behind its own
        error."""
        from nsqc.spark.log.stream import LogStreamReader
        from nsqc.spark.reader import NsqStreamReader, Refusal

        try:
            if options.by_offset(self.options):
                return LogStreamReader(options.log_stream(self.options),
                                       columns.chosen(schema, columns.LOG, self.name()))
            chosen = columns.chosen(schema, columns.MESSAGE, self.name())
            if chosen != columns.names(columns.MESSAGE):
                raise ValueError(f"nsq: a stream of a channel has all of its columns: {columns.MESSAGE}")
            return NsqStreamReader(options.stream(self.options))
        except ValueError as error:
            return Refusal(options.OptionError(str(error)))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Raises OptionError."""
        if overwrite:
            raise options.OptionError('nsq: a topic cannot be overwritten; use .mode("append")')
        from nsqc.spark.sink import BatchWriter

        return BatchWriter(self._sink(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Raises OptionError."""
        if overwrite:
            raise options.OptionError('nsq: a topic cannot be overwritten; use .outputMode("append")')
        from nsqc.spark.sink import StreamWriter

        return StreamWriter(self._sink(schema))

    def _sink(self, schema: StructType) -> options.Sink:
        from nsqc.spark import sink

        chosen = options.sink(self.options)
        sink.check_schema(schema, chosen)
        return chosen
