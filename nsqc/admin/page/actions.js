// Changes: what is asked, sent, and told.
import {h} from "./dom.js";
import {post, session, url} from "./api.js";
import {ask, summary, toast} from "./dialog.js";
import {count, plural} from "./format.js";

let changed = () => {}, leave = () => {};
/** Has a function called after each change, and one with the address of another page, as this one is about something deleted. */
export function onChange(call, go) { changed = call; leave = go; }

/** Sends an action and shows its results; returns whether all succeeded. then: the page to show afterwards, if another. */
export async function act(what, body, call = "actions", then = "") {
  let results;
  try {
    results = (await post(call, body)).results;
  } catch (error) {
    toast(`${what}: ${error.message}`, [], true);
    return false;
  }
  const done = results.every(result => result.ok);
  toast(summary(what, results), results);
  if (done && then) leave(then);
  else changed();
  return done;
}

const NAME = {limits: {pattern: "[.a-zA-Z0-9_\\-]{1,64}(#ephemeral)?", maxlength: 64, title: "1 to 64 of a-z A-Z 0-9 . _ -, and perhaps #ephemeral at the end"}, hint: "a-z A-Z 0-9 . _ -"};
/** The words for a topic or channel. */
export const label = (topic, channel) => channel ? `channel ${channel} of ${topic}` : `topic ${topic}`;

export async function pause(topic, channel, paused) {
  return act(`${paused ? "Unpause" : "Pause"} ${label(topic, channel)}`, {action: paused ? "unpause" : "pause", topic, channel});
}

export async function empty(topic, channel, depth) {
  const given = await ask({title: `Empty ${label(topic, channel)}?`, danger: true, verb: "Empty", name: channel || topic,
    lines: [`${plural(depth, "waiting message")} will be dropped on all nodes. This cannot be undone.`]});
  return given && act(`Empty ${label(topic, channel)}`, {action: "empty", topic, channel, confirm: given.confirm});
}

export async function remove(topic, channel, lines) {
  const given = await ask({title: `Delete ${label(topic, channel)}?`, danger: true, verb: "Delete", name: channel || topic,
    lines: [...lines, "It is deleted on all nodes and lookup servers. This cannot be undone."]});
  const own = channel ? url.channel(topic, channel) : url.topic(topic), is_shown = location.pathname.startsWith(new URL(own, document.baseURI).pathname);
  return given && act(`Delete ${label(topic, channel)}`, {action: "delete", topic, channel, confirm: given.confirm}, "actions", is_shown ? (channel ? url.topic(topic) : "topics") : "");
}

export async function create(topic = "") {
  const given = await ask({title: topic ? `New channel of ${topic}` : "New topic", verb: "Create",
    lines: [!topic && session.mode === "lookupd" ? "The lookup servers register it; nodes create it with the first publish." : "It is created on all nodes that have the topic."].slice(topic ? 0 : session.mode === "lookupd" ? 0 : 1),
    fields: [...topic ? [] : [{name: "topic", label: "Topic", required: true, ...NAME}], {name: "channel", label: topic ? "Channel" : "Channel (optional)", required: Boolean(topic), ...NAME}]});
  if (!given) return false;
  const name = topic || given.topic;
  return act(`Create ${label(name, given.channel)}`, {action: "create", topic: name, channel: given.channel});
}

export async function tombstone(topic, node) {
  const given = await ask({title: `Remove ${topic} from ${node}?`, danger: true, verb: "Remove", name: topic,
    lines: ["Lookup servers hide the topic of this node, then it is deleted there with all of its messages.", "Stop publishing it to this node first: otherwise it is created again."]});
  return given && act(`Remove ${topic} from ${node}`, {action: "tombstone", topic, nodes: [node], confirm: given.confirm});
}

export async function drain(node, draining) {
  if (draining) return act(`Undo the drain of ${node}`, {action: "undrain", nodes: [node]});
  const given = await ask({title: `Drain ${node}?`, danger: true, verb: "Drain", name: node,
    lines: ["The node refuses new messages, lets consumers finish those in flight, and stops."],
    fields: [{name: "timeout", label: "Wait for at most", hint: "60s"}, {name: "keep", label: "Stay drained instead of stopping", type: "checkbox"}]});
  return given && act(`Drain ${node}`, {action: "drain", nodes: [node], timeout: given.timeout, keep: given.keep, confirm: given.confirm});
}

export async function disconnect(topic, channel, client) {
  const given = await ask({title: `Close the connection of ${client.client_id || client.hostname}?`, danger: true, verb: "Close",
    lines: [`${client.remote_address}, a consumer of ${label(topic, channel)} on ${client.node}, with ${plural(client.in_flight_count, "message")} in flight, which are delivered again.`,
      "Most clients connect again at once: revoke the user's access to keep one away."]});
  return given && act(`Close ${client.remote_address}`, {action: "disconnect", topic, channel, client: client.remote_address, nodes: [client.node]});
}

export async function seek(topic, channel) {
  const given = await ask({title: `Move channel ${channel}`, danger: true, verb: "Move", name: channel,
    lines: ["Delivery continues at another position in the log. Messages in flight, or waiting before it, are forgotten."],
    fields: [{name: "to", label: "To: beginning, end, an offset, an age such as 1h, or a time such as 2026-11-25T08:00:00Z", value: "1h", required: true}],
    preview: async values => {
      const found = (await post("actions", {action: "seek", topic, channel, to: values.to, preview: true})).preview;
      if (!found.length) return [h("p", {class: "warn"}, "No node has this channel.")];
      return [h("ul", {}, found.map(node => h("li", {class: node.error ? "bad" : null}, h("span", {class: "mono"}, node.node), " ", node.error ?? effect(node))))];
    }});
  return given && act(`Move channel ${channel} to ${given.to}`, {action: "seek", topic, channel, to: given.to, confirm: given.confirm});
}

function effect(node) {
  const parts = [];
  if (node.again) parts.push(`${plural(node.again, "message")} will be delivered again`);
  if (node.left_out) parts.push(`${plural(node.left_out, "unfinished message")} will be left out`);
  return `${parts.join(", ") || "nothing changes"} (offset ${count(node.from)} → ${count(node.target)})`;
}

/** Redrives or drops dead letters: those of a topic, of one channel (origin), or one message of a node. memory: of a topic that some
 *  nodes keep in memory: {nodes, sources, targets}, its channels and those that its letters may go to. */
export async function letters(action, topic, {origin = "", message = null, node = "", memory = null}) {
  const redrive = action === "redrive", verb = redrive ? "Redrive" : "Drop";
  const what = `${verb} ${message ? `dead letter ${message.id}` : origin ? `dead letters of ${origin}` : `all dead letters in ${topic}`}`;
  const body = {action, topic, origin, id: message?.id ?? "", offset: message?.offset ?? 0, nodes: node ? [node] : []};
  const choice = redrive && memory ? [{name: "source", label: `Channel of ${topic} that holds them in memory`, value: memory.sources[0], options: memory.sources.map(each => [each, each])},
    {name: "to", label: "Channel that gets those", value: origin || memory.targets[0] || "", required: true, hint: "TOPIC/CHANNEL", limits: {pattern: "[^/]+/[^/]+"}}] : [];
  const given = await ask({title: `${what}?`, danger: !redrive, verb, name: redrive ? "" : topic, fields: choice,
    lines: [...memory ? [redrive ? `In memory, as on ${memory.nodes.join(", ")}, letters have no origin: all that wait in one channel go to the channel that you name.`
      : `${memory.nodes.join(", ")} keeps them in memory: empty the channels of ${topic} there.`] : [], redrive ? "Letters return to their origin channels as new messages. Letters whose channel no longer exists stay."
      : "They cannot be redriven afterwards. This cannot be undone."],
    preview: message ? null : async values => {
      const found = (await post("actions", {...body, source: values.source ?? "", to: values.to ?? "", preview: true})).preview;
      return [h("ul", {}, found.map(each => h("li", {class: each.error ? "bad" : null}, h("span", {class: "mono"}, each.node), " ", each.error ?? each.text)))];
    }});
  return given && act(what, {...body, source: given.source ?? "", to: given.to ?? "", confirm: given.confirm ?? ""});
}

/** Publishes a new message. nodes: addresses, one of which gets it. */
export async function publish(topic, nodes) {
  const given = await ask({title: `Publish to ${topic}`, verb: "Publish", fields: [{name: "body", label: "Body", type: "area", required: true},
    {name: "node", label: "On node", value: nodes[0], options: nodes.map(each => [each, each])}]});
  return given && act(`Publish to ${topic}`, {topic, node: given.node, body: given.body, body_base64: "", confirm: topic}, "publish");
}

export async function republish(message, topic, node, nodes) {
  const given = await ask({title: "Publish this message again", verb: "Publish",
    lines: message.truncated ? ["The body was cut for display, so it cannot be published from here."] : ["Publishes a new message with this body; this one does not change."],
    fields: [{name: "topic", label: "To topic", value: topic, required: true, ...NAME},
      {name: "node", label: "On node", value: node, options: nodes.map(each => [each, each])}, ]});
  if (!given || message.truncated) return false;
  const sure = await ask({title: `Publish to ${given.topic}?`, verb: "Publish", name: given.topic, lines: [`${plural(message.size ?? 0, "byte")} go to ${given.topic} on ${given.node}.`]});
  return sure && act(`Publish to ${given.topic}`, {topic: given.topic, node: given.node, body: message.body ?? "", body_base64: message.body_base64 ?? "", confirm: sure.confirm}, "publish");
}
