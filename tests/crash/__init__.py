"""kill -9 at random moments under load, with records of what each channel must, may and must not deliver afterwards."""
