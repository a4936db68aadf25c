"""python -m nsqc"""

from nsqc.cli import main

main()
