"""What encryption and compression cost: the same load over plain, TLS, deflate and snappy connections."""
