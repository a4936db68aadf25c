"""Prometheus metrics, each declared once, and their two text formats. Knows no topics and no sockets."""
