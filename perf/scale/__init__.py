"""What many topics cost: start, new topics, changes of one, statistics of all."""
