"""What a scrape of many topics costs."""
