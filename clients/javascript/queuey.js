// A client of Queuey for browsers, Node and whatever else has fetch. It depends on nothing.
//
// Each request may be sent again until it is answered: reads change nothing, appends carry an idempotency key, and steps of
// leases an attempt. So a lost answer costs a repetition, and never a message twice.

const SILENCE_MS = 40_000; // a server says something every 30 s at least
const ATTEMPT_MS = 30_000;
const LONGEST_PAUSE_MS = 15_000;
const UNDECIDED = ["OutcomeUnknown", "InProgress"]; // codes: the same request again finds out, a new one could do it twice
const JSON_TYPE = "application/json";
const BATCH = "application/vnd.queuey.batch+json";
const EVENTS = "text/event-stream";
const MOST_IDS = 100; // that a server takes in one path
const KNOWN_MS = 240_000; // a server knows an attempt for five minutes: a later repetition would be another step

/** What Queuey would not do, or could not be asked. */
export class QueueyError extends Error {
  /** `retriable`: the same may succeed later. `status` is 0 if there was no answer. */
  constructor({ code = "", detail = "", status = 0, retriable = false, request_id = "", retryAfter = 0, cause } = {}) {
    super(detail || code, { cause });
    this.name = "QueueyError";
    Object.assign(this, { code, status, retriable, requestId: request_id, retryAfter });
  }
}

/** A message, as it was read or handed out. */
export class Message {
  constructor(entry, queue) {
    this.id = entry.message_id;
    this.queue = entry.queue ?? queue;
    this.partition = entry.partition;
    /** Seconds since 1970 as text with seven decimals, as the server orders by it. */
    this.timestamp = entry.timestamp;
    /** Text; bytes if it is no UTF-8. */
    this.body = entry.encoding === "base64" ? fromBase64(entry.body) : entry.body;
    this.contentType = entry.content_type ?? null;
    this.key = entry.key ?? null;
    this.headers = Object.fromEntries(
      Object.entries(entry.headers ?? {}).map(([name, value]) => [
        name,
        typeof value === "string" ? value : fromBase64(value.base64),
      ]),
    );
    if (entry.deliveries !== undefined) {
      this.receipt = entry.receipt ?? null;
      this.deliveries = entry.deliveries;
      this.failures = entry.failures;
      this.visibleAt = entry.visible_at ?? null;
    }
  }

  get date() {
    return new Date(Number(this.timestamp) * 1000);
  }

  json() {
    return JSON.parse(typeof this.body === "string" ? this.body : new TextDecoder().decode(this.body));
  }
}

/** A text that sorts ids as their messages: an id is a UUID of version 1. Of those of one moment the server compares signed bytes. */
export const order = (id) => id.slice(13, 16) + id.slice(8, 12) + id.slice(0, 8) + id.slice(16).replace(/(.)(.)/g, unsigned);
const unsigned = (_, high, low) => (parseInt(high, 16) ^ 8).toString(16) + low;

/** The queues of one application. */
export class Client {
  #base;
  #authorization;
  #newToken;
  #timeoutMs;
  #hurry = new EventTarget();

  /**
   * `url` is the server's. `key` is the application's; `token` is a user's, or one that the server made, or a function that
   * gives one for each request: then `follow` outlives a token. `timeoutMs` is how long a request is repeated while nobody
   * answers.
   */
  constructor(url, options = {}) {
    const { application, key, token, timeoutMs } = known(options, ["application", "key", "token", "timeoutMs"]);
    if (!application) throw new TypeError("name the application: new Client(url, { application, key })");
    if (!key === !token) throw new TypeError("give a key or a token, and not both");
    this.#base = `${address(url)}/v1/${part(application)}`;
    this.#newToken = typeof token === "function" ? token : null;
    this.#authorization = key ? `Application ${key}` : `Bearer ${token}`;
    this.#timeoutMs = timeoutMs ?? 60_000;
  }

  /** End the pauses before the next connections: somebody does not want to wait. */
  tryNow() {
    this.#hurry.dispatchEvent(new Event("now"));
  }

  queue(name) {
    return new Queue(this, name);
  }

  /** Make a queue; it is no error if it is there. */
  async createQueue(name, options = {}) {
    const { principals, signal, ...rest } = known(options, ["partitions", "type", "retention", "principals", "signal"]);
    const form = new URLSearchParams(given({ queue_name: name, ...rest }));
    if (principals !== undefined) form.set("principles", [principals].flat().join(","));
    const headers = { "Content-Type": "application/x-www-form-urlencoded" };
    await this.ask("POST", "", { headers, body: form.toString(), signal });
    return this.queue(name);
  }

  /** The messages of several queues as they come; see `Queue.follow`. */
  async *follow(queues, options = {}) {
    for await (const event of this.events(queues, options)) if (event.name === "message") yield event.message;
  }

  /** What becomes of several queues; see `Queue.events`. */
  events(queues, options = {}) {
    return this.live("", { queues: queues.join(",") }, null, options);
  }

  /** @internal The events below a path, for as long as waiting helps. */
  async *live(path, query, queue, options) {
    const { since, cursor, partitions, signal } = known(options, ["since", "cursor", "partitions", "signal"]);
    const first = { since: moment(since), partitions }; // "now" stays the moment of this call
    let last = cursor ?? null;
    for (let failures = 0; ; failures++) {
      try {
        const headers = { Accept: EVENTS, ...(last && { "Last-Event-ID": last }) };
        const asked = { ...query, ...(last ? {} : first) };
        const answer = await this.#once("GET", path, { query: asked, headers, signal, lasts: true });
        try {
          for await (const { id, name, data } of events(answer.body)) {
            if (name === "end") throw new QueueyError({ retriable: true, ...data });
            failures = 0;
            const about = name === "message" ? { message: new Message(data, queue), data } : { data };
            yield { name, cursor: id, ...about };
            last = id ?? last; // only now is it taken
          }
        } finally {
          answer.forget();
        }
      } catch (error) {
        if (signal?.aborted) return;
        const hasEnded = this.#newToken && error.code === "Unauthenticated" && !error.status; // the token, in a stream
        if (!error.retriable && !hasEnded) throw error;
      }
      if (signal?.aborted) return;
      const ms = Math.min(LONGEST_PAUSE_MS, 500 * 2 ** failures) * (0.5 + Math.random() / 2);
      yield { name: "away", cursor: last, ms };
      await pause(ms, signal, this.#hurry);
      if (signal?.aborted) return;
    }
  }

  /** @internal Ask until there is an answer. */
  async ask(method, path, request = {}) {
    const until = Date.now() + Math.min(this.#timeoutMs + (request.waitMs ?? 0), request.knownMs ?? Infinity);
    for (let failures = 0; ; failures++) {
      try {
        return await this.#once(method, path, request);
      } catch (error) {
        const ms = Math.max(error.retryAfter * 1000, 200 * 2 ** failures * (0.5 + Math.random() / 2));
        const isFinal = !error.retriable && !UNDECIDED.includes(error.code);
        if (isFinal || request.signal?.aborted || Date.now() + ms > until) throw error;
        await pause(Math.min(ms, LONGEST_PAUSE_MS), request.signal, this.#hurry);
      }
    }
  }

  /** Who asks. A token that cannot be got now, or in the time of an attempt, is tried again, as a request is. */
  async #credential() {
    if (!this.#newToken) return this.#authorization;
    try {
      return `Bearer ${await within(ATTEMPT_MS, this.#newToken())}`;
    } catch (cause) {
      throw new QueueyError({ code: "Unreachable", detail: "the function gave no token", retriable: true, cause });
    }
  }

  async #once(method, path, { query = {}, headers = {}, body, signal, waitMs = 0, lasts = false }) {
    const asked = new URLSearchParams(given(query)).toString();
    const url = `${this.#base}${path}${asked && `?${asked}`}`;
    const sent = sendable({ Authorization: await this.#credential(), ...headers });
    const ended = new AbortController();
    const end = () => ended.abort();
    const forget = () => signal?.removeEventListener("abort", end);
    let goesOn = false;
    const timer = setTimeout(end, ATTEMPT_MS + waitMs);
    signal?.addEventListener("abort", end);
    try {
      signal?.throwIfAborted();
      const answer = await fetch(url, { method, headers: sent, body, signal: ended.signal, cache: "no-store" });
      if (!answer.ok) throw await refusal(answer, this.#base);
      if (lasts && answer.headers.get("content-type")?.startsWith(EVENTS)) {
        goesOn = true;
        return { body: answer.body, forget }; // `signal` ends it until it is forgotten
      }
      const told = lasts ? {} : said(await answer.text());
      if (told.status !== "ok") throw foreign(url);
      return { headers: answer.headers, told };
    } catch (error) {
      if (error instanceof QueueyError) throw error;
      signal?.throwIfAborted();
      throw new QueueyError({ code: "Unreachable", detail: `${url}: no answer`, retriable: true, cause: error });
    } finally {
      clearTimeout(timer);
      if (!goesOn) {
        forget();
        end(); // what is not read yet is not wanted
      }
    }
  }
}

/** One queue. */
export class Queue {
  #client;
  #path;

  constructor(client, name) {
    this.#client = client;
    this.name = name;
    this.#path = `/${part(name)}`;
  }

  /**
   * Store a text, or bytes. It is on disk when this returns. Options: `key` (chooses the partition), `partition`, `ttl` and
   * `delay` in seconds, `deliverAt` (a Date), `contentType`, `headers`, `idempotencyKey`, `signal`.
   */
  async append(body, options = {}) {
    const { idempotencyKey, signal, ...message } = options;
    return (await this.appendMany([{ body, ...message }], { idempotencyKey, signal }))[0];
  }

  /** Store a value as JSON. */
  appendJson(value, options = {}) {
    return this.append(JSON.stringify(value), { contentType: JSON_TYPE, ...options });
  }

  /** Store messages in one commit: all of them, or none. */
  async appendMany(messages, options = {}) {
    const { idempotencyKey, signal } = known(options, ["idempotencyKey", "signal"]);
    const headers = { "Content-Type": BATCH, "Idempotency-Key": idempotencyKey ?? unique() };
    const body = JSON.stringify({ messages: messages.map(entry) });
    const { told } = await this.#client.ask("POST", this.#path, { headers, body, signal });
    return told.messages.map(({ key, partition, timestamp }) => ({ id: key, partition, timestamp }));
  }

  /** Some messages: `limit` of them, and the cursor to go on from. */
  async page(options = {}) {
    const names = ["since", "until", "limit", "partitions", "order", "cursor", "wait", "signal"];
    const { since, until, signal, ...rest } = known(options, names);
    const query = { ...rest, since: moment(since), until: moment(until) };
    const waitMs = 1000 * (rest.wait ?? 0);
    const { headers, told } = await this.#client.ask("GET", this.#path, { query, signal, waitMs });
    return {
      messages: told.messages.map((one) => new Message(one, this.name)),
      cursor: headers.get("queuey-cursor"),
      more: headers.get("queuey-more") === "true",
      watermark: headers.get("queuey-watermark"),
    };
  }

  /** All messages that are there, oldest first, unless `order` is "descending". */
  async *read(options = {}) {
    const { limit = Infinity, ...rest } = known(options, ["since", "until", "limit", "partitions", "order", "signal"]);
    rest.until = moment(rest.until); // "now" stays the moment of this call
    const size = (left) => Math.min(left, 1000);
    let left = limit;
    let page = await this.page({ partitions: "all", ...rest, limit: size(left) });
    while (true) {
      yield* page.messages;
      left -= page.messages.length;
      if (!page.more || left <= 0) return;
      const { until, order: way, signal } = rest;
      page = await this.page({ cursor: page.cursor, until, order: way, signal, limit: size(left) });
    }
  }

  /**
   * The messages that are there, and then those that come, each once. It goes on by itself when the connection breaks or
   * the server stops, until `signal` ends it or something is refused that no waiting mends. Options: `since` (a Date, a
   * message id or "now"), `cursor`, `partitions`, `signal`.
   */
  async *follow(options = {}) {
    for await (const event of this.events(options)) if (event.name === "message") yield event.message;
  }

  /**
   * What becomes of the queue: {name, cursor, ...}. Names are "open" after each connection, "message" with `message`,
   * "reset" if the queue is not the one it was, "keepalive", and "away" when the connection broke, with `ms` until the next
   * one. Keep a `cursor` to go on
   * in another process.
   */
  events(options = {}) {
    return this.#client.live(this.#path, {}, this.name, options);
  }

  /** Remove messages by their ids; those of other partitions than 1 as "2:id". */
  async remove(...ids) {
    const places = ids.length ? ids.map(place) : [place("")];
    for (let at = 0; at < places.length; at += MOST_IDS)
      await this.#client.ask("DELETE", `${this.#path}/${places.slice(at, at + MOST_IDS).join(",")}`);
  }

  /** How far a group has read: the id of its last message by partition; null before the first. */
  async offsets(group) {
    const { told } = await this.#client.ask("GET", `${this.#path}/offsets/${part(group)}`);
    return new Map(told.offsets.map((one) => [one.partition, one.message_id]));
  }

  /** Note how far a group has read. */
  async commit(group, id, options = {}) {
    const { partition = 1 } = known(options, ["partition"]);
    const body = JSON.stringify({ offsets: [{ partition, message_id: id }] });
    const headers = { "Content-Type": JSON_TYPE };
    await this.#client.ask("PUT", `${this.#path}/offsets/${part(group)}`, { headers, body });
  }

  /** A lease group: each message is handed to one of its receivers at a time. */
  leases(group) {
    return new Leases(this.#client, this.#path, this.name, group);
  }
}

/** The messages of a queue, handed out to the receivers of a group. */
export class Leases {
  #client;
  #path;
  #queue;

  constructor(client, path, queue, group) {
    this.#client = client;
    this.#path = `${path}/leases/${part(group)}`;
    this.#queue = queue;
  }

  /**
   * Settle, append and receive, in one commit. Members: `acknowledge` (receipts), `release`, `reject` and `extend` (objects
   * with a receipt), `append`, and `receive` ({max, visibility, wait, pop}).
   */
  async step(step) {
    const members = ["acknowledge", "release", "reject", "extend", "append", "receive", "receiver", "signal"];
    const { signal, ...asked } = known(step, members);
    const attempt = unique();
    try {
      return await this.#send({ attempt, ...asked }, signal, 1000 * (asked.receive?.wait ?? 0));
    } catch (error) {
      const popped = signal?.aborted && asked.receive && (await this.#withdraw({ attempt, ...asked }));
      if (popped) return popped;
      throw error;
    }
  }

  async #send(asked, signal, waitMs = 0) {
    const headers = { "Content-Type": JSON_TYPE };
    const request = { headers, body: JSON.stringify(asked), signal, waitMs, knownMs: KNOWN_MS };
    const { told } = await this.#client.ask("POST", this.#path, request);
    const { messages = [], status: _, ...rest } = told;
    return { ...rest, messages: messages.map((one) => new Message(one, this.#queue)) };
  }

  /**
   * Nobody waits for this step any more: what it handed out goes back at once, not when its leases end. What it popped
   * cannot go back: it is returned.
   */
  async #withdraw(asked) {
    try {
      await this.#send({ attempt: asked.attempt });
    } catch (withdrawn) {
      if (withdrawn.code !== "KeyReused") return;
      try {
        const done = await this.#send(asked);
        if (asked.receive.pop && done.messages.length) return done;
        const release = done.messages.map(({ receipt }) => ({ receipt, count: false }));
        if (release.length) await this.#send({ release });
      } catch {
        // It handed nothing out, or nobody answers: then the leases end by themselves.
      }
    }
  }

  /** Messages for this receiver alone, until they are settled or `visibility` seconds are over. */
  async receive(options = {}) {
    const { signal, ...receive } = known(options, ["max", "visibility", "wait", "pop", "signal"]);
    return (await this.step({ receive, signal })).messages;
  }

  /** They are done. */
  acknowledge(...messages) {
    return this.step({ acknowledge: messages.map(receiptOf) });
  }

  /** Hand it out again, after `delay` seconds; `count: false` makes no failure of it. */
  release(message, options = {}) {
    const { delay, count } = known(options, ["delay", "count"]);
    return this.step({ release: [{ receipt: receiptOf(message), delay, count }] });
  }

  /** It can never be done: it becomes a dead letter. */
  reject(message, reason) {
    return this.step({ reject: [{ receipt: receiptOf(message), reason }] });
  }

  /** Keep it for another `visibility` seconds. */
  extend(message, visibility) {
    return this.step({ extend: [{ receipt: receiptOf(message), visibility }] });
  }

  /**
   * Run `job(message)` for each message, `concurrency` at a time, until `signal` ends it; then the jobs under way end first.
   * A message is acknowledged when its job returns, and released when it throws: then it comes again, by the group's back-off,
   * until the group gives it up. Its lease is extended while the job runs. `onError(error, message)` hears of each failure.
   * What the server refuses ends it, too, and so does a server that is away for `timeoutMs`: no job runs any more when it throws.
   */
  async work(job, options = {}) {
    const names = ["concurrency", "visibility", "wait", "signal", "onError"];
    const { concurrency = 1, visibility = 60, wait = 20, signal, onError } = known(options, names);
    if (!(concurrency >= 1)) throw new TypeError(`concurrency is ${concurrency}: expected 1 at least`);
    const { signal: ending, end } = following(signal);
    const failures = [];
    const worker = () =>
      this.#worker(job, { visibility, wait, onError, signal: ending }).catch((error) => {
        failures.push(error);
        end(); // and so the others
      });
    await Promise.all(Array.from({ length: concurrency }, worker));
    end();
    if (failures.length) throw failures[0];
  }

  async #worker(job, { visibility, wait, onError, signal }) {
    let settled = {};
    while (!signal.aborted) {
      let messages = [];
      try {
        ({ messages } = await this.step({ ...settled, receive: { max: 1, visibility, wait }, signal }));
      } catch (error) {
        if (signal.aborted) break; // what is settled is settled below
        unlessBegunAnew(error);
      }
      settled = messages.length ? await this.#done(messages[0], job, visibility, onError) : {};
    }
    if (Object.keys(settled).length) await this.step(settled).catch(unlessBegunAnew);
  }

  async #done(message, job, visibility, onError) {
    const beat = () => this.extend(message, visibility).catch(() => {}); // a stale lease is told with the settle
    const timer = setInterval(beat, (visibility * 1000) / 3);
    try {
      await job(message);
      return { acknowledge: [message.receipt] };
    } catch (error) {
      onError?.(error, message);
      return { release: [{ receipt: message.receipt }] };
    } finally {
      clearInterval(timer);
    }
  }
}

function known(options, names) {
  const strange = Object.keys(options).filter((name) => !names.includes(name));
  if (strange.length) throw new TypeError(`unknown option ${strange.join(", ")}: expected ${names.join(", ")}`);
  return options;
}

/** The members that have a value. */
const given = (members) => Object.entries(members).filter(([, value]) => value !== undefined && value !== null);

/** A signal that is aborted by `end`, and when another is. */
function following(signal) {
  const controller = new AbortController();
  const end = () => {
    signal?.removeEventListener("abort", end);
    controller.abort();
  };
  signal?.addEventListener("abort", end);
  if (signal?.aborted) end();
  return { signal: controller.signal, end };
}

/** The address of a server. In a page it may be relative to the page. */
function address(url) {
  const page = globalThis.location?.href;
  try {
    if (url != null && /^https?:$/.test(new URL(url, page).protocol)) return String(url).replace(/\/+$/, "");
  } catch {
    // what follows says so
  }
  throw new TypeError(`${JSON.stringify(url)} is no address of a server: expected one such as http://127.0.0.1:5000`);
}

/** A name in a path. Some would lead elsewhere: a message for the queue "" would make a queue. */
function part(name) {
  if (["", ".", ".."].includes(name) || String(name).includes("/"))
    throw new TypeError(`${JSON.stringify(name)} is no name: one is not empty, not "." or "..", and has no "/"`);
  return encodeURIComponent(name);
}

/** A message id in a path. Without one it is the path of the queue, and DELETE would remove that. */
function place(id) {
  if (!/^[0-9A-Fa-f:, -]+$/.test(id)) throw new TypeError(`${JSON.stringify(id)} is no id of a message`);
  return encodeURIComponent(id);
}

/** Throw an error, unless it says that the group of a receipt was reset: then its message is handed out again. */
function unlessBegunAnew(error) {
  if (error.code !== "InvalidReceipt") throw error;
}

const receiptOf = (message) => (typeof message === "string" ? message : message.receipt);

/** A message as a batch has it. */
function entry(message) {
  const names = ["body", "key", "partition", "ttl", "delay", "deliverAt", "contentType", "headers", "idempotencyKey"];
  const { body, contentType, deliverAt, idempotencyKey, headers, ...rest } = known(message, names);
  const bytes = body instanceof ArrayBuffer ? new Uint8Array(body) : body;
  if (typeof body !== "string" && !(bytes instanceof Uint8Array)) {
    throw new TypeError("a body is a text, a Uint8Array or an ArrayBuffer: appendJson stores any other value");
  }
  const type = contentType ?? (typeof body === "string" ? undefined : "application/octet-stream");
  return {
    ...rest,
    ...(typeof body === "string" ? { body } : { body: toBase64(bytes), encoding: "base64" }),
    ...(type && { content_type: type }),
    ...(deliverAt && { deliver_at: (deliverAt.getTime() / 1000).toFixed(7) }),
    ...(idempotencyKey && { idempotency_key: idempotencyKey }),
    ...(headers && { headers: Object.fromEntries(Object.entries(headers).map(shownHeader)) }),
  };
}

const shownHeader = ([name, value]) => [name, typeof value === "string" ? value : { base64: toBase64(value) }];

/** A place in time, as the server takes it. */
function moment(since) {
  if (since === "now") return String(Date.now() / 1000);
  return since instanceof Date ? String(since.getTime() / 1000) : since;
}

function unique() {
  const random = () => Math.random().toString(36).slice(2);
  return globalThis.crypto?.randomUUID?.() ?? `${Date.now().toString(36)}-${random()}-${random()}`;
}

function toBase64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

const fromBase64 = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

/** What a program does about a refusal, in place of what a request has. */
function inWords({ code, detail = "", ...rest }, url) {
  if (code === "InvalidApplicationKey") detail = `${new URL(url, globalThis.location?.href).origin} does not know the application key: the option key gives it`;
  if (code === "QueueNotFound") detail = detail.replace(": create it with a POST to its application", ": createQueue makes it");
  return { ...rest, ...(code && { code }), ...(detail && { detail }) };
}

async function refusal(answer, url) {
  const retryAfter = Number(answer.headers.get("retry-after")) || 0;
  const otherwise = { detail: `The answer was ${answer.status}`, retriable: answer.status >= 500 };
  const told = said(await answer.text().catch(() => ""));
  return new QueueyError({ ...otherwise, ...inWords(told, url), status: answer.status, retryAfter });
}

/** The JSON of an answer; empty if it is none. */
function said(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

function foreign(url) {
  return new QueueyError({ code: "QueueyError", detail: `What answers at ${url} is not Queuey: is the address right?` });
}

/** Headers for fetch, which would fail with others as if nobody had answered. */
function sendable(headers) {
  const sent = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    try {
      sent.set(name, value);
    } catch {
      throw new TypeError(`the header ${name} cannot carry this: it is one line, without characters beyond Latin-1`);
    }
  }
  return sent;
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    while (true) {
      const { done, value } = await within(SILENCE_MS, reader.read());
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      yield* blocks.map(parsed).filter((event) => event.data !== undefined);
    }
  } catch (error) {
    throw new QueueyError({ code: "Unreachable", detail: "the stream broke", retriable: true, cause: error });
  } finally {
    reader.cancel().catch(() => {}); // it may be broken already
  }
}

function parsed(block) {
  const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s, 2)));
  return { id: fields.id, name: fields.event, data: fields.data === undefined ? undefined : JSON.parse(fields.data) };
}

async function within(ms, promise) {
  let timer;
  const late = new Promise((_, refuse) => {
    timer = setTimeout(() => refuse(new TypeError("silence")), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Until the time is over, something is known to have changed, or `hurry` has the event "now". */
function pause(ms, signal, hurry) {
  return new Promise((go) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      globalThis.removeEventListener?.("online", end);
      hurry.removeEventListener("now", end);
      go();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
    globalThis.addEventListener?.("online", end);
    hurry.addEventListener("now", end);
  });
}
