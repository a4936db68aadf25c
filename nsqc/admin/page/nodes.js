import {h, show} from "./dom.js";
import {get, session, url} from "./api.js";
import {drain, tombstone} from "./actions.js";
import {chart} from "./chart.js";
import {age, bytes, count, date, rate, span} from "./format.js";
import {button, card, columns, filter, head, p99, tiles, toggle} from "./parts.js";
import {pager, table} from "./table.js";

const state = row => row.error ? row.seen_at ? `missing, as of ${age(row.seen_at)} ago` : "missing" : row.health && row.health !== "OK" ? "unhealthy" : row.draining ? "draining" : row.listed ? row.health || "answers" : "not listed";
const tone = row => row.error || (row.health && row.health !== "OK") ? "bad" : row.draining || !row.listed ? "warn" : row.health ? "good" : "";

export const nodeColumns = [
  {key: "address", label: "Node", text: row => row.address, link: row => url.node(row.address)},
  {key: "hostname", label: "Host", opt: true, text: row => row.hostname},
  {key: "health", label: "State", version: state, sort: false, node: row => h("span", {class: `badge ${tone(row)}`}, state(row))},
  columns.came, columns.went, columns.depth,
  {key: "topics", label: "Topics", num: true, opt: true, text: row => count(row.topics)},
  {key: "clients", label: "Consumers", num: true, opt: true, text: row => count(row.clients)},
  {key: "disk_free", label: "Disk free", num: true, opt: true, version: row => `${row.disk_free}`, node: row => row.disk_free === null ? h("span", {class: "dim"}, "–") : disk(row)},
  {key: "memory", label: "Memory", num: true, opt: true, text: row => bytes(row.memory)},
  {key: "cpu", label: "CPU", num: true, opt: true, text: row => row.cpu === null ? "–" : `${(row.cpu * 100).toFixed(1)} %`},
  {key: "bucket", label: "Bucket lag", num: true, opt: true, version: row => lag(row.bucket), node: row => h("span", {class: late(row.bucket) ? "bad" : row.bucket ? null : "dim"}, lag(row.bucket))},
  {key: "version", label: "Version", opt: true, text: row => row.nsqc ? `nsqc ${row.nsqc}` : row.version},
  columns.spark,
];

const lag = bucket => bucket ? span(bucket.lag_seconds) : "–";
const late = bucket => bucket !== null && bucket.lag_seconds > 60;
const took = bucket => `${date(bucket.owned_since)}${bucket.taken_from ? `, taken from ${bucket.taken_from}` : ""}`;

function disk(row) {
  const part = row.disk_size ? row.disk_free / row.disk_size : 0;
  return [h("span", {class: part < 0.1 ? "bad" : null}, `${Math.round(part * 100)} %`), " ", h("span", {class: "dim"}, bytes(row.disk_free))];
}

export function nodes(root) {
  const list = table({caption: "Nodes", id: row => row.address, empty: "No node has registered.", columns: nodeColumns});
  root.append(head("Nodes").element, h("section", {class: "card"}, list.element));
  return {async refresh(signal) {
    const data = await get("nodes", {}, signal);
    return () => list.update(data.nodes);
  }};
}

export function node(root, {node: address}, {refresh}) {
  let offset = 0, wanted = "";
  const LIMIT = 50, title = head(address, [["Nodes", "nodes"]]);
  const draining = toggle("Undo drain", "Drain…", is => drain(address, is));
  title.actions.append(draining.element);
  const numbers = tiles([["Published /s", data => rate(data.came)], ["Finished /s", data => rate(data.went)], ["Depth", data => count(data.depth)],
    ["In flight", data => count(data.in_flight)], ["Topics", data => count(data.topics)], ["Consumers", data => count(data.clients)],
    ["Disk free", data => bytes(data.disk_free)], ["Memory", data => bytes(data.memory)], ["Up", data => age(data.start_time)], ["Answers in", data => data.answer_ms === null ? "–" : span(data.answer_ms / 1000)]]);
  const facts = tiles([["Host", data => data.hostname || "–", null, "text"], ["TCP", data => data.tcp || "–", null, "text"],
    ["Version", data => data.nsqc ? `nsqc ${data.nsqc}, as nsqd ${data.version}` : data.version || "–", null, "text"], ["p99 latency", p99, null, "text"], ["Health", data => data.error || data.health || "–", data => tone(data) === "bad" ? "bad" : "", "text"]]);
  const bucket = tiles([["Bucket lag", data => `${lag(data)}, ${bytes(data.lag_bytes)}`, data => late(data) ? "bad" : "", "text"], ["Last checkpoint", data => data.checkpoint_time ? `${age(data.checkpoint_time)} ago` : "none yet", null, "text"],
    ["Epoch", data => count(data.epoch), null, "text"], ["Owned since", took, null, "text"], ["Last error", data => data.fenced || data.last_error || "–", data => data.fenced ? "bad" : "", "text"]]);
  const rates = chart("Messages per second", [{key: "came", name: "published"}, {key: "went", name: "finished"}], rate);
  const depths = chart("Messages", [{key: "depth", name: "waiting"}, {key: "in_flight", name: "in flight"}], count);
  const search = filter("Filter topics", "", value => { wanted = value; offset = 0; refresh(); });
  const list = table({caption: `Topics of ${address}`, id: row => row.name, empty: "No topics.", columns: [columns.topic, columns.depth, columns.backend, columns.in_flight, columns.messages, columns.bytes, columns.channels, columns.clients, columns.paused,
    ...session.mode === "lookupd" && session.may_change ? [{key: "actions", label: "", sort: false, num: true, version: row => String(row.may_change), node: (row, current) => row.may_change ? button("Remove…", () => tombstone(current().name, address), "plain danger") : ""}] : []]});
  const pages = pager(by => { offset = Math.max(0, offset + by * LIMIT); refresh(); });
  const found = h("div", {}, list.element, pages.element), topics = card("Topics", search.fault, found);
  topics.tools.append(search.input);
  root.append(title.element, numbers.element, facts.element, bucket.element, session.sees_all ? h("div", {class: "two"}, rates.element, depths.element) : "", topics.element);
  return {async refresh(signal) {
    const data = await search.ask(get(`nodes/${encodeURIComponent(address)}`, {offset, limit: LIMIT, search: wanted}, signal));
    return () => {
      show(found, Boolean(data));
      if (!data) return;
      title.badges([[state(data), tone(data)]]);
      draining.update(data.draining);
      draining.element.hidden = Boolean(data.error) || !(session.may_change && session.may_extend && data.may_change);
      numbers.update(data);
      facts.update(data);
      show(bucket.element, Boolean(data.bucket));
      if (data.bucket) bucket.update(data.bucket);
      rates.update(data.series);
      depths.update(data.series);
      list.update(data.topic_rows.map(row => ({...row, may_change: row.may_change && !data.error})));
      pages.update(data.offset ?? 0, LIMIT, data.total);
    };
  }};
}
