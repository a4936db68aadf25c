"""Publishing, consuming and both at once by size of body, compared with a floor that copies each body once."""
