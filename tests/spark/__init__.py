"""The Spark data sources; what needs no Spark is tested without."""
