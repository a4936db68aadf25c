"""How long tests wait for an event. A wait that ends early costs nothing, and one that is too short fails a test on a
busy machine: so there is one limit, for everything, that only a defect reaches."""

WAIT_SECONDS = 180.0
