"""What Prometheus scrapes: metrics declared once, and their two text formats. Knows no topic and no socket."""
