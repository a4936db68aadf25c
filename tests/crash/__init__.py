"""kill -9 at random moments under load, with books of what each channel must, may and must not deliver afterwards."""
