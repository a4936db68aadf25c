"""The cost of encryption and compression: the same load over plain, TLS, deflate and snappy connections."""
