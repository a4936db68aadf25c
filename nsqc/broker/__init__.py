"""Who gets which message: topics, channels, consumers; knows no socket."""
