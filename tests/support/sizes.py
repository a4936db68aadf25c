"""Values of a size field, 32 bits and signed, from a hostile peer or a damaged disk: none is a valid size, and sums
with some of them overflow 32 bits."""

SIZES = (0, 3, -1, -(1 << 31), (1 << 31) - 1, (1 << 31) - 4, 0x7FFFFFF0)
