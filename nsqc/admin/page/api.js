// The calls of the API, and who the user is.

export const session = {may_change: false, may_publish: false, may_extend: false, may_redrive: false, publishes_all: false, sees_all: true, sees_any: true, grants: [], sign: "", csrf: "", ranges: [], mode: "", user: "", interval: 5};

/** An error answer. word: the reason, such as TOPIC_NOT_FOUND. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
    this.word = message.split(/[^A-Z_]/, 1)[0];
  }
}

// The server then asks for no password in a dialog of the browser: this page has a form.
const OWN = {"X-Requested-With": "nsqc"};
const root = new URL("api/v1/", document.baseURI);

/** A path with arguments; those without a value are left out. */
export function path(name, args = {}) {
  const query = Object.entries(args).filter(([, value]) => value !== "" && value !== null && value !== undefined)
    .map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
  return query ? `${name}?${query}` : name;
}

async function answer(response) {
  let data = null;
  try { data = await response.json(); } catch { /* not JSON: the status says enough */ }
  if (!response.ok) throw new ApiError(response.status, data?.message || `status ${response.status}`);
  return data;
}

/** GET. */
export async function get(name, args, signal) {
  let response;
  try {
    response = await fetch(new URL(path(name, args), root), {signal, headers: {Accept: "application/json", ...OWN}, cache: "no-store"});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The admin server does not answer");
  }
  return answer(response);
}

/** POST of JSON, with the token. more: further headers. */
export async function post(name, body, more = {}, again = true) {
  let response;
  try {
    response = await fetch(new URL(name, root), {method: "POST", body: JSON.stringify(body),
      headers: {"Content-Type": "application/json", "X-CSRF-Token": session.csrf, ...OWN, ...more}});
  } catch {
    throw new ApiError(0, "The admin server does not answer. The change may or may not have been made");
  }
  try {
    return await answer(response);
  } catch (error) {
    if (error.word !== "CSRF_TOKEN" || !again) throw error;
    await begin();
    return post(name, body, more, false);
  }
}

/** Learns who the user is. */
export async function begin() {
  Object.assign(session, await get("session"));
  return session;
}

/** Whether the user has one of these grants for anything; without an access file, everybody has. */
export const holds = (...names) => !session.grants.length || session.grants.some(each => names.includes(each.split(" ", 1)[0]));

/** Paths of pages. */
export const url = {
  topic: topic => `topics/${encodeURIComponent(topic)}`,
  channel: (topic, channel) => `topics/${encodeURIComponent(topic)}/${encodeURIComponent(channel)}`,
  node: node => `nodes/${encodeURIComponent(node)}`,
  messages: args => path("messages", args),
};
