"""The log of `nsqc worker` on stderr: the client's, the worker's, and the application's own."""

from __future__ import annotations

import json
import logging
import time

from nsqc.log.visible import visible, visible_json, visible_lines

PREFIX = "nsq_"     # of the fields that nsqc.client.handling adds to records


class TextForm(logging.Formatter):
    """One line for a record, and its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """See Formatter."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        line = f"{stamp}.{int(record.msecs):03d} {record.levelname} {visible(record.getMessage())}"
        if record.exc_info:
            line += f"\n{visible_lines(self.formatException(record.exc_info))}"
        return line


class JsonForm(logging.Formatter):
    """One JSON object for a record."""

    def format(self, record: logging.LogRecord) -> str:
        """See Formatter."""
        fields = {"time": round(record.created, 6), "level": record.levelname.lower(), "logger": record.name,
                  "text": record.getMessage()}
        fields |= {name.removeprefix(PREFIX): value for name, value in vars(record).items() if name.startswith(PREFIX)}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return visible_json(json.dumps(fields, ensure_ascii=False, default=str))


def set_up(form: str, verbose: bool) -> None:
    """Configures logging to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonForm() if form == "json" else TextForm())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if verbose:
        logging.getLogger("nsqc.worker").setLevel(logging.DEBUG)
