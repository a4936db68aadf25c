"""Publishing, consuming and both at once by size of body, beside a floor that copies each body once."""
