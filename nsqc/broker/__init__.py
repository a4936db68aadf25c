"""Distributes messages: topics, channels, consumers; knows no socket."""
