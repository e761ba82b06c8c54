// The page: the user, their notifications, and how far they have read.

import { Client, order } from "./queuey.js";

const GROUP = "page"; // whose position it is; another application may keep one of its own
const at = (id) => document.getElementById(id);

let ended = new AbortController(); // of the inbox that is open

// Signing in. A tab remembers it over a reload, so that two tabs can be two people.

at("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  at("refused").textContent = "";
  try {
    const session = await call("sign-in", new FormData(event.target));
    sessionStorage.setItem("session", JSON.stringify(session));
    open(session);
    at("heading").focus(); // the button that had it is gone
  } catch (error) {
    at("refused").textContent = error.message;
  }
});

at("sign-out").addEventListener("click", () => close());

function close(why = "") {
  ended.abort();
  sessionStorage.removeItem("session");
  at("inbox").hidden = true;
  at("sign-in").hidden = false;
  at("refused").textContent = why;
  document.title = "Notifications";
}

/** A call of the application, which is at home where the page is. */
async function call(path, form) {
  const body = JSON.stringify(Object.fromEntries(form));
  const answer = await fetch(path, { method: "POST", body, headers: { "Content-Type": "application/json" } }).catch(() => {
    throw new Error("That did not work just now. Try again in a moment.");
  });
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.detail);
  return content;
}

// The inbox.

async function open({ user, token, url, application, queue: name }) {
  const { signal } = (ended = new AbortController());
  const client = new Client(url, { application, token, timeoutMs: 5000 });
  const queue = client.queue(name);
  let position = null;
  let counting = 0;

  const newest = () => at("list").firstElementChild;
  const isUnread = (item) => position === null || order(item.dataset.id) > order(position);

  function show({ id, date: when, body }) {
    const item = at("notification").content.cloneNode(true).firstElementChild;
    item.dataset.id = id;
    item.querySelector("p").textContent = body; // text, never markup: anybody may have written it
    item.querySelector("time").dateTime = when.toISOString();
    item.querySelector("time").textContent = when.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    item.classList.toggle("unread", isUnread(item));
    at("list").prepend(item);
  }

  function count() {
    const unread = at("list").querySelectorAll(".unread").length;
    at("unread").textContent = unread ? `${unread} unread` : "All read";
    at("latest").textContent = unread ? `Latest: ${newest().querySelector("p").textContent}` : "";
    at("mark").disabled = !unread;
    at("none").hidden = Boolean(newest());
    document.title = unread ? `(${unread}) Notifications` : "Notifications";
  }

  async function lookUpPosition() {
    try {
      position = (await queue.offsets(GROUP)).get(1);
    } catch (error) {
      if (!error.retriable) throw error; // it is looked up after each connection
    }
    for (const item of at("list").children) item.classList.toggle("unread", isUnread(item));
    count();
  }

  async function markAll() {
    try {
      await queue.commit(GROUP, newest().dataset.id);
    } catch (error) {
      if (error.retriable) return state("Not saved, try again", "away");
      if (error.code !== "OffsetMovesBack") throw error; // else another window was further: it is taken from there
    }
    await lookUpPosition();
  }

  function state(text, kind) {
    if (at("state").textContent !== text) at("state").textContent = text; // said aloud each time it is set
    at("state").className = kind;
  }

  /** Until the next connection; nobody wants to hear each second. */
  function countDown(ms) {
    clearInterval(counting);
    const end = Date.now() + ms;
    const tick = () => { at("next").textContent = `Next try in ${Math.max(0, Math.ceil((end - Date.now()) / 1000))} s`; };
    at("wait").hidden = !ms;
    if (!ms) return;
    tick();
    counting = setInterval(tick, 250);
  }

  function giveUp(error) {
    if (!signal.aborted) close(error.message);
  }

  at("user").textContent = user;
  at("list").replaceChildren();
  at("sign-in").hidden = true;
  at("inbox").hidden = false;
  at("try").addEventListener("click", () => client.tryNow(), { signal });
  signal.addEventListener("abort", () => countDown(0));
  at("mark").addEventListener("click", () => markAll().catch(giveUp), { signal });
  state("Connecting", "away");
  count();
  try {
    for await (const { name, message, ms } of queue.events({ signal })) {
      if (name === "reset") at("list").replaceChildren();
      if (name === "open") await lookUpPosition();
      if (name === "message") show(message);
      if (name === "message" || name === "reset") count();
      state(...(name === "away" ? ["Connection lost, trying again", "away"] : ["Live", "live"]));
      countDown(ms ?? 0);
    }
  } catch (error) {
    giveUp(error);
  }
}

at("notify").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  at("sent").textContent = "";
  try {
    await call("notify", new FormData(form));
    form.elements.text.value = "";
    at("sent").textContent = "Sent.";
  } catch (error) {
    at("sent").textContent = error.message;
  }
});

const remembered = sessionStorage.getItem("session");
if (remembered) open(JSON.parse(remembered));
else close();
