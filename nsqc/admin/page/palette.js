// Ctrl-K: jump to a topic, channel, node or page.
import {h, set, text} from "./dom.js";
import {get, url} from "./api.js";

/** pages: [{nav, href}] that may be jumped to. */
export function palette(go, pages) {
  let open = false;
  return function jump() {
    if (open || document.querySelector("dialog[open]")) return;
    open = true;
    let found = [], chosen = 0, asked = 0;
    const list = h("ul", {id: "jump-list", role: "listbox", "aria-label": "Matches"}), note = h("p", {class: "note", role: "status"});
    const input = h("input", {type: "text", role: "combobox", placeholder: "Topic, channel or node", "aria-label": "Topic, channel or node", "aria-expanded": "true", "aria-controls": "jump-list", autocomplete: "off", spellcheck: "false"});
    const box = h("dialog", {class: "jumper", "aria-label": "Jump to", close: () => { open = false; box.remove(); }, click: event => { if (event.target === box) box.close(); }}, input, list, note);
    input.addEventListener("input", look);
    input.addEventListener("keydown", event => {
      const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
      if (step && found.length) { event.preventDefault(); chosen = (chosen + step + found.length) % found.length; mark(); }
      if (event.key === "Enter" && found[chosen]) { event.preventDefault(); take(found[chosen]); }
    });
    document.body.append(box);
    box.showModal();
    input.focus();
    look();

    function take(entry) { box.close(); go(entry.href); }
    function mark() {
      [...list.children].forEach((row, number) => {
        row.setAttribute("aria-selected", String(number === chosen));
        if (number === chosen) { row.scrollIntoView({block: "nearest"}); input.setAttribute("aria-activedescendant", row.id); }
      });
      if (!found.length) input.removeAttribute("aria-activedescendant");
    }
    async function look() {
      const number = ++asked, wanted = input.value.trim();
      const fitting = pages.filter(each => each.nav.toLowerCase().startsWith(wanted.toLowerCase())).map(each => ({label: each.nav, href: each.href, kind: "page"}));
      let names = [], fault = "No name contains this. /^orders\\.[a-z]+$/ is a regular expression.";
      if (wanted) {
        try { names = (await get("search", {q: wanted})).found.map(shown); } catch (error) { fault = error.message; }
      }
      if (number !== asked) return;
      found = [...names, ...fitting];
      chosen = 0;
      set(list, found.map((entry, at) => h("li", {role: "option", id: `jump-${at}`, click: () => take(entry)}, h("span", {}, entry.label), h("span", {class: "kind"}, entry.kind))));
      text(note, found.length ? "" : fault);
      note.hidden = Boolean(found.length);
      list.hidden = !found.length;
      mark();
    }
  };
}

function shown(each) {
  if (each.kind === "topic") return {label: each.topic, href: url.topic(each.topic), kind: "topic"};
  if (each.kind === "channel") return {label: `${each.topic} / ${each.channel}`, href: url.channel(each.topic, each.channel), kind: "channel"};
  return {label: each.node, href: url.node(each.node), kind: each.hint ? `node, ${each.hint}` : "node"};
}
