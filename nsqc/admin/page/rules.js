// The rules of a topic or channel: what they are called, and the form that changes them.
import {h} from "./dom.js";
import {get} from "./api.js";
import {act, label} from "./actions.js";
import {ask, toast} from "./dialog.js";

// [group, {key: [words, unit]}]. Keys that are missing here are in a group of their own.
const GROUPS = [
  ["Storage", {storage: ["Messages are kept in"], sync: ["Publishes to a log are acknowledged after"], retain_time: ["Finished messages stay for"], retain_bytes: ["Size of the log, at most", "bytes"], retain_local_bytes: ["Of it on the node's disk, at most", "bytes"]}],
  ["Publish ids", {dedupe: ["Repeats are recognised for"], dedupe_ids: ["Ids remembered, at most", "ids"]}],
  ["Retries", {requeue_delay: ["Delay of a retry"], requeue_backoff: ["Growth of the delay", "times the one before"], requeue_max: ["Delay, at most"], requeue_on_disconnect: ["Retry when a consumer is lost"]}],
  ["Dead letters", {max_attempts: ["Attempts, at most", "deliveries of a message"], dead_letter: ["Dead-letter topic"]}],
  ["Order and pace", {ordered: ["Strict order"], max_in_flight: ["In flight, at most", "messages"], rate: ["Deliveries, at most", "a second, on each node"], rate_burst: ["At once after a pause", "deliveries"]}],
  ["Limits", {message_ttl: ["Messages expire after"], expired: ["Expired messages are"], max_depth: ["Messages waiting, at most", "messages"], max_bytes: ["Size of those, at most", "bytes"], overflow: ["Beyond a limit"]}],
];
const CHOICES = {true: "yes", false: "no", memory: "memory and disk queues", log: "a log", write: "the write", fsync: "the sync to the disk", refuse: "publishes are refused",
  "drop-oldest": "the oldest messages are dropped", "dead-letter": "moved to the dead-letter topic", drop: "dropped"};

/** The keys by group: [[group, [{key, words, unit}]]]. */
export function grouped(keys) {
  const left = new Map(keys.map(each => [each.key, each]));
  const take = names => names.filter(name => left.has(name)).map(name => { const each = left.get(name); left.delete(name); return each; });
  const found = GROUPS.map(([group, words]) => [group, take(Object.keys(words)).map(each => ({...each, words: words[each.key][0], unit: words[each.key][1] ?? (each.kind === "duration" ? "such as 90s or 36h" : "")}))]);
  return [...found, ["More", take([...left.keys()]).map(each => ({...each, words: each.key, unit: ""}))]].filter(([, some]) => some.length);
}

/** Asks for the rules of a topic or of a channel. rows: node_rules of the API. */
export async function rules(topic, channel, rows) {
  const known = rows.filter(row => row.rules), what = `Rules of ${label(topic, channel)}`;
  if (!known.length) { toast(`${what}: no node shows them. ${rows[0]?.error ?? ""}`, [], true); return false; }
  let keys;
  try { keys = (await get("rules"))[channel ? "channel" : "topic"]; } catch (error) { toast(`${what}: ${error.message}`, [], true); return false; }
  const shown = grouped(keys.filter(({key}) => known.some(row => key in row.rules))).flatMap(([group, some]) => some.map(each => {
    const values = [...new Set(known.map(row => String(row.rules[each.key] ?? "")))];
    return {...each, group, values, now: values.length === 1 ? values[0] : ""};
  }));
  const given = await ask({title: what, verb: "Save", lines: ["These are the rules of all nodes, with their current values. An empty field means the value of the config file, or the default."], fields: shown.map(field)});
  if (!given) return false;
  const set = Object.fromEntries(shown.filter(each => given[each.key] !== each.now).map(each => [each.key, typed(each, given[each.key])]));
  if (!Object.keys(set).length) { toast(`${what}: nothing was changed`); return false; }
  return act(what, {action: "rules", topic, channel, rules: set});
}

/** A key as a field of the dialog. */
function field(each) {
  const number = each.kind === "int" || each.kind === "float";
  return {name: each.key, group: each.group, label: [`${each.words} `, h("code", {}, each.key)], unit: each.unit, value: each.now,
    help: each.values.length > 1 ? `${each.help}. Nodes differ: ${each.values.join(", ")}` : each.help,
    ...each.choices.length ? {options: [["", "–"], ...each.choices.map(choice => [choice, CHOICES[choice] ?? choice])]}
      : number ? {type: "number", limits: {min: each.least, max: each.most, step: each.kind === "int" ? 1 : "any"}} : {}};
}

/** A value of a form as the API takes it; null takes back what was set. */
function typed(key, text) {
  if (text === "") return null;
  if (key.choices.includes("true")) return text === "true";
  return key.kind === "int" || key.kind === "float" ? Number(text) : text;
}
