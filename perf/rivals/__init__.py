"""nsqc beside other message servers."""
