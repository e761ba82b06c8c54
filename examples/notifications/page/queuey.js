// One queue of Queuey, as the user whose token is shown: its messages as they come, and how far a group has read.

const SILENCE = 40_000; // ms; a server says something every 30 s at least
const LONGEST_PAUSE = 15_000;

/** What Queuey would not do. `mends`: the same may succeed later. */
export class Refused extends Error {
  constructor({ code, detail, retriable }) {
    super(detail);
    this.code = code;
    this.mends = retriable;
  }
}

/** The place of a message id in time: texts that compare as the messages do. An id is a UUID of version 1. */
export const order = (id) => id.slice(13, 16) + id.slice(8, 12) + id.slice(0, 8);

export class Queue {
  #url;
  #token;
  #signal;
  #hurry = new EventTarget();

  /** `signal` ends everything that is under way. */
  constructor(url, token, signal) {
    this.#url = url;
    this.#token = token;
    this.#signal = signal;
  }

  /** Ends a pause between two connections. */
  tryNow() {
    this.#hurry.dispatchEvent(new Event("now"));
  }

  /** The id of the last message that a group has read, of a queue with one partition; null before the first. */
  async position(group) {
    const answer = await this.#ask(`/offsets/${group}`);
    return (await answer.json()).offsets[0].message_id;
  }

  async setPosition(group, id) {
    const body = JSON.stringify({ offsets: [{ partition: 1, message_id: id }] });
    await this.#ask(`/offsets/${group}`, { method: "PUT", body, headers: { "Content-Type": "application/json" } });
  }

  /**
   * What is in the queue, then what comes, as events {name, data}: "open" after each connection, "message" for each
   * message once, "reset" if the queue is not the one it was, "away" when the connection broke, with the milliseconds
   * until the next one. It goes on by itself, until something is refused that no waiting mends.
   */
  async *follow() {
    let last = null;
    let failures = 0;
    while (true) {
      try {
        const headers = { Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
        const answer = await this.#ask("", { headers });
        for await (const { id, name, data } of events(answer.body)) {
          if (name === "end") throw new Refused({ retriable: true, ...data });
          failures = 0;
          yield { name, data };
          last = id ?? last; // only now is it taken
        }
      } catch (error) {
        if (!mends(error)) throw error;
      }
      const ms = Math.min(LONGEST_PAUSE, 500 * 2 ** failures++) * (0.5 + Math.random() / 2);
      yield { name: "away", data: { ms } };
      await pause(ms, this.#signal, this.#hurry);
    }
  }

  async #ask(below, { headers, ...rest } = {}) {
    const answer = await fetch(this.#url + below, {
      ...rest,
      cache: "no-store",
      signal: this.#signal,
      headers: { Authorization: `Bearer ${this.#token}`, ...headers },
    });
    if (!answer.ok) throw new Refused(await refusal(answer));
    return answer;
  }
}

/** What fetch throws when nobody answers is a TypeError. */
export const mends = (error) => error instanceof Refused ? error.mends : error instanceof TypeError;

async function refusal(answer) {
  const otherwise = { code: "", detail: `The answer was ${answer.status}`, retriable: answer.status >= 500 };
  return { ...otherwise, ...(await answer.json().catch(() => ({}))) };
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    while (true) {
      const { done, value } = await within(SILENCE, reader.read());
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      yield* blocks.map(parsed);
    }
  } finally {
    reader.cancel().catch(() => {}); // it may be broken already
  }
}

function parsed(block) {
  const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s, 2)));
  return { id: fields.id, name: fields.event, data: JSON.parse(fields.data) };
}

async function within(ms, promise) {
  let timer;
  const late = new Promise((_, refuse) => { timer = setTimeout(() => refuse(new TypeError("silence")), ms); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Until the time is over, or something is known to have changed, or somebody cannot wait. */
function pause(ms, signal, hurry) {
  return new Promise((go) => {
    const done = new AbortController();
    const end = () => { clearTimeout(timer); done.abort(); go(); };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end, { signal: done.signal });
    window.addEventListener("online", end, { signal: done.signal });
    hurry.addEventListener("now", end, { signal: done.signal });
  });
}
