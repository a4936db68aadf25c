"""Levels of log lines. Their numbers are nsqd's."""

from typing import Final

DEBUG, INFO, WARN, ERROR, FATAL = 1, 2, 3, 4, 5
AUDIT = 6      # of the audit log; always written
# As in nsqd's lines.
WORDS: Final = {DEBUG: "DEBUG", INFO: "INFO", WARN: "WARNING", ERROR: "ERROR", FATAL: "FATAL", AUDIT: "AUDIT"}
# As in --log-level, the config file and PUT /config/log_level.
LEVELS: Final = {"debug": DEBUG, "info": INFO, "warn": WARN, "error": ERROR, "fatal": FATAL}
