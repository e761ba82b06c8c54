// What a program does with the client. Each line that it prints is a scene that went well.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { Client, QueueyError, order } from "../../../clients/javascript/queuey.js";

const { QUEUEY_URL: url, QUEUEY_KEY: key, QUEUE: name } = process.env;
const client = new Client(url, { application: "queuey", key });
const bodies = (messages) => messages.map((message) => message.body);
const all = async (messages) => { const found = []; for await (const one of messages) found.push(one); return found; };

async function scene(what, play) {
  await play();
  console.log(what);
}

await scene("messages are stored and read", async () => {
  const queue = await client.createQueue(`${name}-read`, { partitions: 2, principals: ["app:queuey", "app:other"] });
  const stored = await queue.append("two chairs", { key: "joe", ttl: 60, headers: { Trace: "a1", Raw: new Uint8Array([0, 255]) } });
  assert.match(stored.id, /^[0-9a-f]{32}$/);
  const again = { idempotencyKey: "once" };
  assert.deepEqual(await queue.append(new Uint8Array([0, 255]), again), await queue.append(new Uint8Array([0, 255]), again));
  await queue.appendJson({ table: 4 }, { partition: 1 });
  const found = await all(queue.read());
  assert.equal(found.length, 3);
  const text = found.find((message) => message.id === stored.id);
  assert.equal(text.body, "two chairs");
  assert.deepEqual([text.key, text.partition, text.headers.Trace, [...text.headers.Raw]], ["joe", stored.partition, "a1", [0, 255]]);
  assert.ok(Math.abs(text.date - Date.now()) < 600_000);
  assert.deepEqual([...found.find((one) => typeof one.body !== "string").body], [0, 255]);
  assert.deepEqual(found.find((one) => one.contentType === "application/json").json(), { table: 4 });
});

await scene("a name that would ask another path is refused", async () => {
  for (const strange of ["", ".", "..", "a/b"]) {
    assert.throws(() => client.queue(strange), /is no name/);
    assert.throws(() => client.queue("a").leases(strange), /is no name/);
    await assert.rejects(client.queue("a").remove(strange), /is no id/);
  }
  await assert.rejects(client.queue("a").remove(), /is no id/);
  await assert.rejects(client.queue("a").remove("messages"), /is no id/);
});

await scene("a long queue is read to its end, in order, by pages", async () => {
  const queue = await client.createQueue(`${name}-long`);
  const texts = Array.from({ length: 2500 }, (_, at) => `message ${at}`);
  for (let at = 0; at < texts.length; at += 500) await queue.appendMany(texts.slice(at, at + 500).map((body) => ({ body })));
  const found = await all(queue.read());
  assert.deepEqual(bodies(found), texts);
  assert.deepEqual(found.map((one) => order(one.id)), found.map((one) => order(one.id)).sort());
  assert.deepEqual(bodies(await all(queue.read({ limit: 1200 }))), texts.slice(0, 1200));
  assert.deepEqual(bodies(await all(queue.read({ order: "descending", limit: 2 }))), ["message 2499", "message 2498"]);
  await queue.remove(found[0].id, found[1].id);
  assert.equal((await queue.page({ limit: 1 })).messages[0].body, "message 2");
  await queue.remove(...found.slice(10).map((one) => one.id));
  assert.equal((await all(queue.read())).length, 8);
  await queue.commit("mail", found[7].id);
  assert.deepEqual([...(await queue.offsets("mail"))], [[1, found[7].id]]);
});

await scene("what is followed comes once, and a signal ends it", async () => {
  const queue = await client.createQueue(`${name}-live`, { partitions: 3 });
  const other = await client.createQueue(`${name}-live2`);
  await queue.append("first", { partition: 3 });
  const { signal, ...ended } = endings();
  const found = [];
  for await (const message of client.follow([queue.name, other.name], { signal })) {
    found.push(`${message.queue === other.name} ${message.body}`);
    if (found.length === 1) await other.append("second");
    if (found.length === 2) ended.end();
  }
  assert.deepEqual(found, ["false first", "true second"]);
});

function endings() {
  const controller = new AbortController();
  return { signal: controller.signal, end: () => controller.abort() };
}

await scene("a follower goes on behind a cursor", async () => {
  const queue = await client.createQueue(`${name}-cursor`);
  await queue.appendMany([{ body: "a" }, { body: "b" }, { body: "c" }]);
  let cursor;
  for await (const event of queue.events()) {
    if (event.name !== "message") continue;
    cursor = event.cursor;
    if (event.message.body === "b") break;
  }
  for await (const message of queue.follow({ cursor })) {
    assert.equal(message.body, "c");
    break;
  }
});

await scene("a message is leased, released, extended, rejected and settled", async () => {
  const queue = await client.createQueue(`${name}-leases`);
  const leases = queue.leases("mail");
  await queue.appendMany([{ body: "one" }, { body: "two" }]);
  const [one] = await leases.receive({ visibility: 60 });
  assert.deepEqual([one.body, one.deliveries], ["one", 1]);
  assert.equal((await leases.extend(one, 120)).settled.extended, 1);
  await leases.release(one, { delay: 0, count: false });
  const found = await leases.receive({ max: 10 });
  assert.deepEqual(bodies(found).sort(), ["one", "two"]);
  const [first, second] = found;
  await leases.reject(first, "no use");
  const settled = await leases.acknowledge(second);
  assert.deepEqual(settled.settled, { acknowledged: 1, released: 0, extended: 0, rejected: 0, stale: [] });
  assert.deepEqual((await leases.acknowledge(second)).settled.stale, [second.receipt]);
  const [dead] = await all(client.queue(`${queue.name}-dead`).read());
  assert.equal(dead.body, first.body);
});

await scene("work runs a job for each message, and again for one that failed", async () => {
  const queue = await client.createQueue(`${name}-work`);
  const { signal, end } = endings();
  await queue.appendMany(["a", "b", "c"].map((body) => ({ body })));
  const seen = [];
  const failed = [];
  await queue.leases("jobs").work(
    (message) => {
      seen.push(message.body);
      if (message.body === "b" && message.deliveries === 1) throw new Error("not now");
      if (seen.length === 4) end();
    },
    { signal, concurrency: 2, wait: 60, onError: (error, message) => failed.push(`${message.body} ${error.message}`) },
  );
  assert.deepEqual(seen.sort(), ["a", "b", "b", "c"]);
  assert.deepEqual(failed, ["b not now"]);
  assert.deepEqual(await queue.leases("jobs").receive(), []);
});

await scene("work goes on where its group is reset", async () => {
  const queue = await client.createQueue(`${name}-reset`);
  const { signal, end } = endings();
  await queue.append("a");
  const seen = [];
  const reset = () =>
    fetch(`${url}/v1/queuey/${queue.name}/leases/jobs/reset`, {
      method: "POST",
      headers: { Authorization: `Application ${key}`, "Content-Type": "application/json" },
      body: JSON.stringify({ to: "beginning" }),
    });
  const job = async (message) => {
    seen.push(message.body);
    if (seen.length === 2) end();
    assert.equal((await reset()).status, 200);
  };
  await queue.leases("jobs").work(job, { signal, wait: 60 });
  assert.deepEqual(seen, ["a", "a"]);
});

await scene("a refusal ends all jobs before it is thrown", async () => {
  const queue = await client.createQueue(`${name}-refused`);
  await queue.appendMany(["a", "b"].map((body) => ({ body })));
  let isUnderWay, ended = false;
  const underWay = new Promise((go) => { isUnderWay = go; });
  const working = queue.leases("jobs").work(
    async (message) => {
      if (message.body === "a") {
        await underWay;
        throw new Error("not now");
      }
      isUnderWay();
      await new Promise((go) => setTimeout(go, 300));
      ended = true;
    },
    { concurrency: 3, wait: 60, onError: () => { throw new Error("onError is broken"); } },
  );
  await assert.rejects(working, /onError is broken/);
  assert.ok(ended);
  await queue.append("c");
  assert.deepEqual(bodies(await queue.leases("jobs").receive({ wait: 60 })), ["c"]);
  await assert.rejects(queue.leases("jobs").work(() => {}, { concurrency: 0 }), /expected 1 at least/);
});

await scene("options without a value are as if not given", async () => {
  const made = await client.createQueue(`${name}-plain`, { partitions: undefined, retention: undefined });
  assert.deepEqual(await all(made.read({ until: "now" })), []);
});

await scene("ids of one moment are in the order of the server", async () => {
  const ids = ["80ff", "8000", "8001", "bf7f"].map((tail) => `0000000000001000${tail}000000000000`);
  assert.deepEqual([...ids].reverse().sort((one, other) => (order(one) < order(other) ? -1 : 1)), ids);
});

await scene("a receive that is given up leaves no lease behind", async () => {
  const queue = await client.createQueue(`${name}-given-up`);
  const leases = queue.leases("mail");
  const { signal, end } = endings();
  const waiting = leases.receive({ wait: 60, visibility: 600, signal });
  end();
  await assert.rejects(waiting, { name: "AbortError" });
  await queue.append("for another");
  assert.deepEqual(bodies(await leases.receive({ wait: 60 })), ["for another"]);
});

await scene("a pop that is given up behind its answer gives what it popped", async () => {
  const queue = await client.createQueue(`${name}-popped`);
  const pop = (signal) => queue.leases("mail").receive({ pop: true, signal });
  await queue.append("once");
  const { signal, end } = endings();
  const real = globalThis.fetch;
  globalThis.fetch = async (...asked) => {
    await real(...asked);
    globalThis.fetch = real;
    end();
    throw new TypeError("the answer is lost");
  };
  assert.deepEqual(bodies(await pop(signal)), ["once"]);
  assert.deepEqual(await pop(), []);
  await assert.rejects(pop(signal), { name: "AbortError" });
});

await scene("refusals say what was wrong", async () => {
  const queue = client.queue(`${name}-nothing`);
  await assert.rejects(queue.append("x"), (error) => error instanceof QueueyError && error.code === "QueueNotFound" && error.status === 404);
  await assert.rejects(queue.append("x"), { message: `no queue is named "${name}-nothing": createQueue makes it` });
  await assert.rejects(queue.append({ a: 1 }), /appendJson stores any other value/);
  await assert.rejects(queue.append("x", { tll: 4 }), /unknown option tll/);
  await assert.rejects(queue.commit("mail", "1", { partitions: 2 }), /unknown option partitions/);
  assert.throws(() => queue.leases("mail").release("receipt", { dealy: 4 }), /unknown option dealy/);
  assert.throws(() => new Client(url, { key }), /name the application/);
  for (const none of [undefined, null, "", "127.0.0.1:5000", "localhost:5000", "http://"]) {
    assert.throws(() => new Client(none, { application: "queuey", key }), /is no address of a server: expected/);
  }
  assert.throws(() => new Client(url, { application: "queuey" }), /give a key or a token/);
  const wrong = new Client(url, { application: "queuey", key: "no such key, but long enough to be one" });
  await assert.rejects(all(wrong.queue("q").read()), { status: 401, message: `${url} does not know the application key: the option key gives it` });
  const nobody = new Client("http://127.0.0.1:9", { application: "queuey", key, timeoutMs: 1 });
  await assert.rejects(nobody.queue("q").page(), (error) => error.code === "Unreachable" && error.retriable);
});

await scene("what no header can carry is refused, and not tried for a minute", async () => {
  const strange = new Client(url, { application: "queuey", key: "a key…" });
  await assert.rejects(strange.queue("q").page(), { name: "TypeError", message: /header Authorization/ });
  await assert.rejects(client.queue("q").append("x", { idempotencyKey: "order-€7" }), /header Idempotency-Key/);
  await assert.rejects(all(client.queue("q").follow({ cursor: "€" })), /header Last-Event-ID/);
});

await scene("an address that is relative to the page refuses a key as any other", async () => {
  const real = globalThis.fetch;
  globalThis.location = { href: `${url}/page` };
  globalThis.fetch = (path, given) => real(new URL(path, globalThis.location.href), given);
  const wrong = new Client("/", { application: "queuey", key: "no such key, but long enough to be one" });
  await assert.rejects(wrong.queue("q").page(), { status: 401, message: `${url} does not know the application key: the option key gives it` });
  delete globalThis.location;
  globalThis.fetch = real;
});

/** Play with the address of a server that answers each request by this. */
async function answered(handle, play) {
  const other = createServer(handle);
  await new Promise((go) => other.listen(0, "127.0.0.1", go));
  await play(`http://127.0.0.1:${other.address().port}`);
  other.closeAllConnections();
  other.close();
}

await scene("what is not Queuey makes no queue, and is not followed", () => {
  const answers = { "/v1/page": ["text/html", "<p>hello"], "/v1/other": ["application/json", '{"messages": 3}'] };
  const handle = (asked, answer) => {
    const [type, text] = answers[asked.url.split("/", 3).join("/")];
    answer.setHeader("Content-Type", type).end(text);
  };
  return answered(handle, async (address) => {
    for (const application of ["page", "other"]) {
      const lost = new Client(address, { application, key });
      const queue = lost.queue("q");
      for (const ask of [() => lost.createQueue("q"), () => queue.append("x"), () => queue.page(), () => all(queue.follow())]) {
        await assert.rejects(ask, { name: "QueueyError", code: "QueueyError", message: /is not Queuey: is the address right/ });
      }
    }
  });
});

await scene("an append whose outcome is not known is sent again under its key", () => {
  const said = [[504, { code: "OutcomeUnknown" }], [409, { code: "InProgress" }], [201, { status: "ok", messages: [{ key: "stored" }] }]];
  const keys = new Set();
  const handle = (asked, answer) => {
    keys.add(asked.headers["idempotency-key"]);
    const [status, told] = said.shift();
    answer.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(told));
  };
  return answered(handle, async (address) => {
    assert.equal((await new Client(address, { application: "queuey", key }).queue("q").append("x")).id, "stored");
    assert.equal(keys.size, 1);
  });
});

await scene("a follower outlives its token where a function gives new ones", () => {
  const end = { code: "Unauthenticated", detail: "the credential has come to its end", retriable: false };
  const told = [["end", end], ["message", { message_id: "m", partition: 1, timestamp: "1.0", body: "hello" }]];
  const credentials = [];
  const handle = (asked, answer) => {
    credentials.push(asked.headers.authorization);
    const [name, data] = told.shift();
    answer.setHeader("Content-Type", "text/event-stream").end(`id: c\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
  };
  return answered(handle, async (address) => {
    const given = ["first", "second"];
    const token = async () => given.shift();
    for await (const message of new Client(address, { application: "queuey", token }).queue("q").follow()) {
      assert.equal(message.body, "hello");
      break;
    }
    assert.deepEqual(credentials, ["Bearer first", "Bearer second"]);
    const dumb = new Client(address, { application: "queuey", token: () => { throw new Error("none"); }, timeoutMs: 1 });
    await assert.rejects(dumb.queue("q").page(), { code: "Unreachable", message: /gave no token/ });
    const real = globalThis.setTimeout;
    globalThis.setTimeout = (go) => real(go, 0); // all time is over at once
    const silent = new Client(address, { application: "queuey", token: () => new Promise(() => {}), timeoutMs: 1 });
    await assert.rejects(silent.queue("q").page(), { code: "Unreachable", message: /gave no token/ });
    globalThis.setTimeout = real;
    told.push(["end", end]);
    await assert.rejects(all(new Client(address, { application: "queuey", token: "one" }).queue("q").follow()), { code: "Unauthenticated" });
  });
});
