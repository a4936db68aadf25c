"""What the event loop's time is spent on: iterations that take too long, and the handlers that took it."""
