"""The cost of a scrape of many topics."""
