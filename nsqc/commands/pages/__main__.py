"""python -m nsqc.commands.pages FOLDER: writes options.md there, and tables in lookupd.md, admin.md, metrics.md and
delivery.md.
"""

import sys
from pathlib import Path

from nsqc.commands.pages.markdown import (
    options_page,
    with_admin_options,
    with_lookupd_options,
    with_metrics,
    with_rules,
)

Path(sys.argv[1], "options.md").write_text(options_page(), encoding="utf-8")
admin = Path(sys.argv[1], "admin.md")
admin.write_text(with_admin_options(admin.read_text(encoding="utf-8")), encoding="utf-8")
lookupd = Path(sys.argv[1], "lookupd.md")
lookupd.write_text(with_lookupd_options(lookupd.read_text(encoding="utf-8")), encoding="utf-8")
metrics = Path(sys.argv[1], "metrics.md")
metrics.write_text(with_metrics(metrics.read_text(encoding="utf-8")), encoding="utf-8")
delivery = Path(sys.argv[1], "delivery.md")
delivery.write_text(with_rules(delivery.read_text(encoding="utf-8")), encoding="utf-8")
