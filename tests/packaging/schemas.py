"""Checks objects against Kubernetes' published schemas, from the package `kubernetes`: no unknown or missing field, and
every value has its field's type."""

import re
from collections.abc import Iterator

from kubernetes import client

MODELS = {("v1", "Service"): "V1Service", ("v1", "ConfigMap"): "V1ConfigMap", ("apps/v1", "StatefulSet"): "V1StatefulSet",
          ("apps/v1", "Deployment"): "V1Deployment", ("policy/v1", "PodDisruptionBudget"): "V1PodDisruptionBudget"}
PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float), "datetime": str}
# The Prometheus operator has no Python package: these are the fields of its API reference.
OPERATOR = "monitoring.coreos.com/v1"
CUSTOM = {
    "ServiceMonitor": {
        "jobLabel": str, "selector": {"matchLabels": dict, "matchExpressions": [{"key": str, "operator": str, "values": [str]}]},
        "endpoints": [{"port": str, "path": str, "interval": str,
                       "authorization": {"type": str, "credentials": {"name": str, "key": str}}}]},
    "PrometheusRule": {
        "groups": [{"name": str, "interval": str, "rules": [{"alert": str, "expr": str, "for": str, "labels": dict, "annotations": dict}]}]},
}


def problems(thing: dict) -> list[str]:
    """The errors in an object."""
    version, kind = thing["apiVersion"], thing["kind"]
    if version == OPERATOR:
        return [*of_model("V1ObjectMeta", thing["metadata"], "metadata"), *of_shape(CUSTOM[kind], thing["spec"], "spec")]
    return list(of_model(MODELS[version, kind], thing, kind))


def of_model(name: str, value: object, place: str) -> Iterator[str]:
    """The same for a part of it."""
    if name in PLAIN:
        is_bool = isinstance(value, bool) and name != "bool"
        if not isinstance(value, PLAIN[name]) or is_bool:
            yield f"{place}: {value!r} is not {name}"
        return
    if name == "object":        # an integer or text
        return
    if parts := re.fullmatch(r"List\[(.+)\]", name):
        if not isinstance(value, list):
            yield f"{place}: not a list"
            return
        for number, item in enumerate(value):
            yield from of_model(parts[1], item, f"{place}[{number}]")
        return
    if parts := re.fullmatch(r"Dict\[str, (.+)\]", name):
        for key, item in value.items():
            yield from of_model(parts[1], item, f"{place}.{key}")
        return
    model = getattr(client, name)
    if not isinstance(value, dict):
        yield f"{place}: {value!r} is not {name}"
        return
    attributes = {key: attribute for attribute, key in model.attribute_map.items()}
    yield from (f"{place}: unknown field {key}" for key in value if key not in attributes)
    for key, item in value.items():
        if key in attributes:
            yield from of_model(model.openapi_types[attributes[key]], item, f"{place}.{key}")
    keys = {attribute: key for key, attribute in attributes.items()}
    wanted = {field.alias or keys.get(attribute, attribute)
              for attribute, field in model.model_fields.items() if field.is_required()}
    yield from (f"{place}: field {key} is missing" for key in sorted(wanted - value.keys()))


def of_shape(shape: object, value: object, place: str) -> Iterator[str]:
    """The same by a table above."""
    if isinstance(shape, list):
        for number, item in enumerate(value):
            yield from of_shape(shape[0], item, f"{place}[{number}]")
    elif isinstance(shape, dict):
        for key, item in value.items():
            if key not in shape:
                yield f"{place}: unknown field {key}"
            else:
                yield from of_shape(shape[key], item, f"{place}.{key}")
    elif not isinstance(value, shape):
        yield f"{place}: {value!r} is not {shape.__name__}"
