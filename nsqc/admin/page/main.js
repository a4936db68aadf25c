// Which page is shown, and when it is updated.
import {h, set, text} from "./dom.js";
import {begin, holds, session} from "./api.js";
import {onChange} from "./actions.js";
import {signIn, signOut} from "./sign.js";
import {skew} from "./format.js";
import {overview} from "./overview.js";

const base = new URL(document.baseURI).pathname;
const main = document.getElementById("main"), nav = document.getElementById("nav"), state = document.getElementById("state"), sign = document.getElementById("sign");
const later = (file, name) => async (...args) => (await import(`./${file}.js`))[name](...args);
const PAGES = [
  {path: /^$/, title: "Overview", nav: "Overview", href: "", open: overview},
  {path: /^topics$/, title: "Topics", nav: "Topics", href: "topics", open: later("topics", "topics"), hide: () => !session.sees_any},
  {path: /^topics\/([^/]+)$/, keys: ["topic"], under: "topics", open: later("topics", "topic")},
  {path: /^topics\/([^/]+)\/([^/]+)$/, keys: ["topic", "channel"], under: "topics", open: later("channel", "channel")},
  {path: /^nodes$/, title: "Nodes", nav: "Nodes", href: "nodes", open: later("nodes", "nodes")},
  {path: /^nodes\/([^/]+)$/, keys: ["node"], under: "nodes", open: later("nodes", "node")},
  {path: /^messages$/, title: "Messages", nav: "Messages", href: "messages", open: later("messages", "messages"), hide: () => !holds("read")},
  {path: /^lookup$/, title: "Lookup", nav: "Lookup", href: "lookup", open: later("lookup", "lookup"), hide: () => session.mode === "node" || !session.sees_all},
  {path: /^changes$/, title: "Changes", nav: "Changes", href: "changes", open: later("lookup", "changes"), hide: () => !holds("read", "admin")},
  {path: /^counter$/, title: "Overview", href: "", open: overview},
];
let page = null, work = null, timer = 0, failures = 0;

// ---------------------------------------------------------------------- pages

/** A part of an address, decoded; unchanged if it is not valid. */
function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

function route() {
  const path = location.pathname.slice(base.length);
  for (const each of PAGES) {
    const match = each.path.exec(path);
    if (!match) continue;
    const args = Object.fromEntries(new URLSearchParams(location.search));
    each.keys?.forEach((key, number) => { args[key] = decoded(match[number + 1]); });
    return {each, args};
  }
  return {each: null, args: {}};
}

async function show(focus) {
  const {each, args} = route(), key = location.pathname;
  page?.view?.close?.();
  work?.abort();
  clearTimeout(timer);
  page = {key, view: null};
  sign.hidden = !session.sign;
  const mine = page, root = h("div", {class: "page"});
  const name = args.channel ?? args.topic ?? args.node ?? each?.title ?? "Not found";
  document.title = `${each?.keys ? name : each?.title ?? "Not found"} · nsqc`;
  for (const link of nav.children) {
    if (each && link.dataset.page === (each.under ?? each.href)) {
      link.setAttribute("aria-current", each.keys ? "true" : "page");
      nav.scrollLeft = link.offsetLeft - nav.offsetLeft - (nav.clientWidth - link.offsetWidth) / 2;
    } else link.removeAttribute("aria-current");
  }
  if (!each) { set(main, problem("There is no such page.")); return; }
  const tools = {refresh: () => page === mine && update(), remember};
  try {
    mine.view = await each.open(root, args, tools);
  } catch (error) {
    if (page === mine) set(main, problem(`The page cannot be loaded: ${error.message}`));
    return;
  }
  mine.root = root;
  if (page === mine) await update();
  if (page === mine && focus) { main.focus({preventScroll: true}); scrollTo(0, 0); }
}

async function update() {
  const mine = page;
  clearTimeout(timer);
  work?.abort();
  work = new AbortController();
  const {signal} = work;
  try {
    const paint = await mine.view.refresh(signal);
    if (page !== mine || signal.aborted) return;
    performance.mark("update-begin");
    if (mine.root.parentNode !== main) set(main, mine.root);
    paint();
    performance.measure("update", "update-begin");
    failures = 0;
    tell("");
  } catch (error) {
    if (error.name === "AbortError" || page !== mine) return;
    if (error.status === 401) { ask(); return; }
    failures += 1;
    fail(mine, error);
  }
  timer = setTimeout(tick, Math.min(session.interval * (1 + failures), 60) * 1000);
}

function tick() {
  if (document.hidden) return;     // visibilitychange resumes
  update();
}

function fail(mine, error) {
  const gone = {TOPIC_NOT_FOUND: "This topic does not exist.", CHANNEL_NOT_FOUND: "This channel does not exist.", NODE_NOT_FOUND: "This node is not known.", NOT_YET: "The nodes have not answered yet."};
  if (gone[error.word]) { set(main, problem(gone[error.word] + (error.word === "NOT_YET" ? ` ${error.message.slice(10)}` : ""), error.word !== "NOT_YET")); return; }
  if (mine.root.parentNode === main) tell(error.message);
  else set(main, problem(error.message));
}

function problem(message, back = false) {
  return h("section", {class: "card problem"}, h("div", {class: "pad"}, h("h1", {class: "hidden"}, "Problem"), h("p", {}, message), back ? h("p", {}, h("a", {href: "topics"}, "All topics")) : null));
}

/** Lets the user sign in: without it, or with its end, nothing is shown. */
function ask() {
  page = null;
  work?.abort();
  clearTimeout(timer);
  tell("", "");
  sign.hidden = true;
  signIn(main, () => location.reload());
}

function tell(message, who = session.user || (session.may_change ? "" : "read only")) {
  text(state, message || who);
  state.classList.toggle("bad", Boolean(message));
}

/** Keeps arguments of a page in its address. */
function remember(args) {
  const query = new URLSearchParams(Object.entries(args).filter(([, value]) => value !== "")).toString();
  history.replaceState(null, "", location.pathname + (query ? `?${query}` : ""));
}

export function go(href) {
  history.pushState(null, "", new URL(href, document.baseURI));
  show(true);
}

// ---------------------------------------------------------------------- the frame

function theme() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const is = root.dataset.theme ?? (dark ? "dark" : "light");
  root.dataset.theme = is === "dark" ? "light" : "dark";
  try { localStorage.setItem("nsqc-theme", root.dataset.theme); } catch { /* only for this page, then */ }
}

function frame() {
  text(sign, session.sign === "out" ? "Sign out" : "Sign in");
  sign.addEventListener("click", () => session.sign === "out" ? signOut() : ask());
  const shown = PAGES.filter(each => each.nav && !each.hide?.());
  set(nav, shown.map(each => h("a", {href: each.href || ".", "data-page": each.href}, each.nav)));
  const jump = async () => { frame.jump ??= (await import("./palette.js")).palette(go, shown); frame.jump(); };
  const button = document.getElementById("jump");
  button.hidden = false;
  button.addEventListener("click", jump);
  document.addEventListener("keydown", event => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); jump(); }
  });
  document.addEventListener("click", event => {
    const link = event.target.closest?.("a[href]");
    if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.download) return;
    const to = new URL(link.href);
    if (to.origin !== location.origin || !to.pathname.startsWith(base) || link.getAttribute("href").startsWith("#")) {
      if (link.getAttribute("href") === "#main") { event.preventDefault(); main.focus(); }
      return;
    }
    event.preventDefault();
    go(to);
  });
  addEventListener("popstate", () => show(true));
  document.addEventListener("visibilitychange", () => { if (!document.hidden && page?.view) update(); });
  onChange(() => { for (const after of [0, 1500]) setTimeout(() => page?.view && update(), after); }, go);
}

async function open() {
  await begin();
  skew.seconds = session.time - Date.now() / 1000;
  frame();
  tell("");
  await show(false);
}

async function start() {
  try {
    await open();
  } catch (error) {
    if (error.status === 401) { signIn(main, open); return; }
    set(main, problem(error.status === 403 && error.word === "HOST_NOT_ALLOWED" ? error.message : `Cannot reach the admin server: ${error.message}`));
    setTimeout(start, 5000);
  }
}

try { const kept = localStorage.getItem("nsqc-theme"); if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept; } catch { /* none is kept */ }
document.getElementById("theme").addEventListener("click", theme);
start();
