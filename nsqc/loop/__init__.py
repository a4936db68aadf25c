"""The event loop's time: iterations that take too long, and the handlers that caused them."""
