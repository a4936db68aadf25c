"""The cost of many topics: start, new topics, changes of one, statistics of all."""
