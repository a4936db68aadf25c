"""The Spark data sources; parts that need no Spark are tested without it."""
