"""python -m nsqc.commands.pages FOLDER: writes options.md there, and tables in lookupd.md, admin.md,
monitoring.md and delivery.md.
"""

import sys
from pathlib import Path

from nsqc.commands.pages.markdown import options_page, with_metrics, with_options, with_rules
from nsqc.options.servers import ADMIN_SERVER, LOOKUPD

folder = Path(sys.argv[1])
(folder / "options.md").write_text(options_page(), encoding="utf-8")
for name, made in (("admin.md", lambda page: with_options(page, ADMIN_SERVER)), ("monitoring.md", with_metrics),
                   ("lookupd.md", lambda page: with_options(page, LOOKUPD)), ("delivery.md", with_rules)):
    path = folder / name
    path.write_text(made(path.read_text(encoding="utf-8")), encoding="utf-8")
