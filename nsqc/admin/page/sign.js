// Signing in with a token of the access file, and out.
import {h, set, text} from "./dom.js";
import {post} from "./api.js";
import {card} from "./parts.js";

const WORDS = {UNAUTHORIZED: "This token is wrong, or it was revoked.", FORBIDDEN: "This token is right, but has no grants.",
  TOO_MANY_WRONG_TOKENS: "Too many wrong tokens came from this address: try again in a minute."};

/** Shows the form in place of the page; then() is called once the user is signed in. */
export function signIn(main, then) {
  if (main.querySelector("form.sign")) return;
  const token = h("input", {type: "password", name: "token", required: true, autocomplete: "current-password", spellcheck: "false"});
  const told = h("p", {class: "bad", role: "alert"}), send = h("button", {class: "primary", type: "submit"}, "Sign in");
  const form = h("form", {class: "sign pad", async submit(event) {
    event.preventDefault();
    send.disabled = true;
    text(told, "");
    try {
      await post("signin", {}, {Authorization: `Bearer ${token.value.trim()}`});
      await then();
    } catch (error) {
      text(told, error instanceof TypeError ? WORDS.UNAUTHORIZED : WORDS[error.word] ?? error.message);
      token.select();
    }
    send.disabled = false;
  }}, h("label", {class: "field"}, "Token", token), told, h("div", {class: "actions"}, send));
  set(main, h("div", {class: "page narrow"}, h("h1", {}, "Sign in"), card("Token of the access file", form).element));
  token.focus();
}

/** Ends the session. */
export async function signOut() {
  try { await post("signout", {}); } catch { /* it has ended before: the token was revoked, or the server restarted */ }
  location.reload();
}
