"""Values of a size field, 32 bits and signed, that a hostile peer or a damaged disk may show: none is the size of anything,
and sums with some of them do not fit into 32 bits."""

SIZES = (0, 3, -1, -(1 << 31), (1 << 31) - 1, (1 << 31) - 4, 0x7FFFFFF0)
