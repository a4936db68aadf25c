"""The Helm chart by Helm's own library, which comes as a Python package (the extra `delivery`).

    python packaging/manifests.py plain                 writes packaging/kubernetes/nsqc.yaml, the chart's defaults
    python packaging/manifests.py package [--out dist]  the chart as an archive
"""

import argparse
import re
from pathlib import Path

from helm_python import Chart
from helm_python.chart import package

ROOT = Path(__file__).parent.parent
CHART = ROOT / "packaging" / "helm" / "nsqc"
PLAIN = ROOT / "packaging" / "kubernetes" / "nsqc.yaml"
HEAD = """\
# nsqc in Kubernetes without Helm: kubectl apply --namespace NAME --filename nsqc.yaml. Generated from the chart by
# packaging/manifests.py; docs/installing.md explains it.
"""
OF_HELM = re.compile(r"^ *(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n", re.MULTILINE)


def rendered(values: dict | None = None, name: str = "nsqc", namespace: str = "default") -> str:
    """All objects as YAML."""
    with Chart.load(CHART) as chart:
        files = chart.render(values or {}, name=name, namespace=namespace)
    texts = [text.strip() for path, text in sorted(files.items()) if path.endswith(".yaml")]
    return "\n---\n".join(re.sub(r" +$", "", text, flags=re.MULTILINE) for text in texts if text) + "\n"


def plain() -> str:
    """The chart with its default values, without Helm's labels."""
    text = re.sub(r"\n\n+", "\n", rendered())
    return HEAD + "---\n" + OF_HELM.sub("", text)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("plain", "package"))
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    if arguments.what == "plain":
        PLAIN.write_text(plain())
        return
    print(package(CHART, destination=arguments.out))


if __name__ == "__main__":
    main()
