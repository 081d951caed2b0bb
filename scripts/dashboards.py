#!/usr/bin/env python3
"""dashboards.py [DIR] - writes Grafana's dashboards (deploy/grafana) from the table below.

A panel is a title, a unit, and queries with their legends. The test `metrics` asks a real Prometheus each of them, and looks that
the files are what this makes."""
import json
import os
import sys

RATE = "[$__rate_interval]"
T = '{target=~"$target"}'


def rate(name, by, more=""):
    return f"sum by ({by}) (rate({name}{{{more}}}{RATE}))"


def mean(name, by, more=""):
    """Seconds an operation took; nothing where there was none."""
    return f"{rate(name + '_sum', by, more)} / ({rate(name + '_count', by, more)} > 0)"


def part(name, q, more):
    return f"histogram_quantile({q}, sum by (operation, le) (rate({name}_bucket{{{more}}}{RATE})))"


OF_T = 'target=~"$target"'
OF_M = 'mount=~"$mount"'

BOARDS = {
    "overview": ("Nacre: overview", [], [
        ("Targets", "none", "stat", [("sum(nacre_target_up)", "up"), ("count(nacre_target_up)", "all")]),
        ("Daemons and mounts", "none", "stat", [("sum(nacre_healthy)", "healthy"), ("count(nacre_healthy)", "all")]),
        ("Space used", "percentunit", "stat", [("1 - sum(nacre_obdfilter_avail_bytes) / sum(nacre_obdfilter_total_bytes)", "used")]),
        ("Clients", "none", "stat", [("max(nacre_mdt_num_exports)", "clients")]),
        ("Throughput", "Bps", "graph", [(rate("nacre_obdfilter_operation_bytes_sum", "operation"), "{{operation}}")]),
        ("Metadata operations", "ops", "graph", [(rate("nacre_mdt_operation_seconds_count", "operation"), "{{operation}}")]),
        ("Fill of OSTs", "percentunit", "graph", [("1 - nacre_obdfilter_avail_bytes / nacre_obdfilter_total_bytes", "{{target}}")]),
        ("Inodes free", "none", "graph", [("nacre_mdt_filesfree", "{{target}}")]),
        ("Evictions", "none", "graph", [("increase(nacre_obdfilter_evictions_total[1h])", "{{target}}"),
                                        ("increase(nacre_mdt_evictions_total[1h])", "{{target}}")]),
        ("Checksum errors", "none", "graph", [("increase(nacre_obdfilter_checksum_errors_total[1h])", "{{target}}"),
                                              ("increase(nacre_osc_checksum_errors_total[1h])", "{{mount}} {{target}}")]),
        ("Time of a scrape", "s", "graph", [('scrape_duration_seconds{job="nacre"}', "{{instance}}")]),
        ("Left out of pages", "none", "graph", [("sum by (instance, what) (nacre_metrics_left_out)", "{{instance}} {{what}}")]),
    ]),
    "mdt": ("Nacre: metadata targets", ["target"], [
        ("Operations", "ops", "graph", [(rate("nacre_mdt_operation_seconds_count", "operation", OF_T), "{{operation}}")]),
        ("Time of an operation", "s", "graph", [(mean("nacre_mdt_operation_seconds", "operation", OF_T), "{{operation}}")]),
        ("By client", "ops", "graph", [(f"topk(10, {rate('lustre_client_export_stats_total', 'nid', 'component=' + chr(34) + 'mdt' + chr(34) + ',' + OF_T)})", "{{nid}}")]),
        ("Inodes", "none", "graph", [("nacre_mdt_filestotal" + T, "{{target}} all"), ("nacre_mdt_filesfree" + T, "{{target}} free")]),
        ("Clients", "none", "graph", [("nacre_mdt_num_exports" + T, "{{target}}")]),
        ("Open files", "none", "graph", [("nacre_mdt_open_files" + T, "{{target}}")]),
        ("Leases", "none", "graph", [("nacre_mdt_leases" + T, "{{target}}")]),
        ("Sessions with OSTs", "none", "graph", [("nacre_osp_connected" + T, "{{target}} {{ost}}")]),
        ("Objects to be destroyed", "none", "graph", [("nacre_osp_destroys_pending" + T, "{{target}} {{ost}}")]),
    ]),
    "ost": ("Nacre: object targets", ["target"], [
        ("Throughput", "Bps", "graph", [(rate("nacre_obdfilter_operation_bytes_sum", "target, operation", OF_T), "{{target}} {{operation}}")]),
        ("Operations", "ops", "graph", [(rate("nacre_obdfilter_operation_seconds_count", "operation", OF_T), "{{operation}}")]),
        ("Time of an operation", "s", "graph", [(mean("nacre_obdfilter_operation_seconds", "operation", OF_T), "{{operation}}")]),
        ("Time of reads and writes, 95 %", "s", "graph", [(part("nacre_obdfilter_io_time_seconds", 0.95, OF_T), "{{operation}}")]),
        ("Size of reads and writes, half of them", "bytes", "graph", [(part("nacre_obdfilter_io_size_bytes", 0.5, OF_T), "{{operation}}")]),
        ("Space", "bytes", "graph", [("nacre_obdfilter_total_bytes" + T, "{{target}} all"), ("nacre_obdfilter_avail_bytes" + T, "{{target}} available")]),
        ("Promised to clients", "bytes", "graph", [("nacre_obdfilter_tot_granted_bytes" + T, "{{target}}")]),
        ("Being written", "bytes", "graph", [("nacre_obdfilter_tot_pending_bytes" + T, "{{target}}")]),
        ("By client", "Bps", "graph", [(f"topk(10, {rate('lustre_client_export_bytes_total', 'nid, operation', OF_T)})", "{{nid}} {{operation}}")]),
        ("Checksum errors", "none", "graph", [("nacre_obdfilter_checksum_errors_total" + T, "{{target}}")]),
    ]),
    "client": ("Nacre: mounts", ["mount"], [
        ("Calls", "ops", "graph", [(rate("nacre_llite_operation_seconds_count", "operation", OF_M), "{{operation}}")]),
        ("Time of a call", "s", "graph", [(mean("nacre_llite_operation_seconds", "operation", OF_M), "{{operation}}")]),
        ("Throughput", "Bps", "graph", [(rate("nacre_llite_operation_bytes_sum", "operation", OF_M), "{{operation}}")]),
        ("Requests to OSTs", "s", "graph", [(mean("nacre_osc_operation_seconds", "target", OF_M), "{{target}}")]),
        ("Requests to MDTs", "s", "graph", [(mean("nacre_mdc_operation_seconds", "target", OF_M), "{{target}}")]),
        ("Sessions", "none", "graph", [(f"nacre_osc_connected{{{OF_M}}}", "{{mount}} {{target}}"), (f"nacre_mdc_connected{{{OF_M}}}", "{{mount}} {{target}}")]),
        ("Oldest request", "s", "graph", [(f"nacre_osc_oldest_request_seconds{{{OF_M}}}", "{{mount}} {{target}}"),
                                          (f"nacre_mdc_oldest_request_seconds{{{OF_M}}}", "{{mount}} {{target}}")]),
        ("Kept in memory", "bytes", "graph", [(f"nacre_llite_used_clean_bytes{{{OF_M}}}", "{{mount}} read"),
                                              (f"nacre_llite_used_unwritten_bytes{{{OF_M}}}", "{{mount}} unwritten"),
                                              (f"nacre_llite_used_small_bytes{{{OF_M}}}", "{{mount}} small files")]),
        ("Names and attributes from memory", "ops", "graph", [(rate("nacre_llite_meta_cache_hits_total", "mount", OF_M), "{{mount}} from memory"),
                                                              (rate("nacre_llite_meta_cache_misses_total", "mount", OF_M), "{{mount}} asked")]),
        ("Leases", "none", "graph", [(f"nacre_ldlm_locks{{{OF_M}}}", "{{mount}}")]),
    ]),
    "job": ("Nacre: jobs", [], [
        ("Operations", "ops", "graph", [(f"topk(10, {rate('lustre_job_stats_total', 'jobid')})", "{{jobid}}")]),
        ("Written", "Bps", "graph", [(f"topk(10, {rate('lustre_job_write_bytes_total', 'jobid')})", "{{jobid}}")]),
        ("Read", "Bps", "graph", [(f"topk(10, {rate('lustre_job_read_bytes_total', 'jobid')})", "{{jobid}}")]),
        ("By operation", "ops", "graph", [(f"topk(10, {rate('lustre_job_stats_total', 'jobid, operation')})", "{{jobid}} {{operation}}")]),
        ("By target", "ops", "graph", [(f"topk(10, {rate('lustre_job_stats_total', 'jobid, target')})", "{{jobid}} {{target}}")]),
        ("Jobs there was no room for", "none", "graph", [('sum by (instance) (nacre_metrics_left_out{what="jobs"})', "{{instance}}")]),
    ]),
    "recovery": ("Nacre: recovery", ["target"], [
        ("In recovery", "none", "graph", [("nacre_target_recovering" + T, "{{target}}")]),
        ("Clients that are waited for", "none", "graph", [("nacre_target_recovery_missing" + T, "{{target}}")]),
        ("For how long yet", "s", "graph", [("nacre_target_recovery_left_seconds" + T, "{{target}}")]),
        ("Targets that serve", "none", "graph", [("nacre_target_up" + T, "{{target}}")]),
        ("Starts", "none", "graph", [("nacre_obdfilter_instance" + T, "{{target}}"), ("nacre_mdt_instance" + T, "{{target}}")]),
        ("Clients without a session", "none", "graph", [('count by (target) (nacre_osc_connected{' + OF_T + '}) - sum by (target) (nacre_osc_connected{' + OF_T + '})', "{{target}}"),
                                                        ('count by (target) (nacre_mdc_connected{' + OF_T + '}) - sum by (target) (nacre_mdc_connected{' + OF_T + '})', "{{target}}")]),
        ("Evictions", "none", "graph", [("nacre_obdfilter_evictions_total" + T, "{{target}}"), ("nacre_mdt_evictions_total" + T, "{{target}}")]),
    ]),
}

VARIABLES = {"target": "label_values(nacre_target_up, target)", "mount": "label_values(nacre_healthy, mount)"}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def panel(i, title, unit, kind, queries):
    stat = kind == "stat"
    targets = [{"datasource": SOURCE, "expr": e, "legendFormat": legend, "refId": chr(ord("A") + n)} for n, (e, legend) in enumerate(queries)]
    return {
        "id": i + 1,
        "title": title,
        "type": "stat" if stat else "timeseries",
        "datasource": SOURCE,
        "gridPos": {"h": 8, "w": 12, "x": 12 * (i % 2), "y": 8 * (i // 2)},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {} if stat else {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }


def variable(name):
    return {"name": name, "type": "query", "datasource": SOURCE, "query": VARIABLES[name], "refresh": 2, "includeAll": True,
            "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}


def board(name, title, variables, panels):
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"nacre-{name}",
        "title": title,
        "tags": ["nacre"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["nacre"], "title": "Nacre", "asDropdown": True}],
        "templating": {"list": [source] + [variable(v) for v in variables]},
        "panels": [panel(i, *p) for i, p in enumerate(panels)],
    }


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "deploy", "grafana")
    for name, (title, variables, panels) in BOARDS.items():
        with open(os.path.join(out, f"{name}.json"), "w", encoding="utf-8") as f:
            json.dump(board(name, title, variables, panels), f, indent=2)
            f.write("\n")


if __name__ == "__main__":
    main()
