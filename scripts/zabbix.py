#!/usr/bin/env python3
"""zabbix.py [FILE] - writes the template for Zabbix 6.0 and later (deploy/zabbix/nacre.yaml) from the tables below.

One item fetches a daemon's or mount's page; all others are taken out of it. The test `metrics` looks that the file is what this
makes, and that a page has every metric it names."""
import json
import os
import sys
import uuid

NAME = "Nacre by HTTP"
PAGE = "nacre.page"
NAMESPACE = uuid.UUID("6f1c3c7e-52a7-4a2b-9a55-0b3a5a0d9a10")

# key, name, units, pattern, how several rows become one value, (trigger, severity, name)
ITEMS = [
    ("nacre.healthy", "Healthy", "", "nacre_healthy", "min", [
        ("last({})=0", "HIGH", "Nacre on {HOST.NAME} is not healthy"),
        # Not of the page itself, of which Zabbix keeps nothing.
        ("nodata({},5m)=1", "HIGH", "Nacre on {HOST.NAME} tells no metrics"),
    ]),
    ("nacre.left_out", "Rows that found no room on the page", "", "nacre_metrics_left_out", "sum", []),
]


def slow_probes(kind, prefix):
    """Of a kind of target."""
    return (f"nacre.{kind}.probes_slow", "{#TARGET}: slow probes", "",
            f'nacre_{prefix}_probe_operation_seconds_count{{target="{{#TARGET}}",operation="slow"}}', "value or 0", [
                ("max({},10m)-min({},10m)>2", "WARNING", "{#TARGET} takes long to make small changes durable"),
            ])


# key, name, discovered from, {macro: label}, items as above, with macros
RULES = [
    ("nacre.targets", "Targets", "nacre_target_up", {"{#COMPONENT}": "component", "{#TARGET}": "target"}, [
        ("nacre.target.up", "{#TARGET}: up", "", 'nacre_target_up{target="{#TARGET}"}', "value", []),
        ("nacre.target.recovering", "{#TARGET}: in recovery", "", 'nacre_target_recovering{target="{#TARGET}"}', "value", [
            ("min({},5m)=1", "WARNING", "{#TARGET} is in recovery for 5 minutes"),
        ]),
        ("nacre.target.readonly", "{#TARGET}: read-only", "", 'nacre_target_read_only{target="{#TARGET}"}', "value", [
            ("last({})=1", "HIGH", "{#TARGET} takes no changes"),
        ]),
    ]),
    ("nacre.osts", "OSTs", "nacre_obdfilter_total_bytes", {"{#TARGET}": "target"}, [
        ("nacre.ost.total", "{#TARGET}: size", "B", 'nacre_obdfilter_total_bytes{target="{#TARGET}"}', "value", []),
        ("nacre.ost.avail", "{#TARGET}: available", "B", 'nacre_obdfilter_avail_bytes{target="{#TARGET}"}', "value", [
            ("last({})<last(/" + NAME + "/nacre.ost.total[{#TARGET}])*(100-{$NACRE.FULL.WARN})/100", "WARNING",
             "{#TARGET} is more than {$NACRE.FULL.WARN} % full"),
        ]),
        ("nacre.ost.bytes", "{#TARGET}: bytes read and written", "Bps",
         'nacre_obdfilter_operation_bytes_sum{target="{#TARGET}"}', "rate", []),
        ("nacre.ost.operations", "{#TARGET}: operations", "ops",
         'nacre_obdfilter_operation_seconds_count{target="{#TARGET}"}', "rate", []),
        ("nacre.ost.evictions", "{#TARGET}: evictions", "", 'nacre_obdfilter_evictions_total{target="{#TARGET}"}', "value", [
            ("change({})>0", "WARNING", "{#TARGET} evicted a client"),
        ]),
        ("nacre.ost.checksum_errors", "{#TARGET}: checksum errors", "",
         'nacre_obdfilter_checksum_errors_total{target="{#TARGET}"}', "value", [
            ("change({})>0", "HIGH", "Data of {#TARGET} is not what was written"),
        ]),
        slow_probes("ost", "obdfilter"),
    ]),
    ("nacre.mdts", "MDTs", "nacre_mdt_filestotal", {"{#TARGET}": "target"}, [
        ("nacre.mdt.inodes", "{#TARGET}: inodes", "", 'nacre_mdt_filestotal{target="{#TARGET}"}', "value", []),
        ("nacre.mdt.inodes_free", "{#TARGET}: inodes free", "", 'nacre_mdt_filesfree{target="{#TARGET}"}', "value", [
            ("last({})<last(/" + NAME + "/nacre.mdt.inodes[{#TARGET}])*0.1", "WARNING", "{#TARGET} has less than 10 % of its inodes left"),
        ]),
        ("nacre.mdt.operations", "{#TARGET}: operations", "ops", 'nacre_mdt_operation_seconds_count{target="{#TARGET}"}', "rate", []),
        ("nacre.mdt.clients", "{#TARGET}: clients", "", 'nacre_mdt_num_exports{target="{#TARGET}"}', "value", []),
        ("nacre.mdt.open", "{#TARGET}: open files", "", 'nacre_mdt_open_files{target="{#TARGET}"}', "value", []),
        ("nacre.mdt.evictions", "{#TARGET}: evictions", "", 'nacre_mdt_evictions_total{target="{#TARGET}"}', "value", [
            ("change({})>0", "WARNING", "{#TARGET} evicted a client"),
        ]),
        slow_probes("mdt", "mdt"),
    ]),
    ("nacre.mounts", "Sessions of mounts with OSTs", "nacre_osc_connected", {"{#MOUNT}": "mount", "{#TARGET}": "target"}, [
        ("nacre.osc.connected", "{#MOUNT}: session with {#TARGET}", "",
         'nacre_osc_connected{mount="{#MOUNT}",target="{#TARGET}"}', "value", [
            ("max({},1m)=0", "HIGH", "{#MOUNT} has no session with {#TARGET}"),
        ]),
        ("nacre.osc.oldest", "{#MOUNT}: oldest request to {#TARGET}", "s",
         'nacre_osc_oldest_request_seconds{mount="{#MOUNT}",target="{#TARGET}"}', "value", [
            ("last({})>60", "HIGH", "{#MOUNT} waits for {#TARGET}"),
        ]),
    ]),
    ("nacre.mount_mdts", "Sessions of mounts with MDTs", "nacre_mdc_connected", {"{#MOUNT}": "mount", "{#TARGET}": "target"}, [
        ("nacre.mdc.connected", "{#MOUNT}: session with {#TARGET}", "",
         'nacre_mdc_connected{mount="{#MOUNT}",target="{#TARGET}"}', "value", [
            ("max({},1m)=0", "HIGH", "{#MOUNT} has no session with {#TARGET}"),
        ]),
        ("nacre.mdc.oldest", "{#MOUNT}: oldest request to {#TARGET}", "s",
         'nacre_mdc_oldest_request_seconds{mount="{#MOUNT}",target="{#TARGET}"}', "value", [
            ("last({})>60", "HIGH", "{#MOUNT} waits for {#TARGET}"),
        ]),
    ]),
]

MACROS = [
    ("{$NACRE.URL}", "http://{HOST.CONN}:9169/metrics", "Where the daemon or mount tells its metrics (nacred --metrics, mount option metrics=)"),
    ("{$NACRE.FULL.WARN}", "90", "An OST that is fuller than so many percent is told"),
]


def ident(*names):
    """The same for the same thing each time, in the form of a random one, which Zabbix asks for."""
    b = bytearray(uuid.uuid5(NAMESPACE, "/".join(names)).bytes)
    b[6] = b[6] & 0x0F | 0x40
    return b.hex()


def item(of, key, name, units, pattern, how, triggers, discovered):
    """An item, or with `discovered` (the macros) the prototype of one."""
    full = f"{key}[{','.join(discovered)}]" if discovered else key
    taken = ("value", "") if how.startswith("value") else ("function", "sum" if how == "rate" else how)
    steps = [{"type": "PROMETHEUS_PATTERN", "parameters": [pattern, *taken]}]
    if how == "value or 0":
        # What never counted has no row.
        steps[0] |= {"error_handler": "CUSTOM_VALUE", "error_handler_params": "0"}
    if how == "rate":
        steps.append({"type": "CHANGE_PER_SECOND", "parameters": [""]})
    out = {
        "uuid": ident(of, full), "name": name, "type": "DEPENDENT", "key": full, "delay": "0", "history": "30d",
        "value_type": "FLOAT", **({"units": units} if units else {}),
        "preprocessing": steps, "master_item": {"key": PAGE},
        "tags": [{"tag": "component", "value": "nacre"}],
    }
    if triggers:
        out["trigger_prototypes" if discovered else "triggers"] = [
            {"uuid": ident(of, full, text), "expression": text.replace("{}", f"/{NAME}/{full}"),
             "name": said, "priority": severity}
            for text, severity, said in triggers
        ]
    return out


def rule(key, name, found_by, macros, items):
    names = list(macros)
    # The component of a target is told, and makes no key: a target has one.
    keys = [m for m in names if m != "{#COMPONENT}"]
    return {
        "uuid": ident("rule", key), "name": name, "type": "DEPENDENT", "key": key, "delay": "0", "lifetime": "7d",
        "item_prototypes": [item(key, *i, keys) for i in items],
        "master_item": {"key": PAGE},
        "lld_macro_paths": [{"lld_macro": m, "path": f"$.labels['{label}']"} for m, label in macros.items()],
        "preprocessing": [{"type": "PROMETHEUS_TO_JSON", "parameters": [found_by]}],
    }


def template():
    page = {
        "uuid": ident("item", PAGE), "name": "Page of metrics", "type": "HTTP_AGENT", "key": PAGE, "history": "0", "trends": "0",
        "value_type": "TEXT", "url": "{$NACRE.URL}", "timeout": "10s", "tags": [{"tag": "component", "value": "nacre"}],
    }
    return {"zabbix_export": {
        "version": "6.0",
        "groups": [{"uuid": ident("group"), "name": "Templates/Nacre"}],
        "templates": [{
            "uuid": ident("template"), "template": NAME, "name": NAME,
            "description": "A daemon or mount of the Nacre file system: one host of Zabbix for each. See docs/monitoring.md.",
            "groups": [{"name": "Templates/Nacre"}],
            "items": [page] + [item("item", *i, []) for i in ITEMS],
            "discovery_rules": [rule(*r) for r in RULES],
            "macros": [{"macro": m, "value": v, "description": d} for m, v, d in MACROS],
        }],
    }}


def yaml(value, indent=0):
    """Lines of plain YAML: words in double quotes, which are JSON's."""
    pad = "  " * indent
    if isinstance(value, dict):
        for k, v in value.items():
            if isinstance(v, (dict, list)):
                yield f"{pad}{k}:"
                yield from yaml(v, indent + 1)
            else:
                yield f"{pad}{k}: {json.dumps(v)}"
    else:
        for v in value:
            if isinstance(v, dict):
                lines = list(yaml(v, indent + 1))
                yield f"{pad}- {lines[0].strip()}"
                yield from lines[1:]
            else:
                yield f"{pad}- {json.dumps(v)}"


def main():
    here = os.path.join(os.path.dirname(__file__), "..", "deploy", "zabbix", "nacre.yaml")
    with open(sys.argv[1] if len(sys.argv) > 1 else here, "w") as f:
        f.write("# Made by scripts/zabbix.py: change it there.\n" + "\n".join(yaml(template())) + "\n")


main()
