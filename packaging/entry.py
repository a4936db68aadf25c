"""What the executable runs."""

from nsqc.cli import main

main()
