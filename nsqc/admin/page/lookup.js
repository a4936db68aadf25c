import {h, show, text} from "./dom.js";
import {get, session, url} from "./api.js";
import {create, remove} from "./actions.js";
import {count, date} from "./format.js";
import {button, card, columns, head} from "./parts.js";
import {table} from "./table.js";

export function lookup(root) {
  const title = head("Lookup");
  if (session.may_change) title.actions.append(button("New topic…", () => create()));
  const servers = table({caption: "Lookup servers", id: row => row.address, empty: "None: nodes are listed by their addresses.", columns: [{key: "address", label: "Server", text: row => row.address},
    {key: "error", label: "State", version: row => row.error, sort: false, wrap: true, node: row => row.error ? h("span", {class: "bad"}, row.error) : h("span", {class: "badge good"}, "OK")}, {key: "topics", label: "Topics", num: true, text: row => count(row.topics)}]});
  const orphans = table({caption: "Topics without a node", id: row => row.name, empty: "Every topic has a node.", columns: [{key: "name", label: "Topic", text: row => row.name},
    {key: "actions", label: "", sort: false, num: true, version: row => String(row.sure), node: (row, current) => session.may_change && current().sure ? button("Delete…", () => remove(current().name, "", ["No node has this topic."]), "plain danger") : ""}]});
  const hidden = table({caption: "Tombstones", id: row => `${row.topic} ${row.node}`, empty: "No tombstones.", columns: [{key: "topic", label: "Topic", text: row => row.topic, link: row => url.topic(row.topic)}, columns.node]});
  const unsure = h("p", {class: "note", hidden: true}), orphanCard = card("Topics without a node", unsure, orphans.element);
  root.append(title.element, card("Lookup servers", servers.element).element, orphanCard.element, card("Tombstones", hidden.element).element);
  return {async refresh(signal) {
    const data = await get("lookup", {}, signal);
    return () => {
      servers.update(data.lookupds);
      const faults = [...data.missing, ...data.lookupds.filter(each => each.error).map(each => each.address)], sure = !faults.length;
      orphans.update(data.without_nodes.map(name => ({name, sure})));
      show(unsure, !sure && data.without_nodes.length > 0);
      text(unsure, `These topics may be on servers that do not answer: ${faults.join(", ")}.`);
      hidden.update(data.tombstones);
    };
  }};
}

export function changes(root) {
  const list = table({caption: "Changes", id: row => `${row.time} ${row.action} ${row.target}`, empty: "No changes since this server started. The audit log has earlier ones.", columns: [
    {key: "time", label: "Time", text: row => date(row.time)}, {key: "user", label: "User", text: row => row.user || "–"}, {key: "address", label: "From", opt: true, text: row => row.address},
    {key: "action", label: "Action", text: row => row.action}, {key: "target", label: "What", wrap: true, text: row => row.target},
    {key: "results", label: "Result", sort: false, wrap: true, text: outcome, tone: row => row.results.some(each => !each.ok) ? "bad" : ""}]});
  root.append(head("Changes").element, h("section", {class: "card"}, list.element));
  return {async refresh(signal) {
    const data = await get("audit", {}, signal);
    return () => list.update(data.changes);
  }};
}

/** The number of servers that made a change, and their errors. */
function outcome(row) {
  const done = row.results.filter(each => each.ok).length, all = row.results.length;
  return [done || !all ? `done on ${done} of ${all}` : "failed", ...row.results.filter(each => each.message || !each.ok).map(each => `${each.target}: ${each.message || "failed"}`)].join("; ");
}
