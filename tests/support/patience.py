"""How long tests wait for what has to come. A wait that ends early costs nothing, and one that ends too early fails a test
on a busy machine: so there is one limit, for everything, that only a defect reaches."""

WAIT_SECONDS = 180.0
